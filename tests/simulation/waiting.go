package simulation

import (
	"context"
	"sync"
	"time"
)

// reuse keeps what every step of a schedule needs and what costs more to make
// than to use: timers, and goroutines whose stacks have grown. Both belong to
// a bubble, whose schedules follow one another.
type reuse struct {
	mu      sync.Mutex
	timers  []*time.Timer // guarded by mu; none of them runs
	workers []chan func() // guarded by mu; each has a goroutine that waits
	busy    int           // guarded by mu: workers that do something
	closed  bool          // guarded by mu
}

// sleep waits for d or for the end of ctx, whose cause it returns then.
func (r *reuse) sleep(ctx context.Context, d time.Duration) error {
	done := ctx.Done()
	if done == nil {
		time.Sleep(d)
		return nil
	}
	t := r.timer(d)
	defer func() {
		t.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.timers = append(r.timers, t)
	}()
	select {
	case <-t.C:
		return nil
	case <-done:
		return context.Cause(ctx)
	}
}

func (r *reuse) timer(d time.Duration) *time.Timer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.timers); n > 0 {
		t := r.timers[n-1]
		r.timers = r.timers[:n-1]
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// spawn runs f in the background.
func (r *reuse) spawn(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy++
	if n := len(r.workers); n > 0 {
		w := r.workers[n-1]
		r.workers = r.workers[:n-1]
		w <- f
		return
	}
	w := make(chan func(), 1)
	w <- f
	go func() {
		for f := range w {
			f()
			if !r.rest(w) {
				return
			}
		}
	}()
}

// rest makes a worker available; false when it is not needed any more.
func (r *reuse) rest(w chan func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	if !r.closed {
		r.workers = append(r.workers, w)
	}
	return !r.closed
}

// working says how many functions run in the background.
func (r *reuse) working() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

// close ends the idle workers; the others end with their work.
func (r *reuse) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, w := range r.workers {
		close(w)
	}
	r.workers = nil
}
