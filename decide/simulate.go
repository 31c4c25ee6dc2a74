package decide

import (
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/sketch"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// Simulator decides records one by one in memory, by the code that decides
// them in production: evaluation and settlement are the same, only store and
// log are maps. For golden tests and dry runs. Not for concurrent use.
type Simulator struct {
	plan     *Plan
	entities map[string]store.Entity
	rows     map[store.Key]*store.Row
	claims   map[store.ClaimID]change.Version
	uses     map[store.KeyDigest]store.Decided
	offset   int64
	board    *sketch.Collector // as Options.Noise
}

// NewSimulator starts with an empty state. plan must be prepared.
func NewSimulator(plan *Plan) *Simulator {
	return &Simulator{plan: plan, entities: map[string]store.Entity{}, rows: map[store.Key]*store.Row{}, claims: map[store.ClaimID]change.Version{}, uses: map[store.KeyDigest]store.Decided{}}
}

// Step is what became of one record.
type Step struct {
	Outcome string // stale, noise, merged, control or dead
	// Sent are the changes that passed, in the order of the services.
	Sent []change.Change
	// Held are the services whose projection is equal to what they have; Filtered
	// those that have nothing of the entity and are to have nothing, Incomplete those
	// that wait for a required source; Pruned those that were not evaluated.
	Held, Filtered, Incomplete, Pruned []string
	Letters                            []store.DeadLetter
}

// Apply decides one record; at is its timestamp.
func (s *Simulator) Apply(rec inbox.Record, at time.Time) (Step, error) {
	key, head, value, err := inbox.Encode(rec)
	if err != nil {
		return Step{}, err
	}
	in := transport.Received{Key: key, Value: value, Headers: []transport.Header{{Key: inbox.Header, Value: head}}, Offset: s.offset, Time: at}
	d := &Decider{opt: Options{Plan: s.plan, Inbox: store.Inbox{Generation: 1}}}
	r := new(record)
	d.parse(r, transport.NewFrame("", "", 0, 0, []transport.Received{in}), 0)
	s.offset++

	entity := s.entities[rec.Entity]
	entity.ID = rec.Entity
	ev, err := newEvaluation(s.plan, entity)
	if err != nil {
		return Step{}, err
	}
	ev.watch = newWatch(s.board)
	claimed, _ := claimsOf([]*record{r})
	ev.claims = newClaims(len(claimed), store.Loaded{Decided: s.claims, Uses: s.uses})
	if err := ev.apply(r); err != nil {
		return Step{}, err
	}
	rows, err := readRows(s.plan, ev.candidates, func(keys []store.Key) ([]store.Row, error) {
		found := make([]store.Row, len(keys))
		for i, k := range keys {
			found[i].Key = k
			if row := s.rows[k]; row != nil {
				found[i] = *row
			}
		}
		return found, nil
	})
	if err != nil {
		return Step{}, err
	}
	result, err := settle(s.plan, ev.candidates, rows, maxOutcomeOfOne)
	if err != nil {
		return Step{}, err
	}
	ev.watch.report(ev.counts, result.causes)
	ev.trail.sent(s.plan, r)
	if row, dirty := ev.result(); dirty {
		row.Found = true
		s.entities[rec.Entity] = row
	}
	for _, c := range ev.claims.effects() {
		s.claims[c.ID] = c.Version
		if c.Key != (store.KeyDigest{}) {
			s.uses[c.Key] = c
		}
	}
	for k, row := range rows {
		if row.Found {
			s.rows[k] = row
		}
	}
	step := Step{Sent: result.changes, Letters: append(ev.letters, result.letters...)}
	for k := range ev.counts.outcomes {
		step.Outcome = string(k.outcome)
	}
	step.apart(s.plan, &ev.counts, &result)
	return step, nil
}

// apart fills in the services that nothing was sent to, in their order.
func (s *Step) apart(p *Plan, counts *evaluationCounts, result *settled) {
	for i, service := range p.Services {
		for decision, names := range map[string]*[]string{
			DecisionHeldBack: &s.Held, DecisionFiltered: &s.Filtered, DecisionIncomplete: &s.Incomplete, DecisionPruned: &s.Pruned,
		} {
			if of := (decisionOf{i, decision}); result.decisions[of]+counts.decisions[of] > 0 {
				*names = append(*names, service.Name)
			}
		}
	}
}

// String is for messages of tests.
func (s Step) String() string {
	return fmt.Sprintf("%s: sent %d, held back %v, filtered %v, incomplete %v, pruned %v", s.Outcome, len(s.Sent), s.Held, s.Filtered, s.Incomplete, s.Pruned)
}
