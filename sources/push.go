package sources

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/pause"
	"github.com/seed-86dfc502/weir/transport"
	"golang.org/x/sync/semaphore"
)

// PushOptions of a Push source.
type PushOptions struct {
	Name string
	// WindowBytes bounds the events that are handed out and not acknowledged,
	// also those that nobody waits for any more: while Weir is halted, clients send
	// again and again. Each event counts 4 KiB beside its own bytes, for what
	// goes with it; a larger one passes alone. Defaults to 64 MiB.
	WindowBytes int64
}

// eventOverhead is what an event in flight costs beside its bytes.
const eventOverhead = 4 << 10

// Push takes events from callers of its method Push: the HTTP door. It is a
// Watermill subscriber, whose acknowledgement of an event is the answer to the
// caller. All methods may be called concurrently.
type Push struct {
	opt   PushOptions
	ready chan struct{} // closed by Subscribe

	ctx        context.Context // of the source and of its messages
	stop       context.CancelCauseFunc
	subscribed atomic.Bool
	inFlight   atomic.Int64
	out        chan *message.Message
	room       *semaphore.Weighted // bytes of events in flight

	mu  sync.Mutex // orders hand-out: numbers follow the channel
	seq uint64     // guarded by mu

	// life keeps wg from growing once Close waits for it.
	life   sync.Mutex
	closed bool // guarded by life
	wg     sync.WaitGroup
}

// Why an event is not known to be durable.
var (
	// ErrStopping: the process or the source ends; another one may take the event.
	ErrStopping = errors.New("the process is stopping")
	// ErrNoRoom: the events in flight fill the window, this one is not among them.
	ErrNoRoom = errors.New("too many events are in hand")
	// ErrNotDurable: the caller's time was over first; the event may still become
	// durable.
	ErrNotDurable = errors.New("the event is not durable yet")
)

// NewPush makes a source. Calls of Push wait until it is subscribed.
func NewPush(opt PushOptions) *Push {
	if opt.WindowBytes <= 0 {
		opt.WindowBytes = 64 << 20
	}
	p := &Push{
		opt: opt, ready: make(chan struct{}), out: make(chan *message.Message),
		room: semaphore.NewWeighted(opt.WindowBytes),
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Drained tells whether no event is being worked on.
func (p *Push) Drained() bool { return p.inFlight.Load() == 0 }

// Subscribe may be called once; the end of ctx ends the source.
func (p *Push) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if p.subscribed.Swap(true) {
		return nil, errors.New("push source: subscribed already")
	}
	context.AfterFunc(ctx, func() { p.stop(ErrStopping) })
	out := make(chan *message.Message)
	ok := p.start(func() {
		defer close(out)
		for {
			select {
			case m := <-p.out:
				select {
				case out <- m:
				case <-p.ctx.Done():
					return
				}
			case <-p.ctx.Done():
				return
			}
		}
	})
	if !ok {
		return nil, ErrStopping
	}
	close(p.ready)
	return out, nil
}

// start runs f unless the source is closed.
func (p *Push) start(f func()) bool {
	p.life.Lock()
	defer p.life.Unlock()
	if p.closed {
		return false
	}
	p.wg.Go(f)
	return true
}

// Close ends the subscription; calls of Push get ErrStopping from then on.
func (p *Push) Close() error {
	p.stop(ErrStopping)
	p.life.Lock()
	p.closed = true
	p.life.Unlock()
	p.wg.Wait()
	return nil
}

// Push hands events on in their order, one call's without a gap in the numbers
// but maybe among those of others, and waits until each is acknowledged or ctx
// ends. The results are in the order of events: nil says that the event is
// durable in the inbox, or known to the gate, or a dead letter. After an event
// that got ErrNoRoom or ErrStopping none is handed on.
//
// Value, metadata and the values of the message's context are handed on; its
// cancellation and that of ctx are not: an event that was handed on goes on when
// its caller has gone, since what stands behind it waits for it.
func (p *Push) Push(ctx context.Context, events ...*message.Message) []error {
	results := make([]error, len(events))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(ErrStopping) })()
	var refused error
	select {
	case <-p.ready: // also for a caller whose time is over: what it gets is the same each time
	default:
		select {
		case <-p.ready:
		case <-ctx.Done():
			refused = ended(ctx)
		}
	}
	waits := make([]<-chan struct{}, len(events))
	for i, e := range events {
		if refused == nil {
			waits[i], refused = p.hand(ctx, e)
		}
		results[i] = refused
	}
	for i, done := range waits {
		if done == nil {
			break
		}
		select {
		case <-done:
			continue
		default:
		}
		select {
		case <-done:
		case <-ctx.Done():
			results[i] = ended(ctx)
		}
	}
	return results
}

// ended is why a wait ended.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrStopping) {
		return ErrStopping
	}
	return ErrNotDurable
}

// hand gives one event to the subscriber and returns a channel that is closed
// when it is acknowledged. It waits for room in the window until ctx ends.
func (p *Push) hand(ctx context.Context, event *message.Message) (_ <-chan struct{}, err error) {
	room := min(int64(len(event.Payload))+eventOverhead, p.opt.WindowBytes)
	if p.room.Acquire(ctx, room) != nil {
		if err := ended(ctx); errors.Is(err, ErrStopping) {
			return nil, err
		}
		return nil, ErrNoRoom
	}
	defer func() {
		if err != nil {
			p.room.Release(room)
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, ErrStopping
	}
	pos := transport.Position{Topic: "push:" + p.opt.Name, Time: time.Now().UTC(), Claim: 1, Seq: p.seq}
	m := p.message(event, pos)
	select {
	case p.out <- m:
		p.seq++
	case <-p.ctx.Done():
		return nil, ErrStopping
	}
	done := make(chan struct{})
	p.inFlight.Add(1)
	started := p.start(func() {
		defer p.room.Release(room)
		defer p.inFlight.Add(-1)
		for {
			select {
			case <-m.Acked():
				close(done)
				return
			case <-m.Nacked():
				if !pause.For(p.ctx, 100*time.Millisecond) {
					return
				}
				m = p.message(event, pos)
				select {
				case p.out <- m:
				case <-p.ctx.Done():
					return
				}
			case <-p.ctx.Done():
				return
			}
		}
	})
	if !started {
		p.inFlight.Add(-1)
		return nil, ErrStopping
	}
	return done, nil
}

// message gives a message of the event's for one attempt.
func (p *Push) message(event *message.Message, pos transport.Position) *message.Message {
	m := message.NewMessage(watermill.NewUUID(), event.Payload)
	for name, value := range event.Metadata {
		m.Metadata.Set(name, value)
	}
	m.SetContext(transport.WithPosition(withValues{p.ctx, event.Context()}, pos))
	return m
}

// withValues ends as its Context does and has the values of another.
type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
