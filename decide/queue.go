package decide

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// errStopped is Submit's error after Run has returned.
var errStopped = errors.New("the stage has stopped")

// queueConfig bounds the batches.
type queueConfig struct {
	// MaxItems and MaxBytes bound a batch by the numbers given to Submit; a larger
	// submission passes alone. 0 is no bound.
	MaxItems, MaxBytes int
	// Limit, if given, ends the context of the handler. Without it only the handler
	// bounds its time.
	Limit context.Context
}

// entry is one submission in a batch.
type entry[T any] struct {
	Value T

	items, bytes int
	done         chan error // capacity 1
	err          error
}

// Fail makes Submit return err for this entry.
func (e *entry[T]) Fail(err error) { e.err = err }

// queue lets handlers that each hold one frame share the batches of one worker.
// Submit hands a frame over a channel and blocks; the worker handles all submitted
// frames, over all partitions, as one batch and answers each handler. A partition
// submits one frame at a time, so the queue keeps no order, and the subscribers bound its
// memory. Submit may be called from any goroutine, Run once.
type queue[T any] struct {
	cfg     queueConfig
	in      chan *entry[T]
	pending atomic.Int64  // calls of Submit
	stopped chan struct{} // closed when Run has returned
	next    *entry[T]     // received, and beyond the bounds of the last batch; Run's
}

func newQueue[T any](cfg queueConfig) *queue[T] {
	return &queue[T]{cfg: cfg, in: make(chan *entry[T]), stopped: make(chan struct{})}
}

// Submit queues v, which counts as items items of bytes bytes, and blocks until its batch was
// handled: nil when the handler succeeded, its error otherwise. The end of ctx withdraws it until
// the worker has received it; after that Submit returns the outcome of its batch, so that work
// that took effect is acknowledged.
func (q *queue[T]) Submit(ctx context.Context, v T, items, bytes int) error {
	q.pending.Add(1)
	defer q.pending.Add(-1)
	e := &entry[T]{Value: v, items: items, bytes: bytes, done: make(chan error, 1)}
	select {
	case q.in <- e:
		return <-e.done
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-q.stopped:
		return errStopped
	}
}

// Idle reports whether no submission is waiting or being handled.
func (q *queue[T]) Idle() bool { return q.pending.Load() == 0 }

// Run forms batches and calls handle with each until ctx is cancelled; then
// every waiting entry is answered with errStopped. The context of handle is
// not cancelled with ctx, only by queueConfig.Limit: handle bounds its own time.
// idle, when tick is positive, is called after that much time without a batch.
func (q *queue[T]) Run(ctx context.Context, handle func(ctx context.Context, batch []*entry[T]), tick time.Duration, idle func(ctx context.Context)) {
	defer func() {
		close(q.stopped)
		if q.next != nil {
			q.next.done <- errStopped
		}
	}()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if q.cfg.Limit != nil {
		defer context.AfterFunc(q.cfg.Limit, cancel)()
	}
	var idleTimer <-chan time.Time
	for ctx.Err() == nil {
		if tick > 0 && idleTimer == nil {
			idleTimer = time.After(tick)
		}
		if q.next == nil {
			select {
			case <-ctx.Done():
				return
			case q.next = <-q.in:
			case <-idleTimer:
				idleTimer = nil
				idle(work)
				continue
			}
		}
		batch := q.batch()
		handle(work, batch)
		for _, e := range batch {
			e.done <- e.err
		}
		idleTimer = nil
	}
}

// batch returns next and all submissions that are ready, within the bounds.
func (q *queue[T]) batch() (batch []*entry[T]) {
	items, bytes := 0, 0
	for q.next != nil {
		items += q.next.items
		bytes += q.next.bytes
		if len(batch) > 0 && (q.cfg.MaxItems > 0 && items > q.cfg.MaxItems || q.cfg.MaxBytes > 0 && bytes > q.cfg.MaxBytes) {
			break
		}
		batch, q.next = append(batch, q.next), nil
		select {
		case q.next = <-q.in:
		default:
		}
	}
	return batch
}
