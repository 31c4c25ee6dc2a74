package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Service is a check service of the configuration.
type Service struct {
	Name    string // customer/name@check
	Number  int32  // see store.Configurations.Services
	Numbers canonicaltree.Numbers
}

// Options of a Checker. Zero fields but Store have defaults.
type Options struct {
	Store store.CheckRows
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// MaxBatch is the most requests of a transaction. Defaults to 1,000.
	MaxBatch int
	// MaxWaiting is the most requests that wait or are under way. Those of one
	// customer's services are at most a quarter of them, so that the others' are
	// answered; one call may exceed either when nothing else waits there. Defaults
	// to 20,000.
	MaxWaiting int
	// Timeout of a transaction. Defaults to 30 seconds.
	Timeout time.Duration
	// Metrics count. Defaults to unregistered ones.
	Metrics *Metrics
}

// Errors of a Checker, beside those of its store. Compare with errors.Is.
var (
	// ErrOverloaded: too many requests wait. Nothing was decided.
	ErrOverloaded = errors.New("checks: too many requests are queued")
	// ErrClosed: the Checker was closed before the request was decided.
	ErrClosed = errors.New("checks: closed")
	// ErrContended: others, in other processes, changed the row each time that
	// this request was about to be decided. Nothing was decided.
	ErrContended = errors.New("checks: the entity is being decided elsewhere all the time")
	// ErrEntity: no store can hold that entity id.
	ErrEntity = errors.New("checks: an entity id is 1 to 2,048 bytes of UTF-8 without NUL")
)

const (
	maxEntity = 2048
	// maxAttempts bounds how often a request loses its swap. Each time another
	// process won, so all together make progress.
	maxAttempts = 50
)

// Result is what became of one request of a call.
type Result[T any] struct {
	Value T
	// Err is ErrUnknownVersion, ErrEntity, ErrContended, ErrClosed, an error of the
	// store, or that of the context. After the latter two the request may or may
	// not have been decided, or may yet be.
	Err error
}

// Confirmation says that a version took effect at the receiver.
type Confirmation struct {
	Entity  string
	Version change.Version
}

// Failure returns a version that could not be sent.
type Failure struct {
	Entity  string
	Version change.Version
	Outcome Outcome
}

// Checker decides requests of any number of goroutines. Requests that wait at the same time share
// a transaction, taken from the customers in turn. One transaction is under way at a time: later
// requests join the next one, and few large transactions cost less than many small ones. Several
// Checkers, in any number of processes, may share a store.
type Checker struct {
	options Options
	ctx     context.Context // of transactions
	stop    context.CancelFunc
	wake    chan struct{} // has something when the queue may have
	end     chan struct{} // closed by Close
	ended   chan struct{} // closed by run

	mu      sync.Mutex
	queues  map[string][]*item // by customer; guarded by mu
	turns   []string           // the customers that have a queue; guarded by mu
	waiting int                // of the queues and under way; guarded by mu
	shares  map[string]int     // of it by customer; guarded by mu
	closed  bool               // guarded by mu
}

// New starts a Checker, which runs until Close.
func New(o Options) *Checker {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	o.MaxBatch = defaults.Positive(o.MaxBatch, 1000)
	o.MaxWaiting = defaults.Positive(o.MaxWaiting, 20_000)
	o.Timeout = defaults.Positive(o.Timeout, 30*time.Second)
	c := &Checker{options: o, queues: map[string][]*item{}, shares: map[string]int{}, wake: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	go c.run()
	return c
}

// Close lets transactions under way end, until ctx is over, and ends waiting requests
// with ErrClosed. It may be called twice.
func (c *Checker) Close(ctx context.Context) {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if !again {
		close(c.end)
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
	c.stop() // a store respects its context: this ends what is left
	<-c.ended
}

// Check decides requests, in their order where they are of one entity, and
// returns the answers in their order. It fails as a whole with ErrOverloaded and
// ErrClosed only. When ctx ends, undecided requests have its error.
func (c *Checker) Check(ctx context.Context, s Service, requests []Request) ([]Result[Answer], error) {
	return submit(ctx, c, s, requests, func(r Request) string { return r.Entity },
		func(row store.CheckRow, r Request) (store.CheckRow, Answer, error) {
			return Decide(s.Name, row, r, c.options.Now())
		}, func(a Answer) string {
			if a.Repeated {
				return "repeated"
			}
			return string(a.Decision)
		})
}

// Confirm records what took effect, like Check. The value is the highest version
// that is confirmed.
func (c *Checker) Confirm(ctx context.Context, s Service, done []Confirmation) ([]Result[change.Version], error) {
	return submit(ctx, c, s, done, func(d Confirmation) string { return d.Entity },
		func(row store.CheckRow, d Confirmation) (store.CheckRow, change.Version, error) {
			next, err := Confirm(row, d.Version)
			return next, next.DeliveredVersion, err
		}, func(change.Version) string { return "confirmed" })
}

// Release returns what could not be sent, like Check.
func (c *Checker) Release(ctx context.Context, s Service, failures []Failure) ([]Result[Released], error) {
	return submit(ctx, c, s, failures, func(f Failure) string { return f.Entity },
		func(row store.CheckRow, f Failure) (store.CheckRow, Released, error) {
			return Release(row, f.Version, f.Outcome)
		}, func(r Released) string {
			if r.Done {
				return "released"
			}
			return "kept"
		})
}

// submit queues requests and waits for them.
func submit[R, T any](ctx context.Context, c *Checker, s Service, requests []R, entity func(R) string,
	apply func(store.CheckRow, R) (store.CheckRow, T, error), word func(T) string) ([]Result[T], error) {
	results := make([]Result[T], len(requests))
	values := make([]T, len(requests)) // written by the worker, which may outlive this call
	items := make([]*item, 0, len(requests))
	places := make([]int, 0, len(requests))
	customer, _, _ := strings.Cut(s.Name, "/")
	for i, r := range requests {
		e := entity(r)
		if e == "" || len(e) > maxEntity || !utf8.ValidString(e) || strings.IndexByte(e, 0) >= 0 {
			results[i].Err = ErrEntity
			continue
		}
		items = append(items, &item{ctx: ctx, customer: customer, key: store.Key{Service: s.Number, Entity: e}, done: make(chan struct{}),
			apply: func(row store.CheckRow) (next store.CheckRow, err error) {
				next, values[i], err = apply(row, r)
				return next, err
			}})
		places = append(places, i)
	}
	if err := c.enqueue(customer, items); err != nil {
		c.options.Metrics.failed(s.Name, err, len(items))
		return nil, err
	}
	for n, it := range items {
		r := &results[places[n]]
		select {
		case <-it.done:
		case <-ctx.Done():
			select {
			case <-it.done:
			default:
				r.Err = fmt.Errorf("checks: %w", context.Cause(ctx))
				c.options.Metrics.failed(s.Name, r.Err, 1)
				continue
			}
		}
		if r.Err = it.err; r.Err != nil {
			c.options.Metrics.failed(s.Name, r.Err, 1)
			continue
		}
		r.Value = values[places[n]]
		c.options.Metrics.count(s.Name, word(r.Value))
	}
	return results, nil
}

// enqueue hands a customer's items over, all or none.
func (c *Checker) enqueue(customer string, items []*item) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	exceeds := func(waiting, most int) bool { return waiting > 0 && waiting+len(items) > most }
	switch {
	case c.closed:
		return ErrClosed
	case exceeds(c.waiting, c.options.MaxWaiting), exceeds(c.shares[customer], c.options.MaxWaiting/4):
		return ErrOverloaded
	}
	if len(items) == 0 {
		return nil
	}
	c.waiting += len(items)
	c.shares[customer] += len(items)
	if len(c.queues[customer]) == 0 {
		c.turns = append(c.turns, customer)
	}
	c.queues[customer] = append(c.queues[customer], items...)
	wait.Offer(c.wake, struct{}{})
	return nil
}
