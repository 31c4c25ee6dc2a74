package deliver

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/store"
)

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

// admission has the store count the changes of a service for its guard.
type admission struct {
	*calls
	limits Guard
	others *othersEntities
	queue  *core.Queue // guarded by mu of others
}

// count has the store count changes of one kind; it retries until stop ends.
func (g *admission) count(work, stop context.Context, kind store.GuardKind, changes []store.GuardedChange) (answers []store.Admitted, pause *store.Pause, err error) {
	err = g.retryUntil(work, stop, "count changes for the guard", func() error {
		entities, err := g.entities(work)
		if err != nil {
			return err
		}
		answers, pause, err = g.opt.Store.Admit(work, store.Admission{
			Service: g.queue.Name, Kind: kind, Share: g.limits.share(kind), Min: g.limits.Min, Window: g.limits.Window, Entities: entities, Now: g.opt.Now(), Changes: changes,
		})
		return err
	})
	return answers, pause, err
}

// entities returns how many entities the service has: by this process's positions, and by those
// that other processes saved some seconds ago.
func (g *admission) entities(ctx context.Context) (n int64, err error) {
	others, err := g.others.read(ctx)
	if err != nil {
		return 0, err
	}
	g.others.mu.Lock()
	defer g.others.mu.Unlock()
	own := g.queue.Entities()
	for partition, services := range others {
		if _, mine := own[partition]; !mine {
			n += services[g.queue.Number]
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
	*shared
	parts   map[int32]*partition // guarded by mu; those that are assigned
	sem     chan struct{}        // capacity 1: full during a read
	revoked atomic.Uint64        // counts revocations: a partition may be another process's since

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
	now, of := o.opt.Now(), o.revoked.Load()
	if o.of == of && now.Before(o.until) {
		return o.by, nil
	}
	rows, err := o.opt.Store.AllProgress(ctx)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.by, o.of, o.until = map[int32]map[int32]int64{}, of, now.Add(alonePeriod)
	for _, row := range rows {
		if o.parts[row.Partition] != nil {
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
