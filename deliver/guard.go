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
	Retract, Update float64 // shares of the service's entities; 0: not guarded
	Min             int64   // so many entities may change in any case
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
// service, or no event caused the change.
func GuardKind(c *change.Change) store.GuardKind {
	switch {
	case c.Planned || c.Resent != 0:
	case c.Op == change.Retract && c.Effect == change.Leaves:
		return store.GuardRetract
	case c.Op == change.Upsert && c.Effect == change.Keeps:
		return store.GuardUpdate
	}
	return ""
}

// guard lets the changes of a write pass that the guard of the service counts or that an
// operator released, drops those that an operator discarded, and cuts the write off at the first one
// that is held. released says that some were released. recheck asks again about changes that passed before: the service was paused.
func (w *worker) guard(work, stop context.Context, step *core.Step, recheck bool) (released bool, err error) {
	for _, kind := range []store.GuardKind{store.GuardRetract, store.GuardUpdate} {
		if w.opt.Guard.share(kind) <= 0 {
			continue
		}
		var asked []*core.Item
		var changes []store.GuardedChange
		for _, i := range step.Items {
			v := i.Data.(*delivery)
			if v.admitted = v.admitted && !recheck; !v.admitted && GuardKind(&v.change) == kind {
				asked = append(asked, i)
				changes = append(changes, store.GuardedChange{Entity: i.Entity, Partition: i.Partition, Position: i.Position})
			}
		}
		if len(asked) == 0 {
			continue
		}
		answers, pause, err := w.admit(work, stop, kind, changes)
		if err != nil {
			return released, err
		}
		crash.At(crash.GuardCounted, w.opt.Name)
		released = released || slices.Contains(answers, store.Released)
		w.judged(step, asked, answers)
		if slices.Contains(answers, store.Held) {
			crash.At(crash.GuardHeld, w.opt.Name)
			w.held(pause)
		}
	}
	return released, nil
}

// admit asks the store about changes; it retries until stop ends.
func (w *worker) admit(work, stop context.Context, kind store.GuardKind, changes []store.GuardedChange) (answers []store.Admitted, pause *store.Pause, err error) {
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

// judged applies answers to the changes of a write. A released change of a state sink is stale:
// it is written only if it is the newest.
func (w *worker) judged(step *core.Step, asked []*core.Item, answers []store.Admitted) {
	for n, i := range asked {
		switch answers[n] {
		case store.Released:
			i.Stale = true
			fallthrough
		case store.Counted:
			i.Data.(*delivery).admitted = true
		case store.Discarded:
			w.core.Leave(i, core.Discarded)
			step.Items = slices.DeleteFunc(step.Items, func(o *core.Item) bool { return o == i })
		case store.Held:
			if at := slices.Index(step.Items, i); at >= 0 {
				step.Items = step.Items[:at]
			}
		}
	}
}

// held pauses the service in this process at once; others see the pause in the store.
func (w *worker) held(pause *store.Pause) {
	if !w.condition.suspend(SuspensionOf(pause)) {
		return
	}
	if pause.Hold != nil {
		w.m.held.Inc()
		w.log.Warn("held by the guard; an operator has to release, discard or extend", "event", "delivery.held", "why", pause.Reason)
	}
	w.stateChanged()
}

// obsoleteAfter reports whether a change may have been replaced while the service was paused, so
// that a state sink gets only the newest.
func (w *worker) obsoleteAfter(v *delivery) bool {
	return w.traits.Kind == sinks.State && v.change.Time.Before(w.resumedAt)
}
