package decide

import (
	"errors"

	"github.com/seed-86dfc502/weir/internal/sketch"
	"github.com/seed-86dfc502/weir/store"
)

// batch is what is decided together.
type batch struct {
	plan     *Plan
	records  []*record
	subjects []subject
	position map[string]int // of an entity in subjects
	claimed  []store.ClaimID
	keys     []store.KeyDigest
	room     int               // for what comes of it, in bytes
	noise    *sketch.Collector // may be nil
}

// subject is an entity that a batch is about.
type subject struct {
	id        string
	partition int32
	// foreign: it stands in several partitions, which only a mistake outside of Weir
	// can bring about. Nothing is remembered of it.
	foreign bool
	known   *remembered // nil: it is loaded
	*evaluation
	row   store.Entity // to write, if write
	write bool
}

// newBatch finds out what the records are about, and what take remembers of it.
func newBatch(p *Plan, records []*record, room int, take func(partition int32, entity string) *remembered) *batch {
	b := &batch{plan: p, records: records, room: room,
		subjects: make([]subject, 0, len(records)), position: make(map[string]int, len(records))}
	b.claimed, b.keys = claimsOf(records)
	for _, r := range records {
		if r.bad != nil {
			continue // its entity is not looked at
		}
		i, seen := b.position[r.Entity]
		if !seen {
			b.position[r.Entity] = len(b.subjects)
			b.subjects = append(b.subjects, subject{id: r.Entity, partition: r.part, known: take(r.part, r.Entity)})
		} else if s := &b.subjects[i]; s.partition != r.part {
			take(r.part, r.Entity)
			s.foreign, s.known = true, nil
		}
	}
	return b
}

// nothing is what is remembered by who remembers nothing.
func nothing(int32, string) *remembered { return nil }

// unknown returns the entities to load.
func (b *batch) unknown() []string {
	ids := make([]string, 0, len(b.subjects))
	for i := range b.subjects {
		if b.subjects[i].known == nil {
			ids = append(ids, b.subjects[i].id)
		}
	}
	return ids
}

// verdict is what a batch is decided to.
type verdict struct {
	out    store.Outcome // but for the frames of its changes
	result settled
	tally  evaluationCounts
	seen   *watch
}

// decideBatch decides what becomes of a batch, whose unknown entities and whose
// claims were loaded. It is pure but for the batch, whose subjects it leaves as they
// are then, and for what was remembered of them: transactions, dry runs and golden
// tests decide by it alone. errLargeOutcome, of class Poison, when it comes to more
// than there is room for.
func decideBatch(b *batch, loaded store.Loaded) (v verdict, err error) {
	v.seen = newWatch(b.noise)
	once := newClaims(len(b.claimed), loaded)
	rest := loaded.Entities
	for i := range b.subjects {
		s := &b.subjects[i]
		if s.known != nil {
			s.evaluation = evaluationOf(b.plan, s.known.state)
		} else {
			if s.evaluation, err = newEvaluation(b.plan, rest[0]); err != nil {
				return v, store.WithClass(err, store.Fatal)
			}
			rest = rest[1:]
		}
		s.watch, s.claims = v.seen, once
	}
	candidates, err := b.apply(&v, once)
	if err != nil {
		return v, err
	}
	room := b.room
	for i := range v.out.Letters {
		room -= len(v.out.Letters[i].Payload)
	}
	if v.result, err = settle(b.plan, candidates, room); err != nil && !errors.Is(err, errLargeOutcome) {
		return v, store.WithClass(err, store.Fatal)
	}
	if room -= v.result.size; err == nil {
		for _, r := range b.records {
			if r.bad == nil {
				b.subjects[b.position[r.Entity]].trail.sent(b.plan, r)
			}
		}
		for i := range b.subjects {
			s := &b.subjects[i]
			if s.row, s.write = s.evaluation.result(); s.write {
				v.out.Entities = append(v.out.Entities, s.row)
				room -= len(s.row.Docs) + len(s.row.Fence)
			}
		}
	}
	if err != nil || room < 0 {
		return v, store.WithClass(errLargeOutcome, store.Poison) // of a single record: it will not become smaller
	}
	v.out.Purged = v.result.purged
	v.out.Letters = append(v.out.Letters, v.result.letters...)
	v.out.Settled = append(v.out.Settled, v.result.replayed...)
	v.out.Claims = once.effects()
	return v, nil
}

// apply applies the records to their entities and collects what comes of that.
func (b *batch) apply(v *verdict, once *claims) (candidates []candidate, err error) {
	loose := evaluation{plan: b.plan, counts: newCounts(), claims: once} // for records that are dead already
	out := &v.out
	for _, r := range b.records {
		ev := &loose
		if r.bad == nil {
			ev = b.subjects[b.position[r.Entity]].evaluation
		}
		if err := ev.apply(r); err != nil {
			return nil, store.WithClass(err, store.Fatal)
		}
		candidates = append(candidates, ev.candidates...)
		out.Letters = append(out.Letters, ev.letters...)
		out.Audit = append(out.Audit, ev.audit...)
		out.Settled = append(out.Settled, ev.replayed...)
		ev.candidates, ev.letters, ev.audit, ev.replayed = ev.candidates[:0], ev.letters[:0], ev.audit[:0], ev.replayed[:0]
	}
	v.tally = loose.counts
	for i := range b.subjects {
		v.tally.add(b.subjects[i].counts)
	}
	return candidates, nil
}

// remember keeps what the committed batch left of its entities.
func (b *batch) remember(c *cache) {
	if c.limit == 0 {
		return
	}
	for i := range b.subjects {
		s := &b.subjects[i]
		if s.foreign {
			continue
		}
		if r, err := s.remember(s.partition, s.row, s.write); err == nil {
			c.keep(r)
		}
	}
}
