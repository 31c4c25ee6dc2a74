package sequencer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/transport"
)

// ErrClaimEnded is what Submit returns for a message whose claim is over: its
// partition went away, or was assigned again as a newer claim.
var ErrClaimEnded = errors.New("the message's claim has ended")

// ErrStopped is what Submit returns when Run has returned.
var ErrStopped = errors.New("the sequencer has stopped")

// Config bounds the batches.
type Config struct {
	// MaxItems is the most items in one batch over all claims, at least 1.
	MaxItems int
	// MaxBytes is the most bytes in one batch, by the sizes given to Submit; a
	// single larger item passes alone. 0 is no bound.
	MaxBytes int
	// Linger is how long a batch that is not full waits for more; 0 takes what is there.
	Linger time.Duration
	// Enough items end the lingering early. 0 is MaxItems.
	Enough int
	// Limit, if given, ends the context of the handler: what a stop lets finish
	// has no more time then. Without it only the handler bounds its time.
	Limit context.Context
}

// Partition names a partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// Item is one message in a batch.
type Item[T any] struct {
	Position transport.Position
	Value    T
}

// Run is the next messages of one claim, in log order. The handler owns it
// during the call.
type Run[T any] struct {
	Partition Partition
	Claim     uint64
	Items     []Item[T]
	err       error
}

// Fail makes Submit return err for all messages of the run; they are expected
// to be handed in again with the same numbers.
func (r *Run[T]) Fail(err error) { r.err = err }

type entry[T any] struct {
	item Item[T]
	size int
	done chan error // buffered, gets exactly one result once taken
	// taken is guarded by the sequencer's mutex: part of a running batch.
	taken bool
}

// claim holds what was handed in for one claim. queue[i] is the message with
// number next+i, nil when it has not arrived yet.
type claim[T any] struct {
	id    uint64
	next  uint64
	queue []*entry[T]
	ready int // length of the gapless front of queue
}

func (c *claim[T]) recount() {
	for c.ready < len(c.queue) && c.queue[c.ready] != nil {
		c.ready++
	}
}

// Sequencer is made by New. Submit may be called from any number of
// goroutines, Run once.
type Sequencer[T any] struct {
	cfg  Config
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	claims  map[Partition]*claim[T]
	order   []Partition // round robin over claims
	turn    int
	waiting int // entries that are ready over all claims
	stopped bool
	busy    bool // a handler call is running
}

// New makes a sequencer.
func New[T any](cfg Config) *Sequencer[T] {
	cfg.MaxItems = max(cfg.MaxItems, 1)
	if cfg.Enough <= 0 {
		cfg.Enough = cfg.MaxItems
	}
	return &Sequencer[T]{cfg: cfg, wake: make(chan struct{}, 1), claims: map[Partition]*claim[T]{}}
}

// Submit hands in one message and blocks until its batch was handled: nil when
// the handler succeeded, its error otherwise. While the message waits for its
// turn, the end of ctx gives it up; once it is part of a running batch Submit
// waits for that batch whatever happens, so that work that took effect is
// acknowledged. size is in bytes.
func (s *Sequencer[T]) Submit(ctx context.Context, p transport.Position, value T, size int) error {
	e := &entry[T]{item: Item[T]{Position: p, Value: value}, size: size, done: make(chan error, 1)}
	if err := s.add(p, e); err != nil {
		return err
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
	}
	if s.withdraw(p, e) {
		return context.Cause(ctx)
	}
	return <-e.done
}

func (s *Sequencer[T]) add(p transport.Position, e *entry[T]) error {
	part := Partition{Topic: p.Topic, Number: p.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	c := s.claims[part]
	switch {
	case c == nil:
		c = &claim[T]{id: p.Claim}
		s.claims[part] = c
		s.order = append(s.order, part)
	case p.Claim < c.id:
		return ErrClaimEnded
	case p.Claim > c.id:
		s.end(c)
		*c = claim[T]{id: p.Claim}
	}
	if p.Seq < c.next {
		// Already handled in this claim: a repetition that needs nothing more.
		e.done <- nil
		return nil
	}
	at := int(p.Seq - c.next)
	for len(c.queue) <= at {
		c.queue = append(c.queue, nil)
	}
	if old := c.queue[at]; old != nil {
		old.done <- ErrClaimEnded
	}
	c.queue[at] = e
	before := c.ready
	c.recount()
	if s.waiting += c.ready - before; c.ready > before {
		s.signal()
	}
	return nil
}

// end gives up every message that a claim still holds. Locked by the caller.
func (s *Sequencer[T]) end(c *claim[T]) {
	s.waiting -= c.ready
	for _, e := range c.queue {
		if e != nil {
			e.done <- ErrClaimEnded
		}
	}
}

// withdraw takes a waiting message out; false when it is in a running batch
// or was answered already.
func (s *Sequencer[T]) withdraw(p transport.Position, e *entry[T]) bool {
	part := Partition{Topic: p.Topic, Number: p.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.taken {
		return false
	}
	c := s.claims[part]
	if c == nil || c.id != p.Claim || p.Seq < c.next || int(p.Seq-c.next) >= len(c.queue) || c.queue[p.Seq-c.next] != e {
		return false
	}
	at := int(p.Seq - c.next)
	c.queue[at] = nil
	if at < c.ready {
		s.waiting -= c.ready - at
		c.ready = at
	}
	return true
}

func (s *Sequencer[T]) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Idle tells whether nothing waits and no handler call runs.
func (s *Sequencer[T]) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting == 0 && !s.busy
}

// Run forms batches and calls handle with each until ctx is cancelled; then
// every message that waits is given up with ErrStopped and Run returns nil.
// handle is given a context that the end of ctx does not cancel, only that of
// Config.Limit does: it bounds its own time. tick, when positive, calls idle after that much time without a batch.
func (s *Sequencer[T]) Run(ctx context.Context, handle func(ctx context.Context, runs []*Run[T]), tick time.Duration, idle func(ctx context.Context)) error {
	defer s.stop()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if s.cfg.Limit != nil {
		defer context.AfterFunc(s.cfg.Limit, cancel)()
	}
	var idleTimer <-chan time.Time
	for {
		if tick > 0 && idleTimer == nil {
			idleTimer = time.After(tick)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-idleTimer:
			idleTimer = nil
			idle(work)
			continue
		}
		for ctx.Err() == nil {
			s.linger(ctx)
			runs, taken := s.take()
			if len(runs) == 0 {
				break
			}
			handle(work, runs)
			s.finish(runs, taken)
			idleTimer = nil
		}
	}
}

// linger waits until a batch is worth while.
func (s *Sequencer[T]) linger(ctx context.Context) {
	if s.cfg.Linger <= 0 || s.Idle() {
		return
	}
	timer := time.NewTimer(s.cfg.Linger)
	defer timer.Stop()
	for {
		s.mu.Lock()
		enough := s.waiting >= s.cfg.Enough
		s.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-s.wake:
		}
	}
}

// take forms a batch. Every claim with something ready gets an equal share
// first, so that a hot partition cannot keep the others out.
func (s *Sequencer[T]) take() ([]*Run[T], [][]*entry[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 {
		return nil, nil
	}
	var ready []*claim[T]
	var parts []Partition
	for i := range s.order {
		part := s.order[(s.turn+i)%len(s.order)]
		if c := s.claims[part]; c.ready > 0 {
			ready, parts = append(ready, c), append(parts, part)
		}
	}
	s.turn = (s.turn + 1) % len(s.order)
	items, bytes := s.cfg.MaxItems, s.cfg.MaxBytes
	count := make([]int, len(ready))
	share := max(1, items/len(ready))
	full := false
	for range 2 { // first the shares, then whoever has more
		for i, c := range ready {
			for n := 0; n < share && count[i] < c.ready && items > 0 && !full; n++ {
				size := c.queue[count[i]].size
				if s.cfg.MaxBytes > 0 && size > bytes && items < s.cfg.MaxItems {
					full = true
					break
				}
				bytes -= size
				items--
				count[i]++
			}
		}
		share = s.cfg.MaxItems
	}
	var runs []*Run[T]
	var taken [][]*entry[T]
	for i, c := range ready {
		n := count[i]
		if n == 0 {
			continue
		}
		run := &Run[T]{Partition: parts[i], Claim: c.id, Items: make([]Item[T], n)}
		entries := make([]*entry[T], n)
		for j, e := range c.queue[:n] {
			e.taken = true
			run.Items[j], entries[j] = e.item, e
		}
		c.queue = append([]*entry[T](nil), c.queue[n:]...)
		c.next += uint64(n)
		c.ready -= n
		s.waiting -= n
		runs, taken = append(runs, run), append(taken, entries)
	}
	s.busy = true
	return runs, taken
}

// finish answers the messages of a batch. A failed run's messages come again
// with the same numbers, so its claim goes back to where the run began.
func (s *Sequencer[T]) finish(runs []*Run[T], taken [][]*entry[T]) {
	s.mu.Lock()
	for i, run := range runs {
		c := s.claims[run.Partition]
		if run.err == nil || c == nil || c.id != run.Claim {
			continue
		}
		n := len(taken[i])
		s.waiting -= c.ready
		c.queue = append(make([]*entry[T], n), c.queue...)
		c.next -= uint64(n)
		c.ready = 0
	}
	s.busy = false
	s.mu.Unlock()
	for i, run := range runs {
		for _, e := range taken[i] {
			e.done <- run.err
		}
	}
}

func (s *Sequencer[T]) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, c := range s.claims {
		for _, e := range c.queue {
			if e != nil {
				e.done <- ErrStopped
			}
		}
		c.queue, c.ready = nil, 0
	}
	s.waiting = 0
}
