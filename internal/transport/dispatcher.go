package transport

import (
	"context"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// dispatcher hands out the frames of one assignment. Its fields belong to its goroutine.
type dispatcher struct {
	*Lane
	a      *assignment
	number uint64 // of the assignment, as frames carry it
	ctx    context.Context
	// flights are in the order of their records. Only the last one may hold up the next frame.
	// All others were set aside. A refused one stays until all are answered.
	flights []*flight
	next    *flight      // not handed out yet
	answers chan *flight // of those set aside
	again   int          // records that come again: the next frame has no others
	nacks   int          // in a row
	backOff <-chan time.Time
}

// flight is a batch and the message that carries it.
type flight struct {
	batch
	msg     *message.Message
	cancel  context.CancelFunc
	aside   <-chan []int
	acked   bool // the answer of one that was set aside
	refused bool
}

// dispatch hands out the assignment's frames until the subscription stops, or the
// assignment ends. The lane joins here and leaves at the end.
func (a *assignment) dispatch(s *Subscription) {
	lane, ok := s.Join()
	if !ok {
		close(a.done)
		return
	}
	d := &dispatcher{Lane: lane, a: a, number: NextAssignment(), answers: make(chan *flight)}
	ctx, cancel := context.WithCancel(s.ctx)
	d.ctx = ctx
	detach := context.AfterFunc(a.ctx, cancel)
	go func() {
		d.run()
		detach()
		cancel()
		close(a.done)
		d.Leave()
	}()
}

func (d *dispatcher) run() {
	stopping, ended := d.stopping.Done(), d.ctx.Done()
	for d.sending || len(d.flights) > 0 {
		d.take()
		var out chan<- *message.Message
		var msg *message.Message
		if d.next != nil {
			out, msg = d.out, d.next.msg
		}
		f, acked, nacked, aside := d.current()
		select {
		case out <- msg:
			d.a.handedOut(d.next.batch)
			d.flights, d.next = append(d.flights, d.next), nil
		case <-acked:
			d.answered(f, true)
		case <-nacked:
			d.answered(f, false)
		case at := <-aside:
			d.setAside(f, at)
		case f := <-d.answers:
			d.answered(f, f.acked)
		case <-d.a.wake:
		case <-d.backOff:
			d.backOff = nil
		case <-stopping:
			stopping = nil
			d.StopSending()
		case <-ended:
			ended = nil
			d.StopSending()
			if f != nil {
				d.answered(f, isAcked(f.msg))
			}
		}
	}
	d.drop()
}

// current returns the flight that holds up the next frame, and its answers.
func (d *dispatcher) current() (f *flight, acked, nacked <-chan struct{}, aside <-chan []int) {
	if n := len(d.flights); n > 0 && d.flights[n-1].aside != nil && !d.flights[n-1].refused {
		f = d.flights[n-1]
		return f, f.msg.Acked(), f.msg.Nacked(), f.aside
	}
	return nil, nil, nil, nil
}

// take prepares the next frame, if one may be handed out and records wait.
func (d *dispatcher) take() {
	held := slices.ContainsFunc(d.flights, func(f *flight) bool { return f.refused || f.aside != nil })
	for d.sending && d.next == nil && d.backOff == nil && !held {
		b, waiting := d.a.take(d.again)
		if !waiting {
			return
		}
		if b.records == 0 {
			d.a.acknowledged(b)
			continue
		}
		d.again = 0
		ctx, cancel := context.WithCancel(d.ctx)
		frame, aside := d.frame(b).Settable()
		d.next = &flight{batch: b, msg: NewMessage(ctx, frame), cancel: cancel, aside: aside}
	}
}

// answered notes the answer to a flight. Refused records are requeued in their order once
// all flights are answered: records behind a refused one wait for it.
func (d *dispatcher) answered(f *flight, acked bool) {
	f.cancel()
	if f.refused = !acked; acked {
		setAside := f.aside == nil
		d.flights = slices.DeleteFunc(d.flights, func(o *flight) bool { return o == f })
		if setAside {
			d.a.settled(f.batch)
		} else {
			d.a.acknowledged(f.batch)
		}
		if setAside || len(d.flights) == 0 {
			d.nacks = 0
		}
	}
	if len(d.flights) == 0 || slices.ContainsFunc(d.flights, func(f *flight) bool { return !f.refused }) {
		return
	}
	d.drop()
	for _, f := range slices.Backward(d.flights) {
		d.a.requeue(f.batch)
		d.again += f.records
	}
	d.flights = nil
	d.backOff = time.After(d.gc.backOff(d.nacks))
	d.nacks++
}

// drop requeues the frame that was not handed out.
func (d *dispatcher) drop() {
	if d.next != nil {
		d.next.cancel()
		d.a.requeue(d.next.batch)
		d.next = nil
	}
}

// setAside lets the next frame be handed out beside the records of f at some indexes. The
// others are acknowledged.
func (d *dispatcher) setAside(f *flight, at []int) {
	f.batch, f.aside = d.a.setAside(f.batch, at), nil
	go func() {
		select {
		case <-f.msg.Acked():
		case <-f.msg.Nacked():
		case <-d.ctx.Done():
		}
		f.acked = isAcked(f.msg)
		d.answers <- f
	}()
}

// frame returns b as a frame.
func (d *dispatcher) frame(b batch) *Frame {
	records, known := make([]Received, 0, b.records), d.a.knownTo()
	for _, r := range b.fetched {
		if !r.Attrs.IsControl() {
			records = append(records, received(r, r.Offset < known))
		}
	}
	return &Frame{Topic: d.gc.Topic, TopicID: d.a.topicID, Partition: d.a.partition, Assignment: d.number, Records: records, Bytes: int(b.bytes)}
}
