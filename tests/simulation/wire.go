package simulation

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// producer returns the product's producer.
func (p *process) producer(name string) (*transport.Producer, error) {
	opened := int64(0)
	return transport.NewProducerOver(func() (transport.RecordClient, error) {
		opened++
		if opened > 1 {
			p.w.count("producer's client replaced")
		}
		return &wire{p: p, name: p.name + " " + name, number: opened, parts: map[pipeKey]*pipe{}}, nil
	}, transport.ProducerConfig{Partitions: map[string]int{inboxTopic: p.w.setup.inboxParts}}, p.w.log)
}

// wire is a producer's client, as kgo's is: it packs the queue of a partition into
// batches, has one request per partition under way, and fails the queue behind a
// batch that failed. One whose sequence the brokers do not know any more appends
// nothing more.
type wire struct {
	p      *process
	name   string
	number int64

	mu       sync.Mutex
	parts    map[pipeKey]*pipe // guarded by mu
	waiting  int               // guarded by mu; records whose promise was not called
	flushing int               // guarded by mu
	empty    chan struct{}     // guarded by mu; closed when none waits; nil while nobody asks
	lost     error             // guarded by mu
}

// pipeKey is a partition of a topic.
type pipeKey struct {
	topic string
	part  int
}

// pipe is the queue of a partition.
type pipe struct {
	t     *topic
	part  int
	dice  *dice
	queue []*promised // guarded by the wire's mutex; those in the request stand in front
	busy  bool        // guarded by the wire's mutex
}

// promised is a record whose promise was not called.
type promised struct {
	record  *kgo.Record
	promise func(*kgo.Record, error)
}

var _ transport.RecordClient = (*wire)(nil)

// Produce implements transport.RecordClient.
func (c *wire) Produce(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	t, part := c.p.w.inbox, int(r.Partition)
	if part < 0 {
		part = t.partitionOf(r.Key)
	}
	if c.p.w.rules.MarkerFirst {
		early := promise
		c.p.w.spawn(func() { early(r, nil) })
		promise = func(*kgo.Record, error) {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	if c.lost != nil {
		err := c.lost
		c.p.w.spawn(func() { c.answer([]*promised{{r, promise}}, err) })
		return
	}
	o := c.parts[pipeKey{r.Topic, part}]
	if o == nil {
		o = &pipe{t: t, part: part, dice: c.p.w.dice(c.name+" "+r.Topic, c.number, int64(part))}
		c.parts[pipeKey{r.Topic, part}] = o
	}
	o.queue = append(o.queue, &promised{r, promise})
	if c.flushing > 0 {
		c.kick(o)
	}
}

// kick lets a partition's requests begin. The caller holds mu.
func (c *wire) kick(o *pipe) {
	if !o.busy && len(o.queue) > 0 {
		o.busy = true
		c.p.w.spawn(func() { c.run(o) })
	}
}

// Flush implements transport.RecordClient.
func (c *wire) Flush(context.Context) error {
	c.mu.Lock()
	c.flushing++
	for _, o := range c.parts {
		c.kick(o)
	}
	if c.waiting > 0 && c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty, waiting := c.empty, c.waiting
	c.mu.Unlock()
	if waiting > 0 {
		<-empty
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushing--
	return nil
}

// Close implements transport.RecordClient.
func (c *wire) Close() {
	c.mu.Lock()
	c.lost = kgo.ErrClientClosed
	failed := c.take()
	c.mu.Unlock()
	c.answer(failed, kgo.ErrClientClosed)
}

// take empties all queues. The caller holds mu.
func (c *wire) take() (all []*promised) {
	for _, o := range c.parts {
		all = append(all, o.queue...)
		o.queue = nil
	}
	return all
}

// answer calls promises.
func (c *wire) answer(records []*promised, err error) {
	for _, r := range records {
		r.promise(r.record, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting -= len(records); c.waiting == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// run sends the queue of a partition, one request after the other.
func (c *wire) run(o *pipe) {
	for {
		c.mu.Lock()
		if len(o.queue) == 0 {
			o.busy = false
			c.mu.Unlock()
			return
		}
		batch := o.queue[:1+o.dice.n(len(o.queue))]
		c.mu.Unlock()
		records := make([]transport.Record, len(batch))
		for i, r := range batch {
			records[i] = transport.Record{Topic: r.record.Topic, Key: r.record.Key, Value: r.record.Value, Headers: r.record.Headers,
				Pinned: true, Partition: int32(o.part)}
		}
		said, err := c.p.request(o.dice, o.t, o.part, records)
		c.mu.Lock()
		if len(o.queue) == 0 { // they were failed meanwhile, and this may have come after all
			c.mu.Unlock()
			continue
		}
		done := o.queue[:said:said]
		o.queue = o.queue[said:]
		var failed []*promised
		if err == nil {
			err = c.lost
		}
		if err != nil {
			failed, o.queue = o.queue, nil
			if errors.Is(err, kerr.OutOfOrderSequenceNumber) && c.lost == nil {
				c.lost = err
				failed = append(failed, c.idle()...)
			}
		}
		c.mu.Unlock()
		c.answer(done, nil)
		if len(failed) > 0 {
			c.answer(failed, err)
		}
	}
}

// idle empties the queues of partitions without a request under way. The caller
// holds mu.
func (c *wire) idle() (all []*promised) {
	for _, o := range c.parts {
		if !o.busy {
			all = append(all, o.queue...)
			o.queue = nil
		}
	}
	return all
}
