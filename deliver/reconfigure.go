package deliver

import (
	"context"
	"slices"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/wait"
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
		added = append(added, newWorker(&s.helpers, service))
	}
	s.revision.Store(r.Revision)
	wait.Offer(s.saver.renewed, struct{}{}) // progress that the store refused under the earlier revision
	var removed []*worker
	for _, w := range s.workers {
		if slices.Contains(r.Remove, w.opt.Number) {
			w.queue.Removed = true
			s.flow.Fall(w.queue)
			removed = append(removed, w)
		}
	}
	for _, w := range added {
		if !slices.ContainsFunc(removed, func(o *worker) bool { return o.opt.Number == w.opt.Number }) {
			s.join(w, nil)
		}
	}
	s.signal()
	done := make(chan struct{})
	s.running.Go(func() {
		defer close(done)
		for _, old := range removed {
			old.cancel()
		}
		for _, old := range removed {
			<-old.ended
			s.step(func() { s.replace(old, added) })
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

// join begins a service, with its retrying changes; part of step.
func (s *Stage) join(w *worker, rows map[*core.Partition][]*core.Item) {
	s.list(append(slices.Clone(s.workers), w))
	s.flow.Add(w.queue)
	for _, p := range s.parts {
		of := rows[p.Partition]
		w.arrived = append(w.arrived, arrival{p.Partition, of})
		w.parked += len(of)
		p.prove() // a write of the worker before it may be on its way
	}
	s.begin(w)
}

// replace ends a worker that has stopped, and begins the one of added that takes its
// place, if any; part of step.
func (s *Stage) replace(old *worker, added []*worker) {
	s.flow.Remove(old.queue)
	s.list(slices.DeleteFunc(slices.Clone(s.workers), func(w *worker) bool { return w == old }))
	rows := old.core.Rows()
	if i := slices.IndexFunc(added, func(w *worker) bool { return w.opt.Number == old.opt.Number }); i >= 0 {
		p := old.target.condition.now().Pause
		if !p.stored() {
			p = nil
		}
		added[i].target.condition.paused(p)
		added[i].queue.Failing = added[i].target.condition.stuck()
		s.join(added[i], rows)
	} else {
		for _, p := range s.parts {
			for _, i := range rows[p.Partition] {
				if l, err := old.letters.letterOf(i, nil); err == nil {
					abandon(p.Partition, l, old.letters.key(i))
				}
			}
		}
	}
}
