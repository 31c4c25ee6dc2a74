// Package handout hands out the frames of sources that have one in work at a time.
package handout

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// backOff is how long a refused frame waits before it is redelivered.
const backOff = 100 * time.Millisecond

// Frame hands out f until it is acknowledged, and reports whether it was. Its messages end with
// ctx. A frame that is in work then has grace to be acknowledged, because its effect may be
// durable already. It is not handed out again.
func Frame(ctx context.Context, out chan<- *message.Message, f *transport.Frame, grace time.Duration) bool {
	_, acked := (*Lane)(nil).Frame(ctx, out, f, grace)
	return acked
}

// Lane hands out frames whose records may be set aside (transport.Frame.SetAside). When a frame is
// refused while records are set aside, the lane breaks: a frame that is handed out again would
// precede the refused records. A nil Lane sets nothing aside. Frame is for one goroutine at a time,
// the other methods may be called concurrently.
type Lane struct {
	ctx    context.Context
	breaks func()

	mu      sync.Mutex
	aside   int  // frames; guarded by mu
	broken  bool // guarded by mu
	waiting sync.WaitGroup
}

// NewLane returns a lane whose messages end with ctx. It calls breaks when it breaks, perhaps several
// times.
func NewLane(ctx context.Context, breaks func()) *Lane { return &Lane{ctx: ctx, breaks: breaks} }

// Frame hands out f as [Frame] does. With left it returns before some records of f are acknowledged: left is
// closed when they are, also after the end of ctx, and never if the lane breaks.
func (l *Lane) Frame(ctx context.Context, out chan<- *message.Message, f *transport.Frame, grace time.Duration) (left <-chan struct{}, ok bool) {
	for {
		left, answer := l.offer(ctx, out, f, grace)
		if answer != refused {
			return left, answer == acked
		}
		if l.refuses() || !wait.Sleep(ctx, backOff) {
			return nil, false
		}
		f = f.Redelivered()
	}
}

// answer is that to a message.
type answer int

const (
	acked answer = iota // or set aside
	refused
	ended // there was none before the end of the source
)

// offer hands out f once.
func (l *Lane) offer(ctx context.Context, out chan<- *message.Message, f *transport.Frame, grace time.Duration) (left <-chan struct{}, _ answer) {
	of, aside, detach, end := ctx, (<-chan []int)(nil), func() bool { return true }, func() {}
	if l != nil {
		of, end = context.WithCancel(l.ctx)
		detach = context.AfterFunc(ctx, end)
		f, aside = f.Settable()
	}
	defer func() {
		if left == nil {
			detach()
			end()
		}
	}()
	m := transport.NewMessage(of, f)
	select {
	case out <- m:
	case <-ctx.Done():
		return nil, ended
	}
	select {
	case <-m.Acked():
		return nil, acked
	case <-m.Nacked():
		return nil, refused
	case <-aside:
		detach()
		return l.await(m, grace, end), acked
	case <-ctx.Done():
		if late(m, grace) {
			return nil, acked
		}
		return nil, ended
	}
}

// Aside reports whether records are set aside.
func (l *Lane) Aside() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aside > 0 || l.broken
}

// Wait returns when no records are set aside any more: at the latest some grace after the end of
// their frames' contexts.
func (l *Lane) Wait() { l.waiting.Wait() }

// refuses breaks the lane if records are set aside.
func (l *Lane) refuses() bool {
	if l == nil || !l.Aside() {
		return false
	}
	l.breaks()
	return true
}

// await waits for the acknowledgement of records that were set aside.
func (l *Lane) await(m *message.Message, grace time.Duration, end func()) <-chan struct{} {
	left := make(chan struct{})
	l.mu.Lock()
	l.aside++
	l.mu.Unlock()
	l.waiting.Go(func() {
		defer end()
		acked := false
		select {
		case <-m.Acked():
			acked = true
		case <-m.Nacked():
		case <-l.ctx.Done():
			acked = late(m, grace)
		}
		l.mu.Lock()
		l.aside--
		l.broken = l.broken || !acked
		l.mu.Unlock()
		if acked {
			close(left)
		} else {
			l.breaks()
		}
	})
	return left
}

// late waits for an answer after the end of the source.
func late(m *message.Message, grace time.Duration) bool {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-m.Acked():
	case <-m.Nacked():
	case <-timer.C:
	}
	select {
	case <-m.Acked(): // also when both came
		return true
	default:
		return false
	}
}
