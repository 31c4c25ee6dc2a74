package deliver

import (
	"context"
	"sync"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
)

// recovery has a sink that recovers resume in each partition.
type recovery struct {
	sink   sinks.Recoverer // nil for a sink that does not recover
	target *target
	m      *serviceMetrics
	mu     *sync.Mutex
	queue  *core.Queue // guarded by mu, with its lanes
	saved  func(work context.Context, parts []*core.Partition) error
	found  uint64 // of the sink, in metrics
}

// resume lets a sinks.Recoverer read its predecessor's writes from its target, for each
// partition before its first write since the takeover, with others that have changes: each resume
// may read all of the target's newest content. It retries until stop ends. The sink's bookmark is
// saved before anything is written, or the next owner would not know where to look.
func (r *recovery) resume(work, stop context.Context) error {
	if r.sink == nil {
		return nil
	}
	var fresh []*core.Lane
	if err := r.target.until(work, stop, func(ctx context.Context) error {
		var claims []sinks.Takeover
		if fresh, claims = r.claims(); len(fresh) == 0 {
			return nil // resumed or revoked meanwhile
		}
		return r.sink.Resume(ctx, claims)
	}); err != nil || len(fresh) == 0 {
		return err
	}
	r.target.recovered()
	var first []*core.Partition
	r.mu.Lock()
	for _, c := range fresh {
		c.Resumed = true
		if c.Mark() == "" {
			mark, _ := r.sink.Bookmark(c.Partition.Number)
			c.SetMark(mark)
			first = append(first, c.Partition)
		}
	}
	r.mu.Unlock()
	return r.saved(work, first)
}

// claims returns the lanes with changes that the sink has not resumed, and their claims.
func (r *recovery) claims() (fresh []*core.Lane, claims []sinks.Takeover) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.queue.Pending() {
		if !c.Resumed {
			fresh = append(fresh, c)
			claims = append(claims, sinks.Takeover{Partition: c.Partition.Number, Below: c.Position(), Bookmark: c.Mark()})
		}
	}
	return fresh, claims
}

// keepMark adopts the sink's bookmark if everything that was written is below the position; part
// of step.
func (r *recovery) keepMark(c *core.Lane) {
	if r.sink == nil || !c.Resumed {
		return
	}
	if mark, above := r.sink.Bookmark(c.Partition.Number); c.Position() > above {
		c.SetMark(mark)
	}
}

// countFound counts changes that a write found in the target and skipped.
func (r *recovery) countFound() {
	if r.sink != nil {
		now := r.sink.Found()
		r.m.found.Add(float64(now - r.found))
		r.found = now
	}
}
