package fenced

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/internal/wait"
)

// Answer is the outcome of a batch.
type Answer struct {
	// Offset is that of the first record, -1 when the leader does not say it.
	Offset int64
	// Err says why the batch is not known to be in the topic.
	Err error
	// Refused: it was not sent, or it is not in the topic and never will be. Else, with an
	// Err, the outcome is unknown.
	Refused bool
}

var errClosed = errors.New("the client is closed")

// leader is the queue of one broker.
type leader struct {
	queue   []*sending // guarded by Client.mu
	running bool       // guarded by Client.mu
}

type sending struct {
	t      *Topic
	b      *Batch
	answer chan Answer // capacity 1
}

const (
	// linger lets requests fill up over all services.
	linger = 5 * time.Millisecond
	// maxRequest bounds the batches of one request, in bytes. A single batch may be larger.
	maxRequest = 8 << 20
	// maxRequests is how many requests are on their way to a broker. No two of them have
	// batches of one writer and partition.
	maxRequests = 16
	// produceTimeout is how long a leader may wait for its followers.
	produceTimeout = 10 * time.Second
	// attempts at one batch whose outcome is unknown. The leader knows a repetition by its
	// numbers. Fencing and reading settle outcomes that are unknown after them.
	attempts = 6
	// firstPause is the wait before the second attempt. It doubles from there.
	firstPause = 100 * time.Millisecond
)

// Append sends batches of different partitions, of t as it was when they were made, and returns
// the outcome of each, soon after ctx ends at the latest.
func (c *Client) Append(ctx context.Context, t *Topic, batches []*Batch) []Answer {
	answers := make([]Answer, len(batches))
	sent := make([]*sending, len(batches))
	for i, b := range batches {
		sent[i] = c.send(ctx, t, b)
	}
	var waits sync.WaitGroup
	for i, s := range sent {
		waits.Go(func() { answers[i] = c.await(ctx, t, s) })
	}
	waits.Wait()
	return answers
}

// await waits for the answer to a batch, and sends it again where that helps.
func (c *Client) await(ctx context.Context, t *Topic, s *sending) Answer {
	pause, unknown := firstPause, false
	for n := 1; ; n++ {
		var a Answer
		select {
		case a = <-s.answer:
		case <-ctx.Done():
			return Answer{Offset: -1, Err: context.Cause(ctx)}
		}
		// An unknown outcome of one attempt stays unknown after the next one.
		unknown = unknown || !a.Refused
		a.Refused = !unknown
		if !sendAgain(a.Err) || n == attempts || !wait.Sleep(ctx, pause) {
			return a
		}
		pause *= 2
		if now, err := c.Topic(ctx, t.Name, 0); err == nil && now.ID == t.ID && now.Partitions() >= t.Partitions() {
			t = now
		}
		s = c.send(ctx, t, s.b)
	}
}

// send puts a batch into the queue of its leader.
func (c *Client) send(ctx context.Context, t *Topic, b *Batch) *sending {
	s := &sending{t: t, b: b, answer: make(chan Answer, 1)}
	to := t.leaders[b.partition]
	if to < 0 {
		s.answer <- Answer{Offset: -1, Err: kerr.LeaderNotAvailable, Refused: true}
		return s
	}
	if err := c.room.Acquire(ctx, b.room()); err != nil {
		s.answer <- Answer{Offset: -1, Err: context.Cause(ctx), Refused: true}
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.room.Release(b.room())
		s.answer <- Answer{Offset: -1, Err: errClosed}
		return s
	}
	l := c.leaders[to]
	if l == nil {
		l = &leader{}
		c.leaders[to] = l
	}
	l.queue = append(l.queue, s)
	if !l.running {
		l.running = true
		c.all.Go(func() { c.feed(to, l) })
	}
	return s
}

func (b *Batch) room() int64 { return min(int64(len(b.bytes)), maxBuffered) }

// feed sends a leader's queue, in rounds, until it is empty.
func (c *Client) feed(to int32, l *leader) {
	wait.Sleep(c.ctx, linger)
	for {
		c.mu.Lock()
		round := l.queue
		l.queue = nil
		if len(round) == 0 {
			l.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		answered := make(chan struct{}, maxRequests)
		under := 0
		for len(round) > 0 {
			var request []*sending
			request, round = cut(round)
			if under == maxRequests {
				<-answered
				under--
			}
			under++
			c.all.Go(func() {
				c.produce(to, request)
				answered <- struct{}{}
			})
		}
		for ; under > 0; under-- {
			<-answered
		}
	}
}

// cut takes the batches of one request: at most one of each partition.
func cut(queue []*sending) (request, rest []*sending) {
	type place struct {
		topic     string
		partition int32
	}
	taken := make(map[place]bool, len(queue))
	bytes := 0
	for _, s := range queue {
		at := place{s.t.Name, s.b.partition}
		if taken[at] || len(request) > 0 && bytes+len(s.b.bytes) > maxRequest {
			rest = append(rest, s)
			continue
		}
		taken[at] = true
		bytes += len(s.b.bytes)
		request = append(request, s)
	}
	return request, rest
}

// produce sends one request and answers all of it.
func (c *Client) produce(to int32, all []*sending) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(produceTimeout.Milliseconds())
	topics := map[string]int{}
	for _, s := range all {
		i, ok := topics[s.t.Name]
		if !ok {
			i = len(req.Topics)
			topics[s.t.Name] = i
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic, rt.TopicID = s.t.Name, s.t.ID
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = s.b.partition, s.b.bytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	kresp, err := c.cl.Broker(int(to)).Request(c.ctx, req)
	resp, _ := kresp.(*kmsg.ProduceResponse)
	for _, s := range all {
		a := Answer{Offset: -1, Err: err}
		if err == nil {
			a = answerOf(resp, s)
		}
		if a.Err == nil && a.Offset >= 0 {
			c.acknowledged(s, a.Offset)
		}
		c.room.Release(s.b.room())
		s.answer <- a
	}
}

// acknowledged records the end of a batch for KnownEnds. Old servers have no topic ids: a
// re-created topic would keep the ends of its predecessor there.
func (c *Client) acknowledged(s *sending, offset int64) {
	if s.t.ID == [16]byte{} {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ends := c.ends[s.t.ID]
	if n := s.t.Partitions(); len(ends) < n {
		ends = append(ends, make([]int64, n-len(ends))...)
		c.ends[s.t.ID] = ends
	}
	ends[s.b.partition] = max(ends[s.b.partition], offset+int64(s.b.count))
}

func answerOf(resp *kmsg.ProduceResponse, s *sending) Answer {
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic != s.t.Name && (rt.Topic != "" || rt.TopicID != s.t.ID) {
			continue
		}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			if rp.Partition != s.b.partition {
				continue
			}
			err := kerr.ErrorForCode(rp.ErrorCode)
			if errors.Is(err, kerr.DuplicateSequenceNumber) {
				return Answer{Offset: -1}
			}
			if err != nil && rp.ErrorMessage != nil {
				err = fmt.Errorf("%w: %s", err, *rp.ErrorMessage)
			}
			return Answer{Offset: rp.BaseOffset, Err: err, Refused: refused(err)}
		}
	}
	return Answer{Offset: -1, Err: errors.New("the leader said nothing about a batch")}
}

// Ended reports whether an error says that a writer cannot continue: it has a successor,
// or the leader disagrees about its sequence.
func Ended(err error) bool {
	return is(err, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID,
		kerr.InvalidProducerIDMapping, kerr.InvalidTxnState)
}

// refused: the leader looks for these before it appends. NotLeaderForPartition is none of
// them: a leader that loses its place while it waits for its followers answers so, too.
func refused(err error) bool {
	return Ended(err) || is(err, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage,
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.PolicyViolation, kerr.InvalidRequiredAcks,
		kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.InvalidTopicException, kerr.NotEnoughReplicas)
}

// sendAgain: the same batch, with its numbers, may well be taken, or be known.
func sendAgain(err error) bool {
	if is(err, errClosed, kerr.UnknownTopicID, kerr.UnknownTopicOrPartition) {
		return false
	}
	return err != nil && !refused(err)
}

func is(err error, any ...error) bool {
	for _, e := range any {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
