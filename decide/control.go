package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// control applies an operator's, deliver's or housekeeping's request.
func (ev *evaluation) control(r *record) error {
	c := r.Control
	if c.Action == change.Barrier {
		ev.hearing.barrier(r)
		ev.outcomes[outcomeOf{"control", outcomeControl}]++
		r.outcome, r.stale = outcomeControl, fresh
		return nil
	}
	if c.Action == change.Purge {
		ev.purge(r)
		return nil
	}
	ev.count(r, outcomeControl)
	crash.At(crash.DecideControl, "")
	if c.Action != change.Refuse { // which says nothing that the entity must know
		ev.dirty = ev.exists()
	}
	ev.audit(r)
	switch services := ev.plan.named(c.Services); c.Action {
	case change.Refuse:
		// Refused content is held back until the view changes: no event has to evaluate it.
		ev.amend(c, services)
	case change.Reset:
		ev.amend(c, services)
		// The next event must evaluate these services even if it changes nothing.
		if ev.exists() {
			ev.current, ev.dirty = false, true
			ev.stored.Fingerprint = nil
		}
	case change.ResetOrder:
		for _, s := range ev.fence {
			s.Sequence = ""
		}
	case change.Redecide:
		return ev.redecide(r, services)
	case change.Resend:
		ev.resend(r)
	default:
		ev.addLetter(letterOf(r, "control", fmt.Sprintf("unknown action %q", c.Action)))
	}
	return nil
}

// named returns the services that have these names, by index; all without names.
func (p *Plan) named(names []string) []int {
	services := make([]int, 0, len(p.Services))
	for i := range p.Services {
		if len(names) == 0 {
			services = append(services, i)
		}
	}
	for _, name := range names {
		if i, ok := p.byName[name]; ok {
			services = append(services, i)
		}
	}
	return services
}

// byShape groups services by the shape of their projections.
func (p *Plan) byShape(services []int) (groups [][]int) {
	at := make(map[int]int, len(services))
	for _, s := range services {
		shape := p.alike[p.Services[s].Projection]
		i, known := at[shape]
		if !known {
			i = len(groups)
			at[shape], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], s)
	}
	return groups
}

// purge deletes the entity, if it is a tombstone whose changes are all delivered. It leaves no
// trace of the request.
func (ev *evaluation) purge(r *record) {
	ev.outcomes[outcomeOf{"control", outcomeControl}]++
	r.outcome, r.stale = outcomeControl, fresh
	if !ev.exists() || ev.stored.Deleted.IsZero() || ev.newest() >= r.Control.Version {
		return
	}
	// A later record starts the entity from nothing.
	ev.entityState = entityState{stored: store.Entity{ID: ev.stored.ID}, docs: ev.docs, fence: ev.fence}
	clear(ev.docs)
	clear(ev.fence)
	ev.dirty, ev.moved, ev.layered = false, false, nil
	if !slices.Contains(ev.out.Purged, r.Entity) {
		ev.out.Purged = append(ev.out.Purged, r.Entity)
	}
}

// newest is the highest version of the entity and of its dam states.
func (ev *evaluation) newest() change.Version {
	newest := ev.stored.Version
	for _, row := range ev.states.All(ev.stored.ID) {
		newest = max(newest, row.Version)
	}
	return newest
}

// redecide offers the present document to services.
func (ev *evaluation) redecide(r *record, services []int) error {
	c := r.Control
	if _, err := ev.view(); err != nil {
		ev.addLetter(letterOf(r, "merge", err.Error()))
		ev.resolve(c.Letter, store.LetterReplayed) // it failed again, as a new dead letter
		ev.markUnknown(c, services)
		return nil
	}
	ev.history.redecided(ev.plan, c)
	if c.Outdated {
		if ev.current && ev.exists() {
			return nil // an event came first
		}
		if fresh, known := ev.newServices(); known {
			services = slices.DeleteFunc(services, func(s int) bool { return !fresh[s] })
		}
	}
	offered := false
	for _, of := range ev.plan.byShape(services) {
		shown, err := ev.offer(r, ev.plan.alike[ev.plan.Services[of[0]].Projection], of)
		if err != nil {
			return err
		}
		offered = offered || shown
	}
	if len(services) > 0 && !offered {
		ev.resolve(c.Letter, store.LetterReplayed) // it failed again, as a new dead letter
	}
	// All services and no force: the entity is now evaluated under this plan.
	if len(c.Services) == 0 && ev.exists() && !ev.current {
		ev.current, ev.dirty = true, true
	}
	return nil
}

// resend sends a change once more as it is. It is late by nature; the dam state stays
// that of the newest.
func (ev *evaluation) resend(r *record) {
	c, rest, err := change.Decode(r.Control.Change)
	service, known := ev.plan.byName[c.Service]
	if err != nil || len(rest) > 0 || c.Entity != r.Entity || !known {
		ev.addLetter(letterOf(r, "control", "what is to be sent again is no change of this entity for a service of this configuration"))
		return
	}
	ev.resolve(r.Control.Letter, store.LetterReplayed)
	if row := ev.states.Get(ev.plan.Services[service].Number); row.Found && row.Refused && row.Version == c.Version {
		row.Refused = false // it is under way again
		ev.states.Set(row)
	}
	c.Resent, c.Trace, c.Effect = r.version, r.span.Trace(), change.Keeps // that of the first time was counted
	ev.send(r, service, &c, sizeOf(&c))
}

// amend changes the dam states of services for a request that sends nothing.
func (ev *evaluation) amend(c *change.Control, services []int) {
	for _, s := range services {
		if row := ev.states.Get(ev.plan.Services[s].Number); amended(c, &row) {
			ev.states.Set(row)
		}
	}
}

// audit writes the audit row of a control record. A part of an operator's request has
// none of its own: the request has one, with the count, and a dead letter has one.
func (ev *evaluation) audit(r *record) {
	c := r.Control
	if c.Actor == change.Deliver || c.Actor == change.Refresh {
		return
	}
	if c.Operation != "" && c.Letter == 0 {
		return
	}
	ev.out.Audit = append(ev.out.Audit, store.Audit{
		Actor: c.Actor, Action: string(c.Action), Reason: c.Reason,
		Entity: r.Entity, Service: strings.Join(c.Services, ","), Detail: auditDetail(c.Operation, c.Letter, ""),
	})
}

// replayed resolves a dead letter that was replayed as an event.
func (ev *evaluation) replayed(r *record, reason staleReason) {
	p := r.Event.Replay
	if p == nil {
		return
	}
	state := store.LetterReplayed
	if reason != fresh {
		state = store.LetterObsolete
	}
	ev.resolve(p.Letter, state)
	ev.out.Audit = append(ev.out.Audit, store.Audit{
		Actor: p.Actor, Action: "replay event", Reason: p.Reason, Entity: r.Entity, Detail: auditDetail(p.Operation, p.Letter, state),
	})
}

// resolve sets the state of a dead letter, if there is one.
func (ev *evaluation) resolve(letter int64, state store.LetterState) {
	if letter != 0 {
		ev.out.Settled = append(ev.out.Settled, store.LetterResolution{ID: letter, State: state})
	}
}

// auditDetail is the JSON object of an audit row; nil when it would be empty.
func auditDetail(operation string, letter int64, outcome store.LetterState) []byte {
	if operation == "" && letter == 0 {
		return nil
	}
	text, _ := json.Marshal(struct { // strings and a number always have a JSON form
		Operation string            `json:"operation,omitempty"`
		Letter    int64             `json:"letter,omitempty"`
		Outcome   store.LetterState `json:"outcome,omitempty"`
	}{operation, letter, outcome})
	return text
}
