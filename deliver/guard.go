package deliver

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// Guard holds a service before more than a share of its entities would change within a window.
// The zero value guards nothing.
type Guard struct {
	Retract, Update float64 // shares of the service's entities; 0 disables the guard
	Min             int64   // number of entities that may change in any case
	Window          time.Duration
}

// share returns the share of the entities that changes of a kind may reach.
func (g *Guard) share(kind store.GuardKind) float64 {
	if kind == store.GuardRetract {
		return g.Retract
	}
	return g.Update
}

// GuardKind returns the kind of a change; "" for one that is never counted: the entity enters the
// service, no event caused the change, or an update replaces refused content. A view that lost all of
// its fields counts as a retraction.
func GuardKind(c *change.Change) store.GuardKind {
	switch {
	case c.Planned || c.Resent != 0:
	case c.Op == change.Retract && c.Effect == change.Leaves, c.Op == change.Upsert && c.Effect == change.Keeps && c.Empty():
		return store.GuardRetract
	case c.Op == change.Upsert && c.Effect == change.Keeps && !c.Mends:
		return store.GuardUpdate
	}
	return ""
}

// admit returns the changes of a step that may be attempted: those that the guard does not count, has
// counted, or that an operator released. It drops those that an operator discarded, and with the first
// held one the changes of a Write behind it. released says that some were released. Changes that
// passed before are not counted again, unless the service was paused since.
func (w *worker) admit(work, stop context.Context, step *core.Step) (released bool, err error) {
	w.waited = false
	for _, kind := range []store.GuardKind{store.GuardRetract, store.GuardUpdate} {
		if w.opt.Guard.share(kind) <= 0 {
			continue
		}
		var counted []*core.Item
		var changes []store.GuardedChange
		for _, i := range step.Items {
			if i.Admitted <= w.resumes && GuardKind(&i.Data.(*delivery).change) == kind {
				counted = append(counted, i)
				c := &i.Data.(*delivery).change
				changes = append(changes, store.GuardedChange{Entity: i.Entity, Partition: i.Partition, Position: i.Position, At: c.At, Young: c.Young(w.opt.Guard.Window)})
			}
		}
		if len(counted) == 0 {
			continue
		}
		answers, pause, err := w.count(work, stop, kind, changes)
		if err != nil {
			return released, err
		}
		crash.At(crash.GuardCounted, w.opt.Name)
		released = released || slices.Contains(answers, store.Released)
		if err := w.judged(work, stop, step, counted, answers); err != nil {
			return released, err
		}
		if slices.Contains(answers, store.Held) {
			crash.At(crash.GuardHeld, w.opt.Name)
			// Here at once; other processes see the pause in the store.
			if w.pause(PauseOf(pause)) && pause.Hold != nil {
				w.m.held.Inc()
			}
		}
	}
	return released, nil
}

// count has the store count changes of one kind; it retries until stop ends.
func (w *worker) count(work, stop context.Context, kind store.GuardKind, changes []store.GuardedChange) (answers []store.Admitted, pause *store.Pause, err error) {
	g := &w.opt.Guard
	err = w.s.retryUntil(work, stop, "count changes for the guard", func() error {
		entities, err := w.entities(work)
		if err != nil {
			return err
		}
		answers, pause, err = w.s.opt.Store.Admit(work, store.Admission{
			Service: w.opt.Name, Kind: kind, Share: g.share(kind), Min: g.Min, Window: g.Window, Entities: entities, Now: w.s.opt.Now(), Changes: changes,
		})
		return err
	})
	return answers, pause, err
}

// entities returns how many entities the service has: by this process's positions, and by those
// that other processes saved some seconds ago.
func (w *worker) entities(ctx context.Context) (n int64, err error) {
	others, err := w.s.others.read(ctx)
	if err != nil {
		return 0, err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	own := w.queue.Entities()
	for partition, services := range others {
		if _, mine := own[partition]; !mine {
			n += services[w.opt.Number]
		}
	}
	for _, more := range own {
		n += more
	}
	return max(0, n), nil
}

// othersEntities caches the numbers of entities in partitions of other processes, which are a
// denominator only. Its read takes all positions of all services.
type othersEntities struct {
	s       *Stage
	sem     chan struct{} // capacity 1: full during a read
	revoked atomic.Uint64 // counts revocations: a partition may be another process's since

	// Owned by the holder of sem.
	until time.Time
	of    uint64                    // revocations before the read
	by    map[int32]map[int32]int64 // by partition and service
}

// The cache lasts shorter where other processes have partitions.
const (
	othersPeriod = 10 * time.Second
	alonePeriod  = 5 * time.Minute
)

// read returns the numbers, which are not changed later.
func (o *othersEntities) read(ctx context.Context) (map[int32]map[int32]int64, error) {
	select {
	case o.sem <- struct{}{}:
		defer func() { <-o.sem }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	now, of := o.s.opt.Now(), o.revoked.Load()
	if o.of == of && now.Before(o.until) {
		return o.by, nil
	}
	rows, err := o.s.opt.Store.AllProgress(ctx)
	if err != nil {
		return nil, err
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.by, o.of, o.until = map[int32]map[int32]int64{}, of, now.Add(alonePeriod)
	for _, row := range rows {
		if o.s.parts[row.Partition] != nil {
			continue
		}
		o.until = now.Add(othersPeriod)
		services := make(map[int32]int64, len(row.Positions))
		for _, p := range row.Positions {
			services[p.Service] = p.Entities
		}
		o.by[row.Partition] = services
	}
	return o.by, nil
}

// judged applies answers to the changes of a step. A released change of a state sink is stale: it is
// written only if it is the newest. A discarded one is refused: its row says that the target does not
// have this content.
func (w *worker) judged(work, stop context.Context, step *core.Step, counted []*core.Item, answers []store.Admitted) error {
	var discarded []*core.Item
	left := map[*core.Item]bool{}
	cut := len(step.Items)
	for n, i := range counted {
		switch answers[n] {
		case store.Released:
			i.Stale = true
			fallthrough
		case store.Counted, store.Uncounted:
			i.Admitted = w.resumes + 1
		case store.Discarded:
			discarded = append(discarded, i)
			left[i] = true
		case store.Held:
			left[i] = true
			if step.Kind == core.Write {
				cut = min(cut, slices.Index(step.Items, i))
			}
		}
	}
	step.Items = slices.DeleteFunc(step.Items[:cut], func(i *core.Item) bool { return left[i] })
	if err := w.refuse(work, stop, "discarded", discarded); err != nil {
		return err
	}
	for _, i := range discarded {
		w.core.Leave(i, core.Discarded)
	}
	return nil
}

// obsoleteAfter reports whether a change may have been replaced while the service was paused, so
// that a state sink gets only the newest.
func (w *worker) obsoleteAfter(v *delivery) bool {
	if w.traits.Kind != sinks.State {
		return false
	}
	_, resumed := w.condition.resumed()
	return v.change.Time.Before(resumed)
}
