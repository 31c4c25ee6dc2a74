// Package fanout sends the changes of a batch for sinks that do not write it as
// a whole: entities side by side, the changes of one entity in order, one in
// flight.
package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// Send sends changes[i] and returns nil or its failure. Halt says that the
// failure is about the target as a whole, so that no further change should be
// started. It is called from up to limit goroutines.
type Send func(ctx context.Context, i int) (err *sinks.Error, halt bool)

// Each sends all changes and returns the failures by index. An entity ends at its first failure
// that is not a Reject, since what follows must not overtake it. All entities end at a halt or
// with ctx. An unsent change is a failure around sinks.ErrNotAttempted: never ambiguous, Pause
// behind a Pause that halted, else Retry.
//
// Entities start in random order, so that changes on which the target hangs
// cannot keep the same others out at every repetition.
func Each(ctx context.Context, changes []change.Change, limit int, send Send) map[int]*sinks.Error {
	r := &round{failed: map[int]*sinks.Error{}}
	queues := byEntity(changes)
	var g errgroup.Group
	g.SetLimit(limit)
	for _, n := range rand.Perm(len(queues)) { // #nosec G404 -- an order of work is no secret
		g.Go(func() error {
			r.run(ctx, queues[n], send)
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	return r.failed
}

// byEntity returns the indexes of each entity's changes, in order.
func byEntity(changes []change.Change) [][]int {
	queue := make(map[string]int, len(changes))
	var queues [][]int
	for i := range changes {
		n, ok := queue[changes[i].Entity]
		if !ok {
			n = len(queues)
			queue[changes[i].Entity] = n
			queues = append(queues, nil)
		}
		queues[n] = append(queues[n], i)
	}
	return queues
}

type round struct {
	mu     sync.Mutex
	halt   *sinks.Error
	failed map[int]*sinks.Error
}

func (r *round) run(ctx context.Context, queue []int, send Send) {
	for n, i := range queue {
		cause := r.stopped(ctx)
		if cause != nil {
			r.skip(queue[n:], cause)
			return
		}
		err, halt := send(ctx, i)
		if err == nil {
			continue
		}
		r.mu.Lock()
		r.failed[i] = err
		if halt && r.halt == nil {
			r.halt = err
		}
		r.mu.Unlock()
		if err.Class != sinks.Reject {
			r.skip(queue[n+1:], err)
			return
		}
	}
}

// stopped returns the error that stops further changes, or nil.
func (r *round) stopped(ctx context.Context) *sinks.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.halt == nil && ctx.Err() != nil {
		return &sinks.Error{Class: sinks.Retry, Op: "write", Err: fmt.Errorf("%w: %w", sinks.ErrNotAttempted, context.Cause(ctx))}
	}
	return r.halt
}

func (r *round) skip(queue []int, cause *sinks.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range queue {
		e := *cause
		e.Ambiguous = false
		if e.Class != sinks.Pause {
			e.Class = sinks.Retry
		}
		e.Err = fmt.Errorf("%w after %w", sinks.ErrNotAttempted, cause.Err)
		r.failed[i] = &e
	}
}

// Result makes the error of a Write of n changes from the failures that Each
// gave: nil, one error for the whole batch when the target takes nothing or refuses the
// service, or a BatchError: any other answer is about its change. Of several failures of the
// whole target it returns the one with the longest wait, else the first.
func Result(failed map[int]*sinks.Error, n int) error {
	if len(failed) == 0 {
		return nil
	}
	var whole *sinks.Error
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		e := failed[i]
		switch {
		case len(failed) < n, whole != nil && whole.Class != e.Class, e.Class != sinks.Pause && !e.Unreachable && e.Attempted():
			return batchError(failed)
		case errors.Is(e, sinks.ErrNotAttempted) && whole != nil: // a failure that follows from another
		case whole == nil || errors.Is(whole, sinks.ErrNotAttempted) || e.RetryAfter > whole.RetryAfter:
			whole = e
		}
	}
	return whole
}

func batchError(failed map[int]*sinks.Error) error {
	out := make(map[int]error, len(failed))
	for i, e := range failed {
		out[i] = e
	}
	return &sinks.BatchError{Failed: out}
}
