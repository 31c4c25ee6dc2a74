package deliver

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Reconfiguration is the difference that a new revision of the configuration makes.
type Reconfiguration struct {
	Revision int64
	Add      []Service // new ones, and the new form of those replaced
	Remove   []int32   // numbers of those that end, and of those replaced
}

// Reconfigure changes revision and services while the stage runs; one call at a time. All
// other services keep worker, sink, cursors and queue. A removed one finishes its write in
// flight within StopGrace; one that replaces it continues at its position. It returns when
// the removed ones have ended and the new ones run; ctx bounds the wait only. After an
// error nothing has changed, unless it is ctx's.
func (s *Stage) Reconfigure(ctx context.Context, r Reconfiguration) error {
	s.mu.Lock()
	if s.closed || s.ctx.Err() != nil {
		s.mu.Unlock()
		return errStopped
	}
	added := make([]*worker, 0, len(r.Add))
	for _, service := range r.Add {
		added = append(added, newWorker(s, service))
	}
	s.revision.Store(r.Revision)
	var removed []*worker
	for _, w := range s.workers {
		if slices.Contains(r.Remove, w.opt.Number) {
			w.removed = true
			s.fallBehind(w)
			removed = append(removed, w)
		}
	}
	for _, w := range added {
		if !slices.ContainsFunc(removed, func(o *worker) bool { return o.opt.Number == w.opt.Number }) {
			s.join(w)
		}
	}
	done := make(chan struct{})
	s.running.Go(func() {
		defer close(done)
		for _, old := range removed {
			old.cancel()
		}
		for _, old := range removed {
			<-old.ended
			s.mu.Lock()
			s.replace(old, added)
			s.mu.Unlock()
		}
	})
	s.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// list sets the workers, in the order of their numbers. The caller holds s.mu; readers
// without it keep the list that they have.
func (s *Stage) list(workers []*worker) {
	slices.SortFunc(workers, func(a, b *worker) int { return cmp.Compare(a.opt.Number, b.opt.Number) })
	s.workers = workers
}

// join begins a service that no worker had. One that was configured before continues at
// its position. Of a new one nothing was handed out: its frames are of a newer revision
// than any before. The caller holds s.mu.
func (s *Stage) join(w *worker) {
	s.list(append(slices.Clone(s.workers), w))
	for _, p := range s.parts {
		c := &cursor{w: w, p: p, live: true, floor: p.feed.fed, feed: p.feed}
		if i := slices.IndexFunc(p.absent, func(a store.ServicePosition) bool { return a.Service == w.opt.Number }); i >= 0 {
			c.live = false
			c.restore(&p.absent[i])
			p.absent = slices.Delete(slices.Clone(p.absent), i, i+1)
		}
		s.follow(c)
		w.arrived = append(w.arrived, arrival{p, nil})
	}
	s.begin(w)
}

// follow adds a cursor to its partition. The caller holds s.mu.
func (s *Stage) follow(c *cursor) {
	c.p.cursors = append(slices.Clone(c.p.cursors), c)
	slices.SortFunc(c.p.cursors, func(a, b *cursor) int { return cmp.Compare(a.w.opt.Number, b.w.opt.Number) })
	c.p.edits++
	c.p.poke()
	wait.Offer(s.repairs, struct{}{})
}

// replace ends a worker that has stopped, and begins the one of added that takes its
// place, if any. The caller holds s.mu.
func (s *Stage) replace(old *worker, added []*worker) {
	workers := slices.DeleteFunc(slices.Clone(s.workers), func(w *worker) bool { return w == old })
	var next *worker
	if i := slices.IndexFunc(added, func(w *worker) bool { return w.opt.Number == old.opt.Number }); i >= 0 {
		next = added[i]
		next.condition.suspend(old.condition.now().Suspended)
		workers = append(workers, next)
	}
	s.list(workers)
	s.fallBehind(old) // the catch-up reader may have handed it something
	rows := old.core.Rows()
	for _, p := range s.parts {
		i := slices.IndexFunc(p.cursors, func(c *cursor) bool { return c.w == old })
		if i < 0 {
			continue
		}
		at := p.cursors[i].saved()
		p.cursors = slices.Delete(slices.Clone(p.cursors), i, i+1)
		of := rows[p]
		if next == nil {
			for _, i := range of {
				if l, err := old.letterOf(i, nil); err == nil {
					p.abandon(l, old.key(i))
				}
			}
			p.absent = append(p.absent, at)
			p.edits++
			continue
		}
		c := &cursor{w: next, p: p}
		c.restore(&at)
		s.follow(c)
		next.arrived = append(next.arrived, arrival{p, of})
		next.parked += len(of)
	}
	if next != nil {
		s.begin(next)
	}
	s.wake()
}

// begin runs a worker. The caller holds s.mu.
func (s *Stage) begin(w *worker) {
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	if !s.started { // Run begins it
		return
	}
	s.delivering.Go(func() { w.run(w.ctx) })
}
