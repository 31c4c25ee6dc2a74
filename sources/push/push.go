package push

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sources/internal/handout"
	"golang.org/x/sync/semaphore"
)

// Options of a Source.
type Options struct {
	Name string
	// WindowBytes bounds the unacknowledged events, even those whose caller has hung up: while
	// Weir is halted, clients repeat their requests. Each event counts 4 KiB beside its own
	// bytes, for its metadata. A larger one passes alone. Defaults to 64 MiB.
	WindowBytes int64
}

// eventOverhead is the cost of an event in flight beside its bytes.
const eventOverhead = 4 << 10

// Bounds of a frame. A larger event passes alone.
const (
	frameEvents = 1000
	frameBytes  = 4 << 20
)

// Source takes events from callers of its method Push: the API. It is a
// Watermill subscriber, whose acknowledgement of a frame is the answer to the
// callers of its events. All methods may be called concurrently.
//
// Events pushed while a frame is in work make the next frame. Frames have no TopicID: a client
// repeats events, and they have no offsets.
type Source struct {
	opt   Options
	ready chan struct{} // closed by Subscribe

	ctx      context.Context // of the source and of its messages
	stop     context.CancelCauseFunc
	inFlight atomic.Int64
	turn     chan struct{}       // capacity 1: held by the call that hands in its events
	room     *semaphore.Weighted // bytes of events in flight
	wake     chan struct{}       // capacity 1: a frame waits

	mu         sync.Mutex
	waiting    []*pushed // guarded by mu; events of the next frames
	subscribed bool      // guarded by mu
	closed     bool      // guarded by mu
	wg         sync.WaitGroup
}

// pushed is what becomes one frame.
type pushed struct {
	records []transport.Received
	bytes   int           // of the values
	room    int64         // of the window
	done    chan struct{} // closed when they are acknowledged
}

// Why an event is not known to be durable.
var (
	// ErrStopping: the process or the source ends; another one may take the event.
	ErrStopping = errors.New("the process is stopping")
	// ErrNoRoom: the events in flight fill the window, this one is not among them.
	ErrNoRoom = errors.New("too many events are in hand")
	// ErrNotDurable: the caller's time was over first. The event may still become durable.
	ErrNotDurable = errors.New("the event is not durable yet")
)

// New makes a source. Calls of Push wait until it is subscribed.
func New(opt Options) *Source {
	opt.WindowBytes = defaults.Positive(opt.WindowBytes, 64<<20)
	p := &Source{
		opt: opt, ready: make(chan struct{}), turn: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		room: semaphore.NewWeighted(opt.WindowBytes),
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Topic implements sources.Source.
func (p *Source) Topic() string { return "http:" + p.opt.Name }

// Drained implements sources.Source: no event is being worked on.
func (p *Source) Drained(context.Context) (bool, error) { return p.inFlight.Load() == 0, nil }

// Subscribe may be called once. The end of ctx ends the source.
func (p *Source) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.subscribed:
		return nil, errors.New("push source: subscribed already")
	case p.closed:
		return nil, ErrStopping
	}
	p.subscribed = true
	context.AfterFunc(ctx, func() { p.stop(ErrStopping) })
	out := make(chan *message.Message)
	p.wg.Go(func() { p.dispatch(out) })
	close(p.ready)
	return out, nil
}

// Close ends the subscription; calls of Push get ErrStopping from then on.
func (p *Source) Close() error {
	p.stop(ErrStopping)
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wg.Wait()
	return nil
}

// dispatch hands out waiting events, one frame after the other.
func (p *Source) dispatch(out chan<- *message.Message) {
	defer close(out)
	assignment := transport.NextAssignment()
	for {
		b := p.next()
		if b == nil {
			select {
			case <-p.wake:
				continue
			case <-p.ctx.Done():
				return
			}
		}
		if !handout.Frame(p.ctx, out, transport.NewFrame("push:"+p.opt.Name, "", 0, assignment, b.records), 0) {
			return
		}
		close(b.done)
		p.room.Release(b.room)
		p.inFlight.Add(-int64(len(b.records)))
	}
}

// next returns the oldest events that wait, or nil when none does.
func (p *Source) next() *pushed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil
	}
	b := p.waiting[0]
	p.waiting = p.waiting[1:]
	return b
}

// Push hands events on in their order, one call's without others between them,
// and waits until each is acknowledged or ctx ends. The results are in the order
// of events: nil says that the event is durable in the inbox, or known to the
// gate, or a dead letter. After an event that got ErrNoRoom or ErrStopping none
// is handed on.
//
// Value, metadata and the values of the message's context are handed on. Its cancellation and
// that of ctx are not: an event that was handed on continues when its caller has gone, since
// others may be in its frame. An event without a UUID gets one, which stays the same when the
// event is redelivered.
func (p *Source) Push(ctx context.Context, events ...*message.Message) []error {
	results := make([]error, len(events))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(ErrStopping) })()
	var refused error
	select {
	case <-p.ready: // also after a caller's timeout: the result is the same each time
	default:
		select {
		case <-p.ready:
		case <-ctx.Done():
			refused = ended(ctx)
		}
	}
	var waits []<-chan struct{}
	if refused == nil {
		waits, refused = p.handIn(ctx, events)
	}
	for i := range events {
		if i >= len(waits) {
			results[i] = refused
			continue
		}
		select {
		case <-waits[i]:
			continue
		default:
		}
		select {
		case <-waits[i]:
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

// handIn queues events and returns for each of them a channel that is closed when it is
// acknowledged. It waits for room in the window until ctx ends. The error is why there are fewer
// channels than events.
func (p *Source) handIn(ctx context.Context, events []*message.Message) (waits []<-chan struct{}, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, noRoom(ctx)
	}
	for len(events) > 0 {
		// Queue at once the events that have room. The rest may have to wait for their
		// acknowledgement.
		if p.room.Acquire(ctx, p.size(events[0])) != nil {
			return waits, noRoom(ctx)
		}
		n := 1
		for n < len(events) && p.room.TryAcquire(p.size(events[n])) {
			n++
		}
		if waits, err = p.queue(waits, events[:n]); err != nil {
			return waits, err
		}
		events = events[n:]
	}
	return waits, nil
}

func noRoom(ctx context.Context) error {
	if err := ended(ctx); errors.Is(err, ErrStopping) {
		return err
	}
	return ErrNoRoom
}

// size is an event's share of the window, in bytes.
func (p *Source) size(event *message.Message) int64 {
	return min(int64(len(event.Payload))+eventOverhead, p.opt.WindowBytes)
}

// queue adds events that have their room to the waiting frames, and a channel for
// each of them to waits.
func (p *Source) queue(waits []<-chan struct{}, events []*message.Message) ([]<-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return waits, ErrStopping // its budget has no owner now
	}
	p.inFlight.Add(int64(len(events)))
	for _, e := range events {
		var b *pushed
		if n := len(p.waiting); n > 0 {
			b = p.waiting[n-1]
		}
		if b == nil || len(b.records) == frameEvents || b.bytes+len(e.Payload) > frameBytes {
			b = &pushed{done: make(chan struct{})}
			p.waiting = append(p.waiting, b)
		}
		b.records = append(b.records, received(e))
		b.bytes += len(e.Payload)
		b.room += p.size(e)
		waits = append(waits, b.done)
	}
	wait.Offer(p.wake, struct{}{})
	return waits, nil
}

func received(event *message.Message) transport.Received {
	r := transport.ReceivedOf(event)
	if event.UUID == "" {
		r.Headers = append(r.Headers, transport.Header{Key: transport.UUIDHeader, Value: []byte(watermill.NewUUID())})
	}
	r.Time = time.Now().UTC()
	r.Context = context.WithoutCancel(event.Context())
	return r
}
