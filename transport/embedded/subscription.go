package embedded

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// subscription is one Subscribe: a goroutine per partition hands out its frames.
type subscription struct {
	g    *Group
	ctx  context.Context // of the messages; ended by run
	halt context.CancelFunc
	out  chan *message.Message

	stopOnce sync.Once
	stopping chan struct{} // closed: nothing more is handed out
	done     chan struct{} // closed: no message of it is followed any more

	senders sync.WaitGroup // partitions that may still send on out
	parts   sync.WaitGroup // partitions that still follow a message
}

func newSubscription(ctx context.Context, g *Group) *subscription {
	s := &subscription{g: g, out: make(chan *message.Message), stopping: make(chan struct{}), done: make(chan struct{})}
	// The end of Subscribe's ctx stops the hand-out; what is in flight then has a
	// grace, so its contexts must not end with ctx.
	s.ctx, s.halt = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

func (s *subscription) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

func (s *subscription) stopped() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// run begins where the listener says, and ends in order: no more hand-out, channel
// closed, grace for what is in flight, contexts cancelled, partitions given back.
func (s *subscription) run(ctx context.Context) {
	defer close(s.done)
	defer context.AfterFunc(ctx, s.stop)()
	starting, cancel := context.WithCancelCause(s.ctx)
	unhook := make(chan struct{})
	go func() {
		select {
		case <-s.stopping:
			cancel(errStopping)
		case <-unhook:
		}
	}()
	at, ends, err := s.g.start(starting)
	close(unhook)
	if err != nil && !s.stopped() {
		s.g.fail(err)
	}
	var all []int32
	for i := range at {
		all = append(all, int32(i))
		p := &partition{s: s, number: int32(i), at: at[i], known: ends[i], assignment: transport.NextAssignment()}
		s.senders.Add(1)
		s.parts.Go(p.run)
	}
	<-s.stopping
	cancel(nil)
	s.senders.Wait()
	close(s.out)
	drained := make(chan struct{})
	go func() { s.parts.Wait(); close(drained) }()
	timer := time.NewTimer(s.g.gc.CloseTimeout)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-s.g.failed:
	case <-s.g.gc.Limit.Done():
	}
	s.halt()
	<-drained
	if err == nil {
		s.g.revoked(all)
	}
	s.g.mu.Lock()
	s.g.sub = nil
	s.g.mu.Unlock()
}

// partition hands out the frames of one partition, one at a time. Its fields belong
// to its goroutine.
type partition struct {
	s          *subscription
	number     int32
	assignment uint64
	at         int64                // the first offset that is not handed out
	known      int64                // records before it may have been handed out before
	waiting    []transport.Received // read and not handed out, from at on
}

func (p *partition) run() {
	sending := true
	stopSending := func() {
		if sending {
			sending = false
			p.s.senders.Done()
		}
	}
	defer stopSending()
	for sending {
		f, ok := p.next()
		if !ok {
			return
		}
		for nacks := 0; ; nacks++ {
			ctx, cancel := context.WithCancel(p.s.ctx)
			m := transport.NewMessage(ctx, f)
			select {
			case p.s.out <- m:
			case <-p.s.stopping:
				cancel()
				return
			}
			acked := p.answer(m, stopSending)
			cancel()
			if acked {
				p.s.g.acknowledged(p.number, f.Last()+1)
				crash.At(crash.Acknowledged, p.s.g.gc.ID)
				break
			}
			if !sending || !p.backOff(nacks) {
				return
			}
			f = redelivered(f)
		}
	}
}

// answer waits for the handler's answer and reports whether it acknowledged. A
// subscription that stops meanwhile hands out nothing more. An acknowledgement that
// came before the end counts, also when both are seen at once.
func (p *partition) answer(m *message.Message, stopSending func()) bool {
	stopping := p.s.stopping
	for {
		select {
		case <-m.Acked():
			return true
		case <-m.Nacked():
			return false
		case <-stopping:
			stopSending()
			stopping = nil
		case <-p.s.ctx.Done():
			select {
			case <-m.Acked():
				return true
			default:
				return false
			}
		}
	}
}

// backOff waits before a frame that was refused comes again, and reports false when
// there is no more need to.
func (p *partition) backOff(nacks int) bool {
	gc := &p.s.g.gc
	timer := time.NewTimer(min(gc.NackMin<<min(nacks, 20), gc.NackMax))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.s.stopping:
		return false
	}
}

// redelivered returns a frame once more: the one that was handed out is not changed.
func redelivered(f *transport.Frame) *transport.Frame {
	again := *f
	again.Records = make([]transport.Received, len(f.Records))
	for i := range f.Records {
		again.Records[i] = f.Records[i]
		again.Records[i].Redelivered = true
	}
	return &again
}

// next returns the next frame; false when nothing more is to be handed out.
func (p *partition) next() (*transport.Frame, bool) {
	g := p.s.g
	for len(p.waiting) == 0 {
		end, grows := g.log.End(p.number)
		if p.at < end {
			if !p.fetch() {
				return nil, false
			}
			continue
		}
		select {
		case <-grows:
		case <-p.s.stopping:
			return nil, false
		}
	}
	n, size := 0, int64(0)
	for n < len(p.waiting) && n < g.gc.FrameRecords {
		r := &p.waiting[n]
		if size += int64(r.Size()); n > 0 && size > g.gc.FrameBytes {
			break
		}
		r.Redelivered = r.Offset < p.known
		n++
	}
	f := transport.NewFrame(g.topic, g.log.ID(), p.number, p.assignment, p.waiting[:n:n])
	p.at = f.Last() + 1
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting = nil
	}
	return f, true
}

// minFetch keeps reads worth their while among very many partitions.
const minFetch = 32 << 10

// fetch reads what stands behind at. It repeats what failed; false when the
// subscription ends, because of that or by itself.
func (p *partition) fetch() bool {
	g := p.s.g
	share := min(g.gc.FrameBytes, max(minFetch, g.gc.BufferBytes/8/int64(g.log.Partitions())))
	for pause := 50 * time.Millisecond; !p.s.stopped(); pause = min(2*pause, 2*time.Second) {
		records, err := read(p.s.ctx, g.log, p.number, p.at, int(share))
		if err == nil {
			if len(records) > 0 && records[0].Offset > p.at {
				g.lost(p.number, p.at, records[0].Offset)
			}
			p.waiting = records
			crash.At(crash.Fetched, g.gc.ID)
			return true
		}
		if store.ClassOf(err) == store.Fatal {
			g.fail(err)
			return false
		}
		g.logs.log.Warn("cannot read the log; trying again", "topic", g.topic, "partition", p.number, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.s.stopping:
		}
		timer.Stop()
	}
	return false
}
