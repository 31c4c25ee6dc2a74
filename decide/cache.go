package decide

import (
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// cache holds the entities of a worker's partitions, so that a decision about them loads
// nothing. A cached entity is valid while the partition's token and offset are unchanged:
// only decisions write entities and dam states, and every decision checks both. The worker
// compares them with its ownership, the store in the transaction that writes. Anything but
// a clean commit drops all entities of its partitions.
//
// It is bounded in bytes and evicts the least recently used. Guarded by the worker's work:
// nothing is loaded during a commit.
type cache struct {
	limit, bytes int64
	partitions   map[int32]*holding
	ring         cached // its newer one is the oldest, its older one the newest
	entities     int
	metrics      *Metrics
	faults       FaultInjection
}

// FaultInjection switches off rules of the owner's cache, for tests that prove them necessary.
type FaultInjection struct {
	KeepUnclear  bool // it is kept after a commit of unknown outcome
	KeepTakeOver bool // it is kept when the partition is taken over
}

// holding is the cached entities of a partition, decided under token up to next.
type holding struct {
	token    store.Token
	next     int64
	unclear  bool // of an injected fault
	entities map[string]*cached
}

// cached is an entity that its owner remembers.
type cached struct {
	id        string
	partition int32
	row       store.Entity
	size      int64

	older, newer *cached
}

func newCache(limit int64, m *Metrics, u FaultInjection) *cache {
	c := &cache{limit: limit, partitions: map[int32]*holding{}, metrics: m, faults: u}
	c.ring.older, c.ring.newer = &c.ring, &c.ring
	return c
}

// begin drops the partitions whose token or offset differs from moves.
func (c *cache) begin(moves []store.WatermarkStep) {
	for i := range moves {
		m := &moves[i]
		h := c.partitions[m.Partition.Number]
		switch {
		case h == nil || h.token == m.Token && h.next == m.From:
			continue
		case h.unclear || c.faults.KeepTakeOver:
			h.token, h.next, h.unclear = m.Token, m.From, false
		default:
			c.drop(m.Partition.Number)
		}
	}
}

// take removes an entity from the cache and returns it; nil when it is not cached. The
// caller may change it.
func (c *cache) take(partition int32, id string) *cached {
	h := c.partitions[partition]
	if h == nil || h.entities[id] == nil {
		return nil
	}
	r := h.entities[id]
	c.forget(h, r)
	return r
}

func (c *cache) forget(h *holding, r *cached) {
	delete(h.entities, r.id)
	r.older.newer, r.newer.older = r.newer, r.older
	r.older, r.newer = nil, nil
	c.grow(-1, -r.size)
}

func (c *cache) grow(entities int, bytes int64) {
	c.entities += entities
	c.bytes += bytes
	c.metrics.cacheEntities.Add(float64(entities))
	c.metrics.cacheBytes.Add(float64(bytes))
}

// committed records moves that were committed, before keep caches their entities.
func (c *cache) committed(moves []store.WatermarkStep) {
	for i := range moves {
		m := &moves[i]
		h := c.partitions[m.Partition.Number]
		if h == nil {
			h = &holding{entities: map[string]*cached{}}
			c.partitions[m.Partition.Number] = h
		}
		h.token, h.next = m.Token, m.To
	}
}

// keep remembers an entity of a partition that was committed just now.
func (c *cache) keep(r *cached) {
	if r.size = r.measure(); r.size > c.limit {
		return
	}
	h := c.partitions[r.partition]
	h.entities[r.id] = r
	r.older, r.newer = c.ring.older, &c.ring
	r.older.newer, r.newer.older = r, r
	c.grow(1, r.size)
	for c.bytes > c.limit {
		oldest := c.ring.newer
		c.forget(c.partitions[oldest.partition], oldest)
		c.metrics.cacheEvicted.Inc()
	}
}

// drop forgets a partition.
func (c *cache) drop(partition int32) {
	h := c.partitions[partition]
	if h == nil {
		return
	}
	c.metrics.cacheDropped.Add(float64(len(h.entities)))
	for _, r := range h.entities {
		c.forget(h, r)
	}
	delete(c.partitions, partition)
}

// dropAll forgets the partitions of moves.
func (c *cache) dropAll(moves []store.WatermarkStep) {
	for i := range moves {
		c.drop(moves[i].Partition.Number)
	}
}

// retain forgets the partitions that are no longer owned.
func (c *cache) retain(owned func(partition int32) bool) {
	for n := range c.partitions {
		if !owned(n) && !c.faults.KeepTakeOver {
			c.drop(n)
		}
	}
}

// close subtracts the cached entities from the metrics.
func (c *cache) close() {
	c.grow(-c.entities, -c.bytes)
	c.partitions = map[int32]*holding{}
	c.ring.older, c.ring.newer = &c.ring, &c.ring
}

// entityOverhead is what an entity takes beside its texts: see TestCacheKnowsItsSize.
const entityOverhead = 400

// measure estimates what r takes, in bytes.
func (r *cached) measure() int64 {
	return int64(entityOverhead + 2*len(r.id) + len(r.row.Docs) + len(r.row.Fence) + r.row.States.Size())
}

// remember returns the cached form of the entity of a committed evaluation: its row, which
// was written, if written is true.
func (ev *evaluation) remember(partition int32, row store.Entity, written bool) *cached {
	switch {
	case written:
		row.Found = true
		row.Writes++
		row.Deleted = storedTime(row.Deleted)
		row.States = row.States.Stored()
	case slices.Contains(ev.out.Purged, ev.found.ID):
		row = store.Entity{ID: ev.found.ID} // the store has none
	default:
		row = ev.found
	}
	if ev.plan.Current(row) {
		row.Fingerprint = ev.plan.stamp
	}
	return &cached{id: row.ID, partition: partition, row: row}
}

// storedTime is a time as the store returns it.
func storedTime(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}
