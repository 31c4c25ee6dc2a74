package decide

import (
	"errors"
	"math"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/internal/poison"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
)

// batch is the records of one decision.
type batch struct {
	plan     *Plan
	records  []*record
	subjects []subject
	position map[string]int // of an entity in subjects
	claimed  []store.ClaimID
	keys     []store.KeyDigest
	room     int                   // for its outcome, in bytes
	single   bool                  // of one record: what does not fit is a dead letter of its service
	scratch  *scratch              // the worker's scratch; nil makes a new one
	noise    *fieldcount.Collector // may be nil
	hearing  *hearing              // nil: all sessions are heard
	begin    func(*record)         // called before each record, for who watches; may be nil
}

// subject is an entity that a batch is about.
type subject struct {
	id        string
	partition int32
	// crossPartition: its records are in several partitions, which only a mistake outside of
	// Weir causes. It is not cached.
	crossPartition bool
	known          *cached // nil: it is loaded
	*evaluation
	row   store.Entity // to write, if write
	write bool
}

// newBatch collects the entities of the records, and what take remembers of them.
func newBatch(p *Plan, records []*record, room int, take func(partition int32, entity string) *cached) *batch {
	b := &batch{plan: p, records: records, room: room,
		subjects: make([]subject, 0, len(records)), position: make(map[string]int, len(records))}
	b.claimed, b.keys = claimsOf(records)
	for _, r := range records {
		if r.deadLetter != nil || r.isBarrier() {
			continue // its entity is not evaluated, or it is about no entity
		}
		i, seen := b.position[r.Entity]
		if !seen {
			b.position[r.Entity] = len(b.subjects)
			b.subjects = append(b.subjects, subject{id: r.Entity, partition: r.partition, known: take(r.partition, r.Entity)})
		} else if s := &b.subjects[i]; s.partition != r.partition {
			take(r.partition, r.Entity)
			s.crossPartition, s.known = true, nil
		}
	}
	return b
}

// noCache remembers nothing.
func noCache(int32, string) *cached { return nil }

// toLoad returns the entities to load.
func (b *batch) toLoad() []string {
	ids := make([]string, 0, len(b.subjects))
	for i := range b.subjects {
		if b.subjects[i].known == nil {
			ids = append(ids, b.subjects[i].id)
		}
	}
	return ids
}

// verdict is the decision about a batch. It is valid until its scratch is reset.
type verdict struct {
	*scratch
	plan   *Plan
	room   int           // for the rest of the outcome, in bytes; negative: it is too much
	single bool          // as of the batch
	out    store.Outcome // without the frames of its changes
	// How often records had which outcome.
	outcomes    map[outcomeOf]int
	evaluations int // of projections

	claims   *claims         // of the batch; nil when no record of it has one
	hearing  *hearing        // the batch's; nil accepts all sessions
	observer *changeObserver // nil if changed fields are not observed
}

// decidedChange is a change of a service.
type decidedChange struct {
	change.Change
	service int // index into Plan.Services
}

// outcomeOf is an outcome of events of a source.
type outcomeOf struct {
	source  string
	outcome outcome
}

func newVerdict(p *Plan, room int) *verdict { return new(scratch).verdict(p, room) }

// scratch is memory that a worker's batches use one after the other.
type scratch struct {
	changes   []*decidedChange // in the order of records and services
	ofChanges arena[decidedChange]
	texts     arena[byte] // contents and documents of changes
	decisions decisionCounts
	touched   projections.Set
	output    output
	trees     canonicaltree.Batch // of stored documents, and of those that a patch made

	layered *evaluation  // the entity whose documents layers holds, nil if none
	layers  merge.Layers // as they are now
	before  merge.Layers // as they were before the event
	merged  projections.Document
	shown   bool // merged is of layers
	was     projections.Document

	fences fenceRoom
	free   []*evaluation // with room of earlier batches
	used   []*evaluation
}

// maxScratch is how much memory a batch leaves to the next one, in bytes of each kind.
const maxScratch = 4 << 20

// verdict begins the decision about a batch.
func (s *scratch) verdict(p *Plan, room int) *verdict {
	s.decisions.reset(len(p.Services))
	return &verdict{scratch: s, plan: p, room: room, outcomes: map[outcomeOf]int{}}
}

// reset ends the use of a verdict and of its changes.
func (s *scratch) reset() {
	s.output, s.layered = output{}, nil
	clear(s.changes)
	s.changes = s.changes[:0]
	s.ofChanges.reset(func(c []decidedChange) { clear(c) })
	s.texts.reset(poison.Fill)
	s.trees.Release()
	s.fences.reset()
	for _, ev := range s.used {
		clear(ev.docs)
		clear(ev.fence)
		*ev = evaluation{entityState: entityState{docs: ev.docs, fence: ev.fence}}
	}
	s.free, s.used = append(s.free, s.used...), s.used[:0]
}

// evaluation returns an empty one.
func (s *scratch) evaluation() *evaluation {
	if len(s.free) == 0 {
		s.free = append(s.free, &evaluation{entityState: entityState{docs: map[string]canonicaltree.Node{}, fence: fence{}}})
	}
	n := len(s.free) - 1
	ev := s.free[n]
	s.free, s.used = s.free[:n], append(s.used, ev)
	return ev
}

// decisionCounts is how often services had which decision. An event counts once for all
// services that it does not touch, and its costs follow those that it touches.
type decisionCounts struct {
	all     [decisionKinds]int
	of      [][decisionKinds]int // by service, added to all
	counted []bool               // by service: it is in touched
	touched []int                // services with counts of their own
	sums    [][decisionKinds]int // of planSeries.add
}

const decisionKinds = 5

var kindSent = kindOf(DecisionSent) //nolint:gochecknoglobals // never written

func kindOf(decision string) int { return slices.Index(allDecisions[:], decision) }

func (c *decisionCounts) reset(services int) {
	c.all = [decisionKinds]int{}
	for _, s := range c.touched {
		c.of[s], c.counted[s] = [decisionKinds]int{}, false
	}
	c.touched = c.touched[:0]
	if len(c.of) != services {
		c.of, c.counted = make([][decisionKinds]int, services), make([]bool, services)
	}
}

func (c *decisionCounts) add(service, kind, n int) {
	if !c.counted[service] {
		c.counted[service], c.touched = true, append(c.touched, service)
	}
	c.of[service][kind] += n
}

func (c *decisionCounts) get(service, kind int) int { return c.all[kind] + c.of[service][kind] }

// full reports whether the outcome exceeds the room, or its documents their bound in memory.
func (v *verdict) full() bool { return !v.single && (v.room < 0 || v.trees.Size() > maxTrees) }

// fit returns how many records like those of b fit into a decision with room for an outcome of limit bytes, with
// an eighth to spare.
func (b *batch) fit(v *verdict, limit int) int {
	share := max(float64(b.room-v.room)/float64(limit), float64(v.trees.Size())/maxTrees)
	return max(1, int(min(float64(len(b.records))/share*7/8, math.MaxInt32)))
}

// maxTrees bounds the parsed documents of a batch of several records, in bytes: they take
// several times the size of the records, and stored documents may be larger.
const maxTrees = 48 << 20

// decideBatch decides a batch, whose unknown entities and whose claims were loaded. It
// changes only the batch's subjects and their cached states, and is pure
// otherwise: transactions, dry runs and golden tests decide by it alone. The error is
// errLargeOutcome when the outcome exceeds the room.
func decideBatch(b *batch, loaded store.Loaded) (*verdict, error) {
	if b.scratch == nil {
		b.scratch = new(scratch)
	}
	v := b.scratch.verdict(b.plan, b.room)
	v.single, v.hearing = b.single, b.hearing
	v.observer, v.claims = newChangeObserver(b.noise, b.plan), newClaims(len(b.claimed), loaded)
	err := b.evaluate(v, loaded.Entities)
	if err == nil && v.full() {
		err = errLargeOutcome
	}
	if errors.Is(err, errLargeOutcome) {
		return nil, store.WithClass(err, store.Poison) // no repetition of the same batch is smaller
	}
	if err != nil {
		return nil, store.WithClass(err, store.Fatal)
	}
	v.out.Claims = v.claims.effects()
	return v, nil
}

// evaluate applies the records to their entities, in their order.
func (b *batch) evaluate(v *verdict, loaded []store.Entity) (err error) {
	for i := range b.subjects {
		s := &b.subjects[i]
		var row *store.Entity
		if s.known != nil {
			row = &s.known.row
		} else {
			row, loaded = &loaded[0], loaded[1:]
		}
		if s.evaluation, err = newEvaluation(v, *row); err != nil {
			return err
		}
	}
	dead := &evaluation{verdict: v} // for records that are dead already, and barriers
	for _, r := range b.records {
		if b.begin != nil {
			b.begin(r)
		}
		ev := dead
		if r.deadLetter == nil && !r.isBarrier() {
			ev = b.subjects[b.position[r.Entity]].evaluation
		}
		if err := ev.apply(r); err != nil {
			return err
		}
		ev.history.sent(b.plan, r)
	}
	for i := range b.subjects {
		s := &b.subjects[i]
		if s.row, s.write = s.result(); s.write {
			v.out.Entities = append(v.out.Entities, s.row)
			v.room -= len(s.row.Docs) + len(s.row.Fence)
		}
	}
	return nil
}

// putBack returns unchanged entities to the cache.
func (b *batch) putBack(c *cache) {
	for i := range b.subjects {
		if known := b.subjects[i].known; known != nil {
			c.keep(known)
		}
	}
}

// remember caches the entities of the committed batch.
func (b *batch) remember(c *cache) {
	if c.limit == 0 {
		return
	}
	for i := range b.subjects {
		s := &b.subjects[i]
		if s.crossPartition {
			continue
		}
		c.keep(s.remember(s.partition, s.row, s.write))
	}
}
