package watermillkafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/transport"
)

type topicPartition struct {
	topic     string
	partition int32
}

// claim is one partition in one session. It has one message in work at a time.
type claim struct {
	assignment uint64
	topicID    string
	ended      context.Context
	frame      *transport.Frame // guarded by sessions.mu; of the message in work
}

// sessions watches the sessions of a subscriber. It is watermill-kafka's tracer,
// which sees claims begin and end, and its unmarshaler, which sees their
// records.
type sessions struct {
	group         string
	admin         *transport.Admin
	log           *slog.Logger
	onRecordsLost func(topic string, partition int32, wanted, got int64)
	stop          chan struct{}

	mu   sync.Mutex
	open map[topicPartition]*claim // guarded by mu
	// A connection beyond the first of each Subscribe is a reconnect.
	expected  int       // guarded by mu; first connections that are still to come
	connected time.Time // guarded by mu; the latest one
}

// Unmarshal implements kafka.Unmarshaler. It cannot fail: an error would end
// the session, and the record would be read again in the next one, for ever.
func (s *sessions) Unmarshal(m *sarama.ConsumerMessage) (*message.Message, error) {
	r := transport.Received{Key: m.Key, Value: m.Value, Offset: m.Offset, Time: m.Timestamp.UTC()}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, transport.Header{Key: string(h.Key), Value: h.Value})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[topicPartition{m.Topic, m.Partition}]
	if c == nil { // a record outside of a claim: nobody gets it
		c = &claim{}
	}
	c.frame = transport.NewFrame(m.Topic, c.topicID, m.Partition, c.assignment, []transport.Received{r})
	return transport.NewMessage(context.Background(), c.frame), nil
}

// attach adds to a message its frame, and a context that ends with its claim.
func (s *sessions) attach(m *message.Message, topic string) {
	partition, _ := kafka.MessagePartitionFromCtx(m.Context())
	offset, _ := kafka.MessagePartitionOffsetFromCtx(m.Context())
	ctx, cancel := context.WithCancel(m.Context())
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[topicPartition{topic, partition}]
	if c == nil || c.frame == nil || c.frame.First() != offset {
		cancel() // its claim has ended
		m.SetContext(ctx)
		return
	}
	detach := context.AfterFunc(c.ended, cancel)
	context.AfterFunc(m.Context(), func() { detach() })
	m.SetContext(transport.NewMessage(ctx, c.frame).Context())
	again := c.frame.Records[0]
	again.Redelivered = true
	c.frame = transport.NewFrame(topic, c.topicID, partition, c.assignment, []transport.Received{again})
}

const reconnectPause = time.Second

func (s *sessions) subscribed() {
	s.mu.Lock()
	s.expected++
	s.mu.Unlock()
}

// WrapConsumerGroupHandler is called at every (re)connect, which
// watermill-kafka does in a hot loop when joining fails: here it waits.
func (s *sessions) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	s.mu.Lock()
	var wait time.Duration
	if s.expected > 0 {
		s.expected--
	} else {
		wait = time.Until(s.connected.Add(reconnectPause))
	}
	s.connected = time.Now().Add(max(0, wait))
	s.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-s.stop:
		}
	}
	return handler{h, s}
}

func (*sessions) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }
func (*sessions) WrapPartitionConsumer(c sarama.PartitionConsumer) sarama.PartitionConsumer {
	return c
}
func (*sessions) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}

// handler is watermill-kafka's, for claims of one topic and no other of the
// same name. sarama fetches and commits by name, so it continues in a topic that
// was deleted and created again as if nothing had happened.
type handler struct {
	sarama.ConsumerGroupHandler
	*sessions
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, sc sarama.ConsumerGroupClaim) error {
	ctx, cancel := context.WithCancel(session.Context())
	defer cancel()
	tp := topicPartition{sc.Topic(), sc.Partition()}
	id, committedOf, start, end, err := h.topicState(ctx, tp)
	if err != nil {
		return nil // the session ended meanwhile
	}
	initial := sc.InitialOffset()
	if committedOf != "" && committedOf != id {
		h.restart(session, tp, initial, id, start)
		return nil
	}
	if initial >= 0 && (initial < start || initial > end) {
		h.lost(tp, initial, start)
	}
	c := &claim{assignment: transport.NextAssignment(), ended: session.Context(), topicID: id}
	h.mu.Lock()
	h.open[tp] = c
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		if h.open[tp] == c {
			delete(h.open, tp)
		}
		h.mu.Unlock()
	}()
	messages := make(chan *sarama.ConsumerMessage)
	replaced := make(chan bool, 1)
	go func() { replaced <- h.verify(ctx, tp.topic, id, sc.Messages(), messages) }()
	err = h.ConsumerGroupHandler.ConsumeClaim(identified{session, id, h.group}, verified{sc, messages})
	cancel()
	if <-replaced {
		if id, _, start, _, err := h.topicState(session.Context(), tp); err == nil { // or the next session finds the same
			h.restart(session, tp, initial, id, start)
		}
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

// identityPeriod is how often an idle claim checks that its topic is still the same.
const identityPeriod = 5 * time.Second

// verify hands messages on once the topic's identity, asked for after they were
// fetched, is still id. It returns true when it is another, false when in or ctx
// ends; out is closed then.
func (s *sessions) verify(ctx context.Context, topic, id string, in <-chan *sarama.ConsumerMessage, out chan<- *sarama.ConsumerMessage) bool {
	defer close(out)
	tick := time.NewTicker(identityPeriod)
	defer tick.Stop()
	for {
		var batch []*sarama.ConsumerMessage
		select {
		case m, ok := <-in:
			if !ok {
				return false
			}
			batch = append(batch, m)
			for range len(in) { // one question for all that are there
				batch = append(batch, <-in)
			}
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
		var now string
		if s.ask(ctx, topic, func() (err error) { now, err = s.admin.TopicID(ctx, topic); return err }) != nil {
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
}

// topicState asks for the topic's identity and the one that the group's offset is of,
// which is empty when it is not known, and for the partition's bounds. The
// error is the end of ctx.
func (s *sessions) topicState(ctx context.Context, tp topicPartition) (id, committedOf string, start, end int64, err error) {
	err = s.ask(ctx, tp.topic, func() (err error) {
		if id, err = s.admin.TopicID(ctx, tp.topic); err != nil {
			return err
		}
		starts, ends, err := s.admin.Offsets(ctx, tp.topic)
		if err != nil {
			return err
		}
		committed, err := s.admin.CommitMetadata(ctx, s.group, tp.topic)
		start, end, committedOf = starts[tp.partition], ends[tp.partition], committed[tp.partition]
		return err
	})
	return id, committedOf, start, end, err
}

// restart sets the group's offset to the oldest record of a topic that was
// created again. The session ends with it, and the next one begins there.
func (s *sessions) restart(session sarama.ConsumerGroupSession, tp topicPartition, wanted int64, id string, start int64) {
	s.lost(tp, wanted, start)
	session.ResetOffset(tp.topic, tp.partition, start, id) // down to start
	session.MarkOffset(tp.topic, tp.partition, start, id)  // or up to it
}

// lost reports records that the group still wanted and that are gone.
func (s *sessions) lost(tp topicPartition, wanted, got int64) {
	s.log.Error("the group's offset is outside of the topic; going on at the oldest",
		"topic", tp.topic, "partition", tp.partition, "wanted", wanted, "got", got)
	if s.onRecordsLost != nil {
		s.onRecordsLost(tp.topic, tp.partition, wanted, got)
	}
}

// ask repeats a question to the cluster until it is answered or ctx ends.
func (s *sessions) ask(ctx context.Context, topic string, question func() error) error {
	for try := 0; ; try++ {
		err := question()
		if err == nil {
			return nil
		}
		if try == 0 && ctx.Err() == nil {
			s.log.Warn("cannot read the topic's state; trying again", "topic", topic, "err", err)
		}
		if !wait.Sleep(ctx, 250*time.Millisecond) {
			return ctx.Err()
		}
	}
}
