package checks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// item is one request under way.
type item struct {
	ctx      context.Context // of its caller
	customer string          // whose service it is for
	key      store.Key
	apply    func(store.CheckRow) (store.CheckRow, error) // again for every attempt
	// attempts is how often its swap was lost; the worker's.
	attempts int
	err      error // set before done is closed
	done     chan struct{}
}

// worker runs one transaction after the other.
type worker struct {
	checker *Checker
	wake    chan struct{}
	end     chan struct{} // closed by Close

	mu    sync.Mutex
	queue []*item
}

func (l *worker) add(items []*item) {
	if len(items) == 0 {
		return
	}
	l.mu.Lock()
	l.queue = append(l.queue, items...)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run works until end. What lost its swap comes first in the next transaction,
// so that new requests do not pass it.
func (l *worker) run() {
	var lost []*item
	for {
		select {
		case <-l.end:
			l.finish(ErrClosed, lost...)
			l.finish(ErrClosed, l.take(int(^uint(0)>>1))...)
			return
		default:
		}
		batch := append(lost, l.take(l.checker.options.MaxBatch-len(lost))...)
		if len(batch) == 0 {
			select {
			case <-l.wake:
			case <-l.end:
			}
			continue
		}
		lost = l.transact(batch)
	}
}

// take removes up to n items from the front of the queue.
func (l *worker) take(n int) []*item {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.queue))
	taken := l.queue[:n:n]
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil // let go of what was taken
	}
	return taken
}

// finish ends items.
func (l *worker) finish(err error, items ...*item) {
	if len(items) == 0 {
		return
	}
	l.checker.left(items)
	for _, it := range items {
		it.err = err
		close(it.done)
	}
}

// group is the items of one row, in their order.
type group struct {
	row, next store.CheckRow
	items     []*item
}

// transact decides a batch and gives the items to decide again: their rows were
// changed by another process between read and swap.
func (l *worker) transact(batch []*item) (lost []*item) {
	o := l.checker.options
	ctx, cancel := context.WithTimeoutCause(l.checker.ctx, o.Timeout, errors.New("checks: the transaction took too long"))
	defer cancel()
	start := time.Now()

	groups := make(map[store.Key]*group, len(batch))
	keys := make([]store.Key, 0, len(batch))
	for _, it := range batch {
		if it.ctx.Err() != nil { // nobody waits for it
			l.finish(fmt.Errorf("checks: %w", context.Cause(it.ctx)), it)
			continue
		}
		g := groups[it.key]
		if g == nil {
			g = new(group)
			groups[it.key] = g
			keys = append(keys, it.key)
		}
		g.items = append(g.items, it)
	}
	if len(keys) == 0 {
		return nil
	}
	rows, err := o.Store.CheckRows(ctx, keys)
	if err != nil {
		for _, g := range groups {
			l.finish(fmt.Errorf("checks: %w", err), g.items...)
		}
		return nil
	}
	var changed []store.CheckRow
	for _, row := range rows {
		g := groups[row.Key]
		g.row, g.next = row, row
		g.decide(l)
		if same(&g.row, &g.next) {
			l.finish(nil, g.items...) // decided at the moment of the read
		} else {
			changed = append(changed, g.next)
		}
	}
	swapped, err := l.swap(ctx, changed)
	for i, row := range changed {
		g := groups[row.Key]
		switch {
		case err != nil:
			l.finish(fmt.Errorf("checks: %w", err), g.items...)
		case swapped[i]:
			l.finish(nil, g.items...)
		default:
			o.Metrics.lostSwap()
			for _, it := range g.items {
				if it.attempts++; it.attempts >= maxAttempts {
					l.finish(ErrContended, it)
				} else {
					lost = append(lost, it)
				}
			}
		}
	}
	o.Metrics.transaction(len(batch), time.Since(start))
	return lost
}

func (l *worker) swap(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	return l.checker.options.Store.SwapCheckRows(ctx, rows)
}

// decide applies the items to the row, one after the other. One that fails
// ends, and leaves the row to the others as it was.
func (g *group) decide(l *worker) {
	decided := g.items[:0]
	for _, it := range g.items {
		next, err := it.apply(g.next)
		if err != nil {
			l.finish(err, it)
			continue
		}
		g.next = next
		decided = append(decided, it)
	}
	g.items = decided
}
