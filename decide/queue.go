package decide

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
)

// errStopped is Submit's error after Run has returned.
var errStopped = errors.New("the stage has stopped")

// queueConfig bounds the batches.
type queueConfig struct {
	// MaxItems and MaxBytes bound a batch, by what Submit was told; a single
	// larger submission passes alone. 0 is no bound.
	MaxItems, MaxBytes int
	// Limit, if given, ends the context of the handler: what a shutdown lets
	// finish has no more time then. Without it only the handler bounds its time.
	Limit context.Context
}

// entry is one submission in a batch.
type entry[T any] struct {
	Value T

	items, bytes int
	done         chan error // capacity 1
	taken        bool       // guarded by the queue's mutex
	err          error
}

// Fail makes Submit return err for this entry.
func (e *entry[T]) Fail(err error) { e.err = err }

// queue lets handlers that each hold one frame share the batches of one worker.
// Submit hands a frame in and blocks; the worker handles all waiting frames, over all
// partitions, as one batch and answers each handler. Every partition has at most one
// frame waiting, so the queue keeps no order, and the subscribers bound its memory.
// newQueue makes it. Submit may be called from any goroutine, Run once.
type queue[T any] struct {
	cfg  queueConfig
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []*entry[T] // guarded by mu, the oldest first
	busy    bool        // guarded by mu; a batch is being handled
	stopped bool        // guarded by mu
}

// newQueue makes a queue.
func newQueue[T any](cfg queueConfig) *queue[T] {
	return &queue[T]{cfg: cfg, wake: make(chan struct{}, 1)}
}

// Submit hands in v, which counts as so many items and bytes, and blocks until
// its batch was handled: nil when the handler succeeded, its error otherwise. The
// end of ctx withdraws it while it waits; once a batch has it, Submit waits for
// that batch whatever happens, so that work that took effect is acknowledged.
func (q *queue[T]) Submit(ctx context.Context, v T, items, bytes int) error {
	e := &entry[T]{Value: v, items: items, bytes: bytes, done: make(chan error, 1)}
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return errStopped
	}
	q.waiting = append(q.waiting, e)
	q.mu.Unlock()
	wait.Offer(q.wake, struct{}{})
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
	}
	if q.withdraw(e) {
		return context.Cause(ctx)
	}
	return <-e.done
}

// withdraw takes a waiting entry out; false when a batch has it.
func (q *queue[T]) withdraw(e *entry[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.taken {
		return false
	}
	if i := slices.Index(q.waiting, e); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return true
}

// Idle reports whether nothing waits and no batch is being handled.
func (q *queue[T]) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) == 0 && !q.busy
}

// Run forms batches and calls handle with each until ctx is cancelled; then
// every entry that waits is answered with errStopped. The context of handle is
// not cancelled with ctx, only by queueConfig.Limit: handle bounds its own time.
// idle, when tick is positive, is called after that much time without a batch.
func (q *queue[T]) Run(ctx context.Context, handle func(ctx context.Context, batch []*entry[T]), tick time.Duration, idle func(ctx context.Context)) {
	defer q.stop()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if q.cfg.Limit != nil {
		defer context.AfterFunc(q.cfg.Limit, cancel)()
	}
	var idleTimer <-chan time.Time
	for {
		if tick > 0 && idleTimer == nil {
			idleTimer = time.After(tick)
		}
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		case <-idleTimer:
			idleTimer = nil
			idle(work)
			continue
		}
		for ctx.Err() == nil {
			batch := q.take()
			if len(batch) == 0 {
				break
			}
			handle(work, batch)
			q.finish(batch)
			idleTimer = nil
		}
	}
}

func (q *queue[T]) take() []*entry[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, items, bytes := 0, 0, 0
	for _, e := range q.waiting {
		items += e.items
		bytes += e.bytes
		if n > 0 && (q.cfg.MaxItems > 0 && items > q.cfg.MaxItems || q.cfg.MaxBytes > 0 && bytes > q.cfg.MaxBytes) {
			break
		}
		n++
		e.taken = true
	}
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.busy = n > 0
	return batch
}

func (q *queue[T]) finish(batch []*entry[T]) {
	q.mu.Lock()
	q.busy = false
	q.mu.Unlock()
	for _, e := range batch {
		e.done <- e.err
	}
}

func (q *queue[T]) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for _, e := range q.waiting {
		e.taken = true
		e.done <- errStopped
	}
	q.waiting = nil
}
