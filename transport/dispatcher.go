package transport

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// dispatcher hands the frames of one assignment to one subscription, one at a
// time: the next one follows the acknowledgement of the one before. Its fields
// belong to its goroutine.
type dispatcher struct {
	a      *assignment
	s      *subscription
	number uint64          // of the assignment, as frames carry it
	ctx    context.Context // of the messages
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
}

// startDispatcher attaches a to s. The caller holds g.mu, has seen s not
// stopping and a without a dispatcher.
func startDispatcher(a *assignment, s *subscription) {
	d := &dispatcher{a: a, s: s, number: NextAssignment(), done: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(s.ctx)
	a.mu.Lock()
	a.dispatcher = d
	a.mu.Unlock()
	s.senders.Add(1)
	s.dispatchers.Add(1)
	go d.loop()
}

func (d *dispatcher) loop() {
	sending := true
	stopSending := func() {
		if sending {
			sending = false
			d.s.senders.Done()
		}
	}
	detach := context.AfterFunc(d.a.ctx, d.cancel)
	var b batch
	defer func() {
		detach()
		stopSending()
		d.cancel()
		d.a.giveBack(b)
		close(d.done)
		d.s.dispatchers.Done()
	}()
	for d.ctx.Err() == nil {
		var waiting bool
		if b, waiting = d.a.take(); !waiting {
			select {
			case <-d.a.wake:
			case <-d.s.stopping:
				return
			case <-d.ctx.Done():
				return
			}
			continue
		}
		for nacks := 0; b.records > 0; nacks++ {
			msg, cancel := d.message(b, nacks > 0)
			select {
			case d.s.out <- msg:
			case <-d.s.stopping:
				cancel()
				return
			case <-d.ctx.Done():
				cancel()
				return
			}
			acked := d.answer(msg, stopSending)
			cancel()
			if acked {
				break
			}
			d.a.handedOut(b)
			if !sending || d.ctx.Err() != nil || !d.backOff(nacks) {
				return
			}
		}
		d.a.acknowledged(b)
		b = batch{}
		if !sending {
			return
		}
	}
}

// message returns a fresh message of b, so that each hand-out has its own
// acknowledgement and its own context.
func (d *dispatcher) message(b batch, again bool) (*message.Message, context.CancelFunc) {
	records, known := make([]Received, 0, b.records), d.a.knownTo()
	for _, r := range b.fetched {
		if !r.Attrs.IsControl() {
			records = append(records, received(r, again || r.Offset < known))
		}
	}
	f := &Frame{Topic: d.a.tp.topic, TopicID: d.a.topicID, Partition: d.a.tp.partition, Assignment: d.number, Records: records, Bytes: int(b.bytes)}
	ctx, cancel := context.WithCancel(d.ctx)
	return NewMessage(ctx, f), cancel
}

// answer waits for the handler's answer and reports whether it acknowledged. A
// subscription that stops meanwhile hands out nothing more. An acknowledgement
// that came before the end of the assignment counts, also when both are seen at once.
func (d *dispatcher) answer(msg *message.Message, stopSending func()) bool {
	stopping := d.s.stopping
	for {
		select {
		case <-msg.Acked():
			return true
		case <-msg.Nacked():
			return false
		case <-stopping:
			stopSending()
			stopping = nil
		case <-d.ctx.Done():
			select {
			case <-msg.Acked():
				return true
			default:
				return false
			}
		}
	}
}

// backOff waits before a frame that was refused comes again, and reports false
// when there is no more need to.
func (d *dispatcher) backOff(nacks int) bool {
	gc := &d.a.g.gc
	timer := time.NewTimer(min(gc.NackMin<<min(nacks, 20), gc.NackMax))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.s.stopping:
	case <-d.ctx.Done():
	}
	return false
}
