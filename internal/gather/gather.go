// Package gather lets handlers that each hold one frame share the batches of
// one worker.
//
// A Watermill handler holds one frame of one partition until its effect is
// durable. [Queue.Submit] hands the frame in and blocks; the worker takes what
// waits, over all partitions, handles it as one batch and answers every handler
// of it. There is one frame per partition at most, so nothing needs an order and
// nothing is buffered: the subscribers bound the memory.
package gather

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
)

// ErrStopped is what Submit returns when Run has returned.
var ErrStopped = errors.New("the stage has stopped")

// Config bounds the batches.
type Config struct {
	// MaxItems and MaxBytes bound a batch, by what Submit was told; a single
	// larger submission passes alone. 0 is no bound.
	MaxItems, MaxBytes int
	// Limit, if given, ends the context of the handler: what a shutdown lets
	// finish has no more time then. Without it only the handler bounds its time.
	Limit context.Context
}

// Entry is one submission in a batch.
type Entry[T any] struct {
	Value T

	items, bytes int
	done         chan error // capacity 1
	taken        bool       // guarded by the queue's mutex
	err          error
}

// Fail makes Submit return err for this entry.
func (e *Entry[T]) Fail(err error) { e.err = err }

// Queue is made by New. Submit may be called from any goroutine, Run once.
type Queue[T any] struct {
	cfg  Config
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []*Entry[T] // guarded by mu, the oldest first
	busy    bool        // guarded by mu; a batch is being handled
	stopped bool        // guarded by mu
}

// New makes a queue.
func New[T any](cfg Config) *Queue[T] {
	return &Queue[T]{cfg: cfg, wake: make(chan struct{}, 1)}
}

// Submit hands in v, which counts as so many items and bytes, and blocks until
// its batch was handled: nil when the handler succeeded, its error otherwise. The
// end of ctx withdraws it while it waits; once a batch has it, Submit waits for
// that batch whatever happens, so that work that took effect is acknowledged.
func (q *Queue[T]) Submit(ctx context.Context, v T, items, bytes int) error {
	e := &Entry[T]{Value: v, items: items, bytes: bytes, done: make(chan error, 1)}
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return ErrStopped
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
func (q *Queue[T]) withdraw(e *Entry[T]) bool {
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
func (q *Queue[T]) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) == 0 && !q.busy
}

// Run forms batches and calls handle with each until ctx is cancelled; then
// every entry that waits is answered with ErrStopped. The context of handle is
// not cancelled with ctx, only by Config.Limit: handle bounds its own time.
// idle, when tick is positive, is called after that much time without a batch.
func (q *Queue[T]) Run(ctx context.Context, handle func(ctx context.Context, batch []*Entry[T]), tick time.Duration, idle func(ctx context.Context)) {
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

func (q *Queue[T]) take() []*Entry[T] {
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

func (q *Queue[T]) finish(batch []*Entry[T]) {
	q.mu.Lock()
	q.busy = false
	q.mu.Unlock()
	for _, e := range batch {
		e.done <- e.err
	}
}

func (q *Queue[T]) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for _, e := range q.waiting {
		e.taken = true
		e.done <- ErrStopped
	}
	q.waiting = nil
}
