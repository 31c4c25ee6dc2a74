package decide

import (
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// Simulator decides records one by one in memory, by the code that decides them in
// production: only the store is a map. For golden tests and dry runs. Not for concurrent
// use.
type Simulator struct {
	plan      *Plan
	entities  map[string]store.Entity
	claims    map[store.ClaimID]change.Version
	uses      map[store.KeyDigest]store.Decided
	offset    int64
	collector *fieldcount.Collector // as Options.Noise
}

// NewSimulator starts with an empty state. plan must be prepared.
func NewSimulator(plan *Plan) *Simulator {
	return &Simulator{plan: plan, entities: map[string]store.Entity{}, claims: map[store.ClaimID]change.Version{}, uses: map[store.KeyDigest]store.Decided{}}
}

// Step is the outcome of one record.
type Step struct {
	Outcome string // stale, noise, merged, control or dead
	// Sent are the changes that passed, in the order of the projections.
	Sent []change.Change
	// Held are the services whose view equals the one that they have; Filtered
	// those that have nothing of the entity and are to have nothing, Incomplete those
	// that wait for a required source; Pruned those that were not evaluated.
	Held, Filtered, Incomplete, Pruned []string
	Letters                            []store.DeadLetter
	Settled                            []store.LetterResolution
}

// Apply decides one record; at is its timestamp.
func (s *Simulator) Apply(rec change.Record, at time.Time) (Step, error) {
	key, head, value, err := change.EncodeRecord(rec)
	if err != nil {
		return Step{}, err
	}
	in := transport.Received{Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}, Offset: s.offset, Time: at}
	d := &Decider{opt: Options{Plan: s.plan, Inbox: store.Inbox{Generation: 1}}}
	r := new(record)
	d.parse(r, transport.NewFrame("", "", 0, 0, []transport.Received{in}), 0)
	s.offset++

	b := newBatch(s.plan, []*record{r}, unbounded, noCache)
	b.single, b.noise = true, s.collector
	entity := s.entities[rec.Entity]
	entity.ID = rec.Entity
	v, err := decideBatch(b, store.Loaded{Entities: []store.Entity{entity}, Decided: s.claims, Uses: s.uses})
	if err != nil {
		return Step{}, err
	}
	v.observer.report(v.outcomes)
	for _, id := range v.out.Purged {
		delete(s.entities, id)
	}
	for _, e := range v.out.Entities {
		e.Found, e.States = true, e.States.Stored()
		e.Writes++
		s.entities[e.ID] = e
	}
	for _, c := range v.out.Claims {
		s.claims[c.ID] = c.Version
		if c.Key != (store.KeyDigest{}) {
			s.uses[c.Key] = c
		}
	}
	return v.step(), nil
}

// step is the outcome of the one record of a batch.
func (v *verdict) step() Step {
	step := Step{Letters: v.out.Letters, Settled: v.out.Settled}
	for i := range v.changes {
		step.Sent = append(step.Sent, v.changes[i].Change)
	}
	for k := range v.outcomes {
		step.Outcome = string(k.outcome)
	}
	for i, service := range v.plan.Services {
		for decision, names := range map[string]*[]string{
			DecisionHeldBack: &step.Held, DecisionFiltered: &step.Filtered, DecisionIncomplete: &step.Incomplete, DecisionPruned: &step.Pruned,
		} {
			if v.decisions.get(i, kindOf(decision)) > 0 {
				*names = append(*names, service.Name)
			}
		}
	}
	return step
}
