package edge

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/transport"
)

// handler is watermill-kafka's, for claims of one topic and no other of the
// same name. sarama fetches and commits by name, so it goes on in a topic that
// was deleted and created again as if nothing had happened.
type handler struct {
	sarama.ConsumerGroupHandler
	claims *claims
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, sc sarama.ConsumerGroupClaim) error {
	tp := topicPartition{sc.Topic(), sc.Partition()}
	c := h.claims
	id, err := c.identify(session.Context(), tp, sc.InitialOffset())
	if err != nil {
		return nil // the session ended meanwhile
	}
	was, err := c.committedUnder(session.Context(), tp)
	if err != nil {
		return nil
	}
	if was != "" && was != id {
		c.restart(session, tp, sc.InitialOffset())
		return nil
	}
	cl := &claim{number: transport.NextClaim(), ended: session.Context(), topicID: id}
	c.mu.Lock()
	c.open[tp] = cl
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		if c.open[tp] == cl {
			delete(c.open, tp)
		}
		c.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(session.Context())
	defer cancel()
	messages := make(chan *sarama.ConsumerMessage)
	replaced := make(chan bool, 1)
	go func() { replaced <- c.verify(ctx, tp.topic, id, sc.Messages(), messages) }()
	err = h.ConsumerGroupHandler.ConsumeClaim(identified{session, id, c.group}, verified{sc, messages})
	cancel()
	if <-replaced {
		c.restart(session, tp, sc.InitialOffset())
	}
	return err
}

// identified is a session that commits the topic's identity beside the offset.
type identified struct {
	sarama.ConsumerGroupSession
	id, group string
}

func (s identified) MarkMessage(m *sarama.ConsumerMessage, _ string) {
	s.ConsumerGroupSession.MarkMessage(m, s.id)
	crash.At(crash.Acknowledged, s.group) // sarama commits within a second
}

// verified is a claim whose messages are known to be of its topic.
type verified struct {
	sarama.ConsumerGroupClaim
	messages <-chan *sarama.ConsumerMessage
}

func (v verified) Messages() <-chan *sarama.ConsumerMessage { return v.messages }

// identityPeriod is how often an idle claim looks whether its topic is still
// the same.
const identityPeriod = 5 * time.Second

// verify hands messages on once the topic's identity, asked for after they were
// fetched, is still id. It returns true when it is another, false when in or ctx
// ends; out is closed then.
func (c *claims) verify(ctx context.Context, topic, id string, in <-chan *sarama.ConsumerMessage, out chan<- *sarama.ConsumerMessage) bool {
	defer close(out)
	tick := time.NewTicker(identityPeriod)
	defer tick.Stop()
	for open := true; open; {
		var batch []*sarama.ConsumerMessage
		select {
		case m, ok := <-in:
			if !ok {
				return false
			}
			batch = append(batch, m)
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
		for more := true; more; {
			var m *sarama.ConsumerMessage
			select {
			case m, more = <-in:
				if open = more; more {
					batch = append(batch, m)
				}
			default:
				more = false
			}
		}
		var now string
		if c.patiently(ctx, topic, func() (err error) { now, err = c.admin.TopicID(ctx, topic); return err }) != nil {
			return false
		}
		if now != id {
			return true
		}
		for _, m := range batch {
			select {
			case out <- m:
			case <-ctx.Done():
				return false
			}
		}
	}
	return false
}

// committedUnder gives the identity of the topic that the group's offset is of;
// empty when it is not known.
func (c *claims) committedUnder(ctx context.Context, tp topicPartition) (was string, err error) {
	err = c.patiently(ctx, tp.topic, func() error {
		all, err := c.admin.CommitMetadata(ctx, c.group, tp.topic)
		was = all[tp.partition]
		return err
	})
	return was, err
}

// restart sets the group's offset to the oldest record of a topic that was
// created again. The session ends with it, and the next one begins there.
func (c *claims) restart(session sarama.ConsumerGroupSession, tp topicPartition, wanted int64) {
	var id string
	var start int64
	err := c.patiently(session.Context(), tp.topic, func() (err error) {
		if id, err = c.admin.TopicID(session.Context(), tp.topic); err != nil {
			return err
		}
		starts, _, err := c.admin.Offsets(session.Context(), tp.topic)
		start = starts[tp.partition]
		return err
	})
	if err != nil {
		return // the next session finds the same
	}
	c.gone(tp, wanted, start)
	session.ResetOffset(tp.topic, tp.partition, start, id) // down to start
	session.MarkOffset(tp.topic, tp.partition, start, id)  // or up to it
}

// identify asks for the topic's identity until it has an answer or ctx ends,
// and tells when the offset to start at is gone.
func (c *claims) identify(ctx context.Context, tp topicPartition, initial int64) (id string, err error) {
	err = c.patiently(ctx, tp.topic, func() error {
		if id, err = c.admin.TopicID(ctx, tp.topic); err != nil {
			return err
		}
		start, end, err := c.admin.Offsets(ctx, tp.topic)
		if s := start[tp.partition]; err == nil && initial >= 0 && (initial < s || initial > end[tp.partition]) {
			c.gone(tp, initial, s)
		}
		return err
	})
	return id, err
}

// gone says that records which the group still wanted are gone.
func (c *claims) gone(tp topicPartition, wanted, got int64) {
	c.log.Error("the group's offset is outside of the topic; going on at the oldest",
		"topic", tp.topic, "partition", tp.partition, "wanted", wanted, "got", got)
	if c.onReset != nil {
		c.onReset(tp.topic, tp.partition, wanted, got)
	}
}

// patiently repeats a question to the cluster until it is answered or ctx ends.
func (c *claims) patiently(ctx context.Context, topic string, ask func() error) error {
	for try := 0; ; try++ {
		err := ask()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if try == 0 {
			c.log.Warn("cannot read the topic's state; trying again", "topic", topic, "err", err)
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
