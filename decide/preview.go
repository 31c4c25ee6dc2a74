package decide

import (
	"time"

	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/store"
)

// Preview tells what a control record would do to a stored entity, without
// doing it: which services would be sent something and which be held back. It is
// the code that decides, on rows that rows reads. The version of the changes is
// made up. It may be called concurrently.
func (p *Plan) Preview(e store.Entity, c inbox.Control, rows store.Lookup) (Step, error) {
	r := &record{Record: inbox.Record{Entity: e.ID, Control: &c}, version: e.Version + 1, at: time.Unix(0, 0).UTC()}
	ev, err := newEvaluation(p, e)
	if err != nil {
		return Step{}, err
	}
	if err := ev.apply(r); err != nil {
		return Step{}, err
	}
	found, err := readRows(p, ev.candidates, rows)
	if err != nil {
		return Step{}, err
	}
	result, err := settle(p, ev.candidates, found, maxOutcomeOfOne)
	if err != nil {
		return Step{}, err
	}
	step := Step{Outcome: string(outcomeControl), Sent: result.changes, Letters: append(ev.letters, result.letters...)}
	step.apart(p, &ev.counts, &result)
	return step, nil
}

// Service returns a service of the plan by its name.
func (p *Plan) Service(name string) (Service, bool) {
	i, ok := p.byName[name]
	if !ok {
		return Service{}, false
	}
	return p.Services[i], true
}

// Current reports whether an entity's services were last evaluated under this plan.
func (p *Plan) Current(e store.Entity) bool { return p.current(e.Fingerprint) }
