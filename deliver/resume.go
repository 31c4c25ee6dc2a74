package deliver

import (
	"context"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
)

// resume lets a sinks.Recoverer read its predecessor's writes from its target, for each
// partition before its first write since the takeover, with others that have changes: each resume
// may read all of the target's newest content. It retries until stop ends. The sink's bookmark is saved before anything is written, or the next owner would not
// know where to look.
func (w *worker) resume(work, stop context.Context) error {
	sink, ok := w.opt.Sink.(sinks.Recoverer)
	if !ok {
		return nil
	}
	var fresh []*core.Lane
	if err := w.until(work, stop, func(ctx context.Context) error {
		var claims []sinks.Takeover
		if fresh, claims = w.claims(); len(fresh) == 0 {
			return nil // resumed or revoked meanwhile
		}
		return sink.Resume(ctx, claims)
	}); err != nil || len(fresh) == 0 {
		return err
	}
	w.recovered()
	first := false
	w.s.mu.Lock()
	for _, c := range fresh {
		c.Resumed = true
		if c.Mark() == "" {
			mark, _ := sink.Bookmark(c.Partition.Number)
			c.SetMark(mark)
			first = true
		}
	}
	w.s.mu.Unlock()
	if !first {
		return nil
	}
	parts := make([]*core.Partition, 0, len(fresh))
	for _, c := range fresh {
		parts = append(parts, c.Partition)
	}
	return w.s.saver.await(work, parts)
}

// claims returns the lanes with changes that the sink has not resumed, and their claims.
func (w *worker) claims() (fresh []*core.Lane, claims []sinks.Takeover) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, c := range w.queue.Pending() {
		if !c.Resumed {
			fresh = append(fresh, c)
			claims = append(claims, sinks.Takeover{Partition: c.Partition.Number, Below: c.Position(), Bookmark: c.Mark()})
		}
	}
	return fresh, claims
}

// keepMark adopts the sink's bookmark if everything that was written is below the position; part
// of step.
func (w *worker) keepMark(c *core.Lane) {
	sink, ok := w.opt.Sink.(sinks.Recoverer)
	if !ok || !c.Resumed {
		return
	}
	if mark, above := sink.Bookmark(c.Partition.Number); c.Position() > above {
		c.SetMark(mark)
	}
}

// countFound counts changes that a write found in the target and skipped.
func (w *worker) countFound() {
	if sink, ok := w.opt.Sink.(sinks.Recoverer); ok {
		now := sink.Found()
		w.m.found.Add(float64(now - w.found))
		w.found = now
	}
}
