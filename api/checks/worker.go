package checks

import (
	"context"
	"errors"
	"fmt"
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

// run does one transaction after the other until end. What lost its swap comes first in
// the next one, so that new requests do not pass it.
func (c *Checker) run() {
	defer close(c.ended)
	var lost []*item
	for {
		select {
		case <-c.end:
			c.finish(ErrClosed, lost...)
			c.finish(ErrClosed, c.take(int(^uint(0)>>1))...)
			return
		default:
		}
		batch := append(lost, c.take(c.options.MaxBatch-len(lost))...)
		if len(batch) == 0 {
			select {
			case <-c.wake:
			case <-c.end:
			}
			continue
		}
		lost = c.transact(batch)
	}
}

// take removes up to n items, one of each customer in turn, each customer's oldest first.
func (c *Checker) take(n int) (taken []*item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(taken) < n && len(c.turns) > 0 {
		customer := c.turns[0]
		c.turns = c.turns[1:]
		q := c.queues[customer]
		taken = append(taken, q[0])
		if q = q[1:]; len(q) > 0 {
			c.queues[customer], c.turns = q, append(c.turns, customer)
		} else {
			delete(c.queues, customer)
		}
	}
	return taken
}

// finish ends items.
func (c *Checker) finish(err error, items ...*item) {
	c.mu.Lock()
	c.waiting -= len(items)
	for _, it := range items {
		if c.shares[it.customer]--; c.shares[it.customer] == 0 {
			delete(c.shares, it.customer)
		}
	}
	c.mu.Unlock()
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

// transact decides a batch and returns the items to decide again: their rows were
// changed by another process between read and swap.
func (c *Checker) transact(batch []*item) (lost []*item) {
	o := c.options
	ctx, cancel := context.WithTimeoutCause(c.ctx, o.Timeout, errors.New("checks: the transaction took too long"))
	defer cancel()
	start := time.Now()

	groups := make(map[store.Key]*group, len(batch))
	keys := make([]store.Key, 0, len(batch))
	for _, it := range batch {
		if it.ctx.Err() != nil { // nobody waits for it
			c.finish(fmt.Errorf("checks: %w", context.Cause(it.ctx)), it)
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
			c.finish(fmt.Errorf("checks: %w", err), g.items...)
		}
		return nil
	}
	var changed []store.CheckRow
	for _, row := range rows {
		g := groups[row.Key]
		g.row, g.next = row, row
		g.decide(c)
		if same(&g.row, &g.next) {
			c.finish(nil, g.items...) // decided at the moment of the read
		} else {
			changed = append(changed, g.next)
		}
	}
	var swapped []bool
	if len(changed) > 0 {
		swapped, err = o.Store.SwapCheckRows(ctx, changed)
	}
	for i, row := range changed {
		g := groups[row.Key]
		switch {
		case err != nil:
			c.finish(fmt.Errorf("checks: %w", err), g.items...)
		case swapped[i]:
			c.finish(nil, g.items...)
		default:
			o.Metrics.lost.Inc()
			for _, it := range g.items {
				if it.attempts++; it.attempts >= maxAttempts {
					c.finish(ErrContended, it)
				} else {
					lost = append(lost, it)
				}
			}
		}
	}
	o.Metrics.batch.Observe(float64(len(batch)))
	o.Metrics.seconds.Observe(time.Since(start).Seconds())
	return lost
}

// decide applies the items to the row, one after the other. One that fails
// ends, and leaves the row to the others as it was.
func (g *group) decide(c *Checker) {
	decided := g.items[:0]
	for _, it := range g.items {
		next, err := it.apply(g.next)
		if err != nil {
			c.finish(err, it)
			continue
		}
		g.next = next
		decided = append(decided, it)
	}
	g.items = decided
}
