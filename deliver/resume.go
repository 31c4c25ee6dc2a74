package deliver

import (
	"context"
	"slices"

	"github.com/seed-86dfc502/weir/sinks"
)

// resume lets a sinks.Recoverer read its predecessor's writes from its target, for each
// partition of a batch before its first write since the take-over. It retries until stop
// ends. The sink's mark is saved before anything is written, or the next owner would not
// know where to look.
func (w *worker) resume(work, stop context.Context, batch []*slice) error {
	sink, ok := w.opt.Sink.(sinks.Recoverer)
	if !ok {
		return nil
	}
	var fresh []*cursor
	if err := w.until(work, stop, func(ctx context.Context) error {
		var claims []sinks.Takeover
		if fresh, claims = w.claims(batch); len(fresh) == 0 {
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
		c.resumed = true
		if c.mark == "" {
			c.mark, _ = sink.Bookmark(c.p.number)
			c.p.edits++
			first = true
		}
	}
	w.s.mu.Unlock()
	if !first {
		return nil
	}
	parts := make([]*partition, 0, len(fresh))
	for _, c := range fresh {
		parts = append(parts, c.p)
	}
	return w.s.saver.await(work, parts)
}

// claims returns the cursors and claims of a batch that the sink has not resumed.
func (w *worker) claims(batch []*slice) (fresh []*cursor, claims []sinks.Takeover) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, sl := range batch {
		c := sl.c
		if c.resumed || c.p.gone || slices.Contains(fresh, c) {
			continue
		}
		fresh = append(fresh, c)
		claims = append(claims, sinks.Takeover{Partition: c.p.number, Below: c.position().Version, Bookmark: c.mark})
	}
	return fresh, claims
}

// keepMark adopts the sink's mark if everything that was written is below the position. The caller holds the stage's mutex.
func (w *worker) keepMark(c *cursor) {
	sink, ok := w.opt.Sink.(sinks.Recoverer)
	if !ok || !c.resumed {
		return
	}
	if mark, above := sink.Bookmark(c.p.number); c.position().Version > above {
		c.mark = mark
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
