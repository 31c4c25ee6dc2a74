package transport

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
)

// claimNumber makes the numbers of claims unique in the process.
var claimNumber atomic.Uint64 //nolint:gochecknoglobals // numbers of one process, whoever asks

// LastClaim gives the number of the newest claim of the process: those that
// begin later have larger ones. 0 before the first.
func LastClaim() uint64 { return claimNumber.Load() }

// NextClaim begins a claim and gives its number, for subscribers of other
// packages whose messages carry positions. May be called concurrently.
func NextClaim() uint64 { return claimNumber.Add(1) }

type flightState uint8

const (
	flying   flightState = iota // handed out, neither Ack nor Nack yet
	nacked                      // waits for its back-off
	finished                    // acknowledged, or a record that is nobody's message
)

// flight is one record handed out.
type flight struct {
	rec    *kgo.Record
	seq    uint64
	size   int64
	state  flightState
	nacks  int
	due    time.Time // when nacked: when to send it again
	msg    *message.Message
	cancel context.CancelFunc
}

// run hands the messages of one claim to one view and follows them. All fields
// below the channels belong to its goroutine.
//
// There is no goroutine per message: the run waits for the oldest message in
// flight and looks at those behind it when that one is done. Handlers
// acknowledge in about the order of hand-out, so that is enough. A timer looks
// at all of them: often, from sweepMin to sweepMax, while the window is full
// and an acknowledgement out of order would make room; seldom otherwise, for
// what was refused.
type run struct {
	c      *claim
	v      *view
	number uint64
	known  int64           // records before it may have been handed out before
	ctx    context.Context // of the messages
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	local   []*kgo.Record // taken from the claim, not yet handed out
	flights []*flight     // handed out, oldest first; [0] is not finished
	watch   *flight       // the oldest one flying; nil: look for it
	out     int           // how many are flying
	resend  int           // how many are nacked
	next    *flight       // built and offered to the view, not yet taken
	seq     uint64

	timer   *time.Timer
	armed   time.Time // when the timer fires; zero: not armed
	sweepAt time.Time
	sweep   time.Duration
	cursor  int // where in flights the next sweep goes on
}

const (
	sweepMin  = 20 * time.Millisecond
	sweepMax  = 50 * time.Millisecond
	sweepIdle = 100 * time.Millisecond
	// sweepPart is how many messages that are still in work one sweep looks at.
	sweepPart = 64

	// spanWindows bounds how far the newest message handed out may be ahead of
	// the oldest one not acknowledged, in windows: what a crash would repeat.
	spanWindows = 16
)

// startRun attaches c to v. The caller holds g.mu, has seen v not stopping and
// c without a run.
func startRun(c *claim, v *view) {
	r := &run{c: c, v: v, number: NextClaim(), done: make(chan struct{}), timer: time.NewTimer(time.Hour), sweep: sweepMin}
	r.timer.Stop()
	r.ctx, r.cancel = context.WithCancel(v.ctx)
	c.mu.Lock()
	c.run, r.known = r, c.known
	c.mu.Unlock()
	v.senders.Add(1)
	v.runs.Add(1)
	go r.loop()
}

func (r *run) loop() {
	sending := true
	stopSending := func() {
		if sending {
			sending = false
			r.v.senders.Done()
		}
	}
	detach := context.AfterFunc(r.c.ctx, r.cancel)
	defer func() {
		detach()
		stopSending()
		r.timer.Stop()
		r.cancel()
		r.giveUp()
		close(r.done)
		r.v.runs.Done()
	}()
	for {
		if r.ctx.Err() != nil {
			return
		}
		r.reap()
		if !sending && r.out == 0 {
			return
		}
		var out chan<- *message.Message
		var offer *message.Message
		if sending {
			if f := r.choose(); f != nil {
				out, offer = r.v.out, f.msg
			}
		}
		r.c.maybeResume()
		var acks, nacks <-chan struct{}
		if w := r.watched(); w != nil {
			acks, nacks = w.msg.Acked(), w.msg.Nacked()
		}
		stopping := r.v.stopping
		if !sending {
			stopping = nil
		}
		select {
		case out <- offer:
			r.sent()
		case <-acks:
			r.finish(r.watch)
			r.sweep = sweepMin
		case <-nacks:
			r.refuse(r.watch)
			r.sweep = sweepMin
		case <-r.alarm(sending):
			r.armed = time.Time{}
			r.look()
		case <-r.c.wake:
		case <-stopping:
			stopSending()
		case <-r.ctx.Done():
			return
		}
	}
}

// choose gives the flight to offer: one that was nacked and is due, else the
// next record if the window has room.
func (r *run) choose() *flight {
	if r.next != nil && r.next.state == nacked {
		return r.next
	}
	if r.resend > 0 {
		now := time.Now()
		for _, f := range r.flights {
			if f.state == nacked && !now.Before(f.due) {
				if r.next != nil { // a new record waits; it keeps its place in local
					r.next.cancel()
				}
				r.build(f)
				r.next = f
				return f
			}
		}
	}
	if r.next != nil {
		if !r.room(r.next.size) {
			return nil
		}
		return r.next
	}
	for {
		if len(r.local) == 0 {
			if r.local = r.c.take(); len(r.local) == 0 {
				return nil
			}
		}
		rec := r.local[0]
		size := recordSize(rec)
		if rec.Attrs.IsControl() { // a transaction's marker: nobody's message, but an offset to get past
			r.takeLocal(size)
			r.flights = append(r.flights, &flight{rec: rec, state: finished})
			r.reap()
			continue
		}
		if !r.room(size) {
			return nil
		}
		r.next = &flight{rec: rec, seq: r.seq, size: size}
		r.build(r.next)
		return r.next
	}
}

func (r *run) takeLocal(size int64) {
	r.local[0] = nil
	r.local = r.local[1:]
	r.c.waiting.Add(-1)
	r.c.waitingBytes.Add(-size)
}

// room says whether the window takes one more record of that size. A record
// that is larger than the whole window passes when nothing else is in flight.
func (r *run) room(size int64) bool {
	n := r.out + r.resend
	if n == 0 {
		return true
	}
	return n < r.c.window &&
		r.c.flyingBytes.Load()+size <= r.c.g.gc.WindowBytes &&
		len(r.flights) < spanWindows*r.c.window
}

// build makes a fresh message for f, so that each hand-out has its own Ack and
// its own context.
func (r *run) build(f *flight) {
	ctx, cancel := context.WithCancel(r.ctx)
	f.cancel = cancel
	f.msg = toMessage(WithPosition(ctx, Position{
		Topic:     r.c.tp.topic,
		TopicID:   r.c.topicID,
		Partition: r.c.tp.partition,
		Offset:    f.rec.Offset,
		Time:      f.rec.Timestamp.UTC(),
		Claim:     r.number,
		Seq:       f.seq,
		Again:     f.nacks > 0 || f.rec.Offset < r.known,
	}), f.rec, r.c.topicID)
}

func (r *run) sent() {
	f := r.next
	r.next = nil
	r.out++
	if f.state == nacked {
		r.resend--
		r.watch = nil // it may be older than the one watched
		f.state = flying
		return
	}
	f.state = flying
	r.takeLocal(f.size)
	r.seq++
	r.flights = append(r.flights, f)
	r.c.flying.Add(1)
	r.c.flyingBytes.Add(f.size)
}

// watched gives the oldest message in flight.
func (r *run) watched() *flight {
	if r.watch == nil && r.out > 0 {
		for _, f := range r.flights {
			if f.state == flying {
				r.watch = f
				break
			}
		}
	}
	return r.watch
}

func (r *run) finish(f *flight) {
	f.state = finished
	f.cancel()
	f.msg = nil
	r.out--
	r.c.flying.Add(-1)
	r.c.flyingBytes.Add(-f.size)
	if f == r.watch {
		r.watch = nil
	}
}

func (r *run) refuse(f *flight) {
	f.cancel()
	gc := &r.c.g.gc
	f.due = time.Now().Add(min(gc.NackMin<<min(f.nacks, 20), gc.NackMax))
	f.nacks++
	f.state = nacked
	r.out--
	r.resend++
	if f == r.watch {
		r.watch = nil
	}
}

// settle looks whether f was acknowledged or refused, without waiting.
func (r *run) settle(f *flight) bool {
	select {
	case <-f.msg.Acked():
		r.finish(f)
	case <-f.msg.Nacked():
		r.refuse(f)
	default:
		return false
	}
	return true
}

// look goes over what is in flight when the sweep is due, a part at a time and
// on from where it stopped: what it costs does not grow with the window.
func (r *run) look() {
	if r.sweepAt.IsZero() || time.Now().Before(r.sweepAt) {
		return
	}
	r.sweepAt = time.Time{}
	if r.cursor >= len(r.flights) {
		r.cursor = 0
	}
	found, waiting := false, 0
	for ; r.cursor < len(r.flights) && waiting < sweepPart; r.cursor++ {
		f := r.flights[r.cursor]
		if f.state != flying {
			continue
		}
		if r.settle(f) {
			found = true
		} else {
			waiting++
		}
	}
	if found {
		r.sweep = sweepMin
	} else {
		r.sweep = min(r.sweep*2, sweepMax)
	}
}

// reap drops what is finished at the front, which is what may be committed.
func (r *run) reap() {
	n := 0
	for ; n < len(r.flights); n++ {
		f := r.flights[n]
		if f.state == flying && !r.settle(f) || f.state != finished {
			break
		}
	}
	if n == 0 {
		return
	}
	r.c.acknowledged(r.flights[n-1].rec)
	clear(r.flights[:n])
	r.flights = r.flights[n:]
	r.cursor = max(0, r.cursor-n)
}

// alarm gives the timer's channel, set to the next sweep or the next message
// to send again.
func (r *run) alarm(sending bool) <-chan time.Time {
	var at time.Time
	if r.out > 1 {
		if r.sweepAt.IsZero() {
			wait := sweepIdle
			if r.out+r.resend >= r.c.window {
				wait = r.sweep
			}
			r.sweepAt = time.Now().Add(wait)
		}
		at = r.sweepAt
	}
	if sending && r.resend > 0 && (r.next == nil || r.next.state != nacked) {
		for _, f := range r.flights {
			if f.state == nacked && (at.IsZero() || f.due.Before(at)) {
				at = f.due
			}
		}
	}
	if at.IsZero() {
		return nil
	}
	if r.armed.IsZero() || at.Before(r.armed) {
		r.timer.Reset(time.Until(at))
		r.armed = at
	}
	return r.timer.C
}

// giveUp counts the acknowledgements that came in time, ends the contexts and
// returns the rest to the claim: everything from the first record not
// acknowledged on, as after a restart.
func (r *run) giveUp() {
	if r.next != nil {
		r.next.cancel()
	}
	for _, f := range r.flights {
		if f.state == flying {
			r.settle(f)
		}
	}
	r.reap()
	if n := len(r.flights); n > 0 {
		r.c.handedOut(r.flights[n-1].rec)
	}
	rest := make([]*kgo.Record, 0, len(r.flights)+len(r.local))
	for _, f := range r.flights {
		if f.state == flying {
			f.cancel()
		}
		rest = append(rest, f.rec)
	}
	r.c.giveBack(append(rest, r.local...))
}
