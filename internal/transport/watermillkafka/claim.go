package watermillkafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// handler hands out the records of claims: one partition in one session each.
type handler struct{ *Subscriber }

// Setup implements sarama.ConsumerGroupHandler.
func (handler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup implements sarama.ConsumerGroupHandler.
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// identityPeriod is how often an idle claim checks that its topic is still the same.
const identityPeriod = 5 * time.Second

// ConsumeClaim hands out the records of a claim, one at a time. Its return ends the
// session of all claims, so at the end it waits for the others.
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	lane, ok := h.Join()
	if !ok {
		return nil
	}
	ctx := session.Context() // ends after the grace of the subscription, too
	defer func() {
		lane.Leave()
		if h.Stopping().Err() != nil {
			<-ctx.Done()
		}
	}()
	at, assignment := claim.InitialOffset(), transport.NextAssignment()
	id, ok := h.begin(session, claim)
	tick := time.NewTicker(identityPeriod)
	defer tick.Stop()
	for verified := 0; ok; {
		var m *sarama.ConsumerMessage
		select {
		case m, ok = <-claim.Messages():
		case <-tick.C:
		case <-h.Stopping().Done():
			ok = false
		case <-ctx.Done():
			ok = false
		}
		switch {
		case !ok:
		case m != nil && verified > 0:
			verified--
		default: // of a record that was fetched before the topic has the same identity
			verified = len(claim.Messages())
			ok = h.same(session, claim.Partition(), id, at)
		}
		if !ok || m == nil {
			continue
		}
		r := transport.Received{Key: m.Key, Value: m.Value, Offset: m.Offset, Time: m.Timestamp.UTC()}
		for _, header := range m.Headers {
			r.Headers = append(r.Headers, transport.Header{Key: string(header.Key), Value: header.Value})
		}
		f := transport.NewFrame(m.Topic, id, m.Partition, assignment, []transport.Received{r})
		if ok = lane.HandOut(ctx, f); ok {
			at = m.Offset + 1
			session.MarkMessage(m, id)
			crash.At(crash.Acknowledged, h.gc.ID) // sarama commits within a second
		}
	}
	return nil
}

// begin returns the topic's identity, or false when the claim ends: its offset is of an earlier
// topic of the name, or the session ended.
func (h handler) begin(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) (id string, ok bool) {
	p, at := claim.Partition(), claim.InitialOffset()
	var start, end int64
	var committedOf map[int32]string
	ok = h.ask(session.Context(), func() (err error) {
		if id, start, end, err = h.admin.Extent(session.Context(), h.gc.Topic, p); err == nil {
			committedOf, err = h.admin.CommitMetadata(session.Context(), h.gc.ID, h.gc.Topic)
		}
		return err
	})
	switch of := committedOf[p]; {
	case !ok:
	case of != "" && of != id:
		h.restart(session, p, at, id, start)
		return id, false
	case at >= 0 && (at < start || at > end):
		h.lost(p, at, start)
	}
	return id, ok
}

// same reports whether the topic is the one of id. It sets the group's offset to the oldest
// record of another one.
func (h handler) same(session sarama.ConsumerGroupSession, p int32, id string, at int64) bool {
	var now string
	var start int64
	ok := h.ask(session.Context(), func() (err error) {
		if now, err = h.admin.TopicID(session.Context(), h.gc.Topic); err == nil && now != id {
			now, start, _, err = h.admin.Extent(session.Context(), h.gc.Topic, p)
		}
		return err
	})
	if ok && now != id {
		h.restart(session, p, at, now, start)
	}
	return ok && now == id
}

// restart sets the group's offset to the oldest record of a topic that was
// created again, where the next session begins.
func (h handler) restart(session sarama.ConsumerGroupSession, p int32, wanted int64, id string, start int64) {
	h.lost(p, wanted, start)
	session.ResetOffset(h.gc.Topic, p, start, id) // down to start
	session.MarkOffset(h.gc.Topic, p, start, id)  // or up to it
}

// lost reports records that the group still wanted and that expired.
func (h handler) lost(p int32, wanted, got int64) {
	h.log.Error("the group's offset is outside of the topic; resuming at the oldest record", "event", "source.records_lost",
		"topic", h.gc.Topic, "partition", p, "wanted", wanted, "got", got)
	if h.gc.OnRecordsLost != nil {
		h.gc.OnRecordsLost(h.gc.Topic, p, wanted, got)
	}
}

// ask repeats a question to the cluster until it is answered, false when ctx ends.
func (h handler) ask(ctx context.Context, question func() error) bool {
	_, err := wait.Retry(ctx, ctx, h.log, "read the topic's state", question)
	return err == nil
}
