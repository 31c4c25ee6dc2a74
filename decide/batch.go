package decide

import (
	"errors"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// batch is what one transaction decides, and what comes of it.
type batch struct {
	l        *lane
	records  []*record
	moves    []store.WatermarkStep
	ends     frameEnds
	subjects []subject
	position map[string]int // of an entity in subjects
	claimed  []store.ClaimID
	keys     []store.KeyDigest

	decided bool        // what follows is set
	rows    []store.Row // that the candidates have, an entity's mostly together
	result  settled
	tally   evaluationCounts
	letters []store.DeadLetter
	outbox  []store.OutboxFrame
	lastTo  frameEnds
	seen    *watch
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
	row   store.Entity // to write, if dirty
	write bool
}

// newBatch finds out what the records are about and what of it is remembered.
func (l *lane) newBatch(records []*record, moves []store.WatermarkStep, ends frameEnds) *batch {
	b := &batch{l: l, records: records, moves: moves, ends: ends,
		subjects: make([]subject, 0, len(records)), position: make(map[string]int, len(records))}
	b.claimed, b.keys = claimsOf(records)
	following := l.d.opt.Tail.following()
	for _, r := range records {
		r.followed = following
		if r.bad != nil {
			continue // its entity is not looked at
		}
		i, seen := b.position[r.Entity]
		if !seen {
			b.position[r.Entity] = len(b.subjects)
			b.subjects = append(b.subjects, subject{id: r.Entity, partition: r.part, known: l.cache.take(r.part, r.Entity)})
		} else if s := &b.subjects[i]; s.partition != r.part {
			l.cache.take(r.part, r.Entity)
			s.foreign, s.known = true, nil
		}
	}
	return b
}

// unknown returns the entities to load.
func (b *batch) unknown() []string {
	ids := make([]string, 0, len(b.subjects))
	for i := range b.subjects {
		if b.subjects[i].known == nil {
			ids = append(ids, b.subjects[i].id)
		}
	}
	m := b.l.d.opt.Metrics
	m.cacheUsed.WithLabelValues(cacheHit).Add(float64(len(b.subjects) - len(ids)))
	m.cacheUsed.WithLabelValues(cacheMiss).Add(float64(len(ids)))
	return ids
}

// outcome decides. It changes what was remembered.
func (b *batch) outcome(loaded store.Loaded, lookup store.Lookup) (out store.Outcome, err error) {
	crash.At(crash.DecideBegun, "")
	plan := b.l.d.opt.Plan
	b.seen = newWatch(b.l.d.opt.Noise)
	once := newClaims(len(b.claimed), loaded)
	rest := loaded.Entities
	for i := range b.subjects {
		s := &b.subjects[i]
		if s.known != nil {
			s.evaluation = s.known.evaluation(plan)
		} else {
			if s.evaluation, err = newEvaluation(plan, rest[0]); err != nil {
				return out, store.WithClass(err, store.Fatal)
			}
			rest = rest[1:]
		}
		s.watch, s.claims = b.seen, once
	}
	candidates, err := b.apply(&out, once)
	if err != nil {
		return out, err
	}
	rows, err := readRows(plan, candidates, b.known(lookup))
	if err != nil {
		return out, err
	}
	opt := &b.l.d.opt
	room := opt.MaxOutcome
	for i := range out.Entities {
		room -= len(out.Entities[i].Docs) + len(out.Entities[i].Fence)
	}
	for i := range out.Letters {
		room -= len(out.Letters[i].Payload)
	}
	if len(b.records) == 1 {
		room += maxOutcomeOfOne - opt.MaxOutcome
	}
	if err = errLargeOutcome; room >= 0 {
		b.result, err = settle(plan, candidates, rows, room)
	}
	if errors.Is(err, errLargeOutcome) {
		return out, store.WithClass(err, store.Poison) // of a single record: it will not become smaller
	}
	if err != nil {
		return out, store.WithClass(err, store.Fatal)
	}
	for _, r := range b.records {
		if r.bad == nil {
			b.subjects[b.position[r.Entity]].trail.sent(plan, r)
		}
	}
	written := 0
	for i := range b.subjects {
		s := &b.subjects[i]
		if s.write && s.trail.resealed {
			s.row.Fence = encodeState(&s.trail, s.fence)
			out.Entities[written].Fence = s.row.Fence
		}
		if s.write {
			written++
		}
	}
	out.Purged, out.Swaps = b.result.purged, b.result.swaps
	out.Letters = append(out.Letters, b.result.letters...)
	out.Settled = append(out.Settled, b.result.replayed...)
	b.letters = out.Letters
	out.Claims = once.effects()
	b.outbox, b.lastTo = pack(plan, &b.result, b.moves, b.ends, opt.MaxFrame)
	out.Outbox, out.LastTo = b.outbox, b.lastTo
	b.decided = true
	crash.At(crash.DecideOutcome, "")
	return out, nil
}

// apply applies the records to their entities and collects what comes of that.
func (b *batch) apply(out *store.Outcome, once *claims) (candidates []candidate, err error) {
	loose := evaluation{plan: b.l.d.opt.Plan, counts: newCounts(), claims: once} // for records that are dead already
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
	b.tally = loose.counts
	for i := range b.subjects {
		s := &b.subjects[i]
		b.tally.add(s.counts)
		if s.row, s.write = s.evaluation.result(); s.write {
			out.Entities = append(out.Entities, s.row)
		}
	}
	return candidates, nil
}

// known looks rows up in what is remembered, and asks for the others.
func (b *batch) known(ask store.Lookup) store.Lookup {
	return func(keys []store.Key) ([]store.Row, error) {
		rows := make([]store.Row, len(keys))
		b.rows = rows
		var missing []store.Key
		var at []int
		var of *subject
		for i, k := range keys {
			rows[i].Key = k
			if of = b.of(k.Entity, of); !of.rows.get(&rows[i]) {
				missing, at = append(missing, k), append(at, i)
			}
		}
		if len(missing) == 0 {
			return rows, nil
		}
		found, err := ask(missing)
		for n := range found {
			rows[at[n]] = found[n]
		}
		return rows, err
	}
}

// of returns the subject with an id, which may be that of the last one.
func (b *batch) of(id string, last *subject) *subject {
	if last != nil && last.id == id {
		return last
	}
	return &b.subjects[b.position[id]]
}

// remember keeps what the committed batch left of its entities.
func (b *batch) remember() {
	c := b.l.cache
	if c.limit == 0 {
		return
	}
	var of *subject
	var added []*store.Row
	for i := range b.rows {
		row := &b.rows[i]
		if of = b.of(row.Entity, of); !of.rows.update(row) {
			added = append(added, row)
		}
	}
	// Only now, since contents of rows may stand in what grows here.
	for _, row := range added {
		of = b.of(row.Entity, of)
		of.rows.add(row)
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
