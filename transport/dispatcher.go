package transport

import (
	"context"
	"slices"
)

// dispatcher hands the frames of one assignment to one stream. Its fields
// belong to its goroutine.
type dispatcher struct {
	a      *assignment
	s      *Stream
	feed   *PartitionStream
	number uint64          // of the assignment, as frames carry it
	ctx    context.Context // of the messages
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	aside  []*asideBatch // oldest first
	nacks  int           // in a row, of what was set aside
}

// asideBatch is the part of a batch that a handler set aside. Later batches are handed out
// meanwhile; a refused one is handed out again before anything new.
type asideBatch struct {
	batch
	*Outstanding
	answered bool
}

// startDispatcher attaches a to s. The caller holds g.mu, has seen that s is
// the one of g, and a without a dispatcher.
func startDispatcher(a *assignment, s *Stream) {
	d := &dispatcher{a: a, s: s, number: NextAssignment(), done: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(s.Context)
	d.feed = s.NewPartition(d.ctx, &a.g.gc)
	a.mu.Lock()
	a.dispatcher = d
	a.mu.Unlock()
	go d.loop()
}

func (d *dispatcher) loop() {
	detach := context.AfterFunc(d.a.ctx, d.cancel)
	var b batch
	defer func() {
		d.feed.stopSending()
		d.awaitAside() // until their grace is over
		detach()
		d.cancel()
		d.requeue(b)
		d.a.detach()
		close(d.done)
		d.feed.Close()
	}()
	for d.ctx.Err() == nil && d.feed.Sending() {
		if d.collect() && !d.recover(batch{}) {
			return
		}
		var waiting bool
		if b, waiting = d.a.take(); !waiting {
			select {
			case <-d.a.wake:
			case o := <-d.feed.Answers():
				d.answered(o)
			case <-d.s.Stopping.Done():
				return
			case <-d.ctx.Done():
				return
			}
			continue
		}
		if b.records > 0 {
			acked, left := d.feed.HandOut(d.frame(b), func() bool { d.a.handedOut(b); return len(d.aside) == 0 })
			switch {
			case left != nil:
				d.a.handedOut(b)
				d.aside = append(d.aside, &asideBatch{d.a.setAside(b, left.Left), left, false})
				b = batch{}
				continue
			case acked:
			case len(d.aside) > 0:
				refused := b
				b = batch{}
				if !d.recover(refused) {
					return
				}
				continue
			default:
				return
			}
		}
		d.a.acknowledged(b)
		b = batch{}
	}
}

// collect takes the answers that are there, and reports whether one is a refusal.
func (d *dispatcher) collect() (refused bool) {
	for {
		select {
		case o := <-d.feed.Answers():
			d.answered(o)
			continue
		default:
		}
		return slices.ContainsFunc(d.aside, func(s *asideBatch) bool { return s.answered })
	}
}

// answered notes the answer to something that was set aside. Only refusals stay.
func (d *dispatcher) answered(o *Outstanding) {
	i := slices.IndexFunc(d.aside, func(s *asideBatch) bool { return s.Outstanding == o })
	d.aside[i].answered = true
	if o.Acked {
		d.a.settled(d.aside[i].batch)
		d.aside = slices.Delete(d.aside, i, i+1)
		d.nacks = 0
	}
}

// awaitAside returns when all that was set aside is answered.
func (d *dispatcher) awaitAside() {
	for slices.ContainsFunc(d.aside, func(s *asideBatch) bool { return !s.answered }) {
		d.answered(<-d.feed.Answers())
	}
}

// recover requeues refused records in their order, after all answers: records behind a
// refused one are refused too. b is a batch that was refused behind it.
// It reports whether the hand-out may resume.
func (d *dispatcher) recover(b batch) bool {
	d.awaitAside()
	d.requeue(b)
	d.nacks++
	return d.feed.Sending() && d.ctx.Err() == nil && d.feed.Pause(d.nacks-1)
}

// requeue returns refused batches that were set aside, and b behind them, to the queue.
func (d *dispatcher) requeue(b batch) {
	if len(b.fetched) > 0 {
		d.a.requeue(b)
	}
	for _, s := range slices.Backward(d.aside) {
		d.a.requeue(s.batch)
	}
	d.aside = nil
}

// frame returns b as a frame.
func (d *dispatcher) frame(b batch) *Frame {
	records, known := make([]Received, 0, b.records), d.a.knownTo()
	for _, r := range b.fetched {
		if !r.Attrs.IsControl() {
			records = append(records, received(r, r.Offset < known))
		}
	}
	return &Frame{Topic: d.a.g.gc.Topic, TopicID: d.a.topicID, Partition: d.a.partition, Assignment: d.number, Records: records, Bytes: int(b.bytes)}
}
