package operate

import (
	"context"
	"errors"
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/store"
)

// trace identifies a replayed record in the history of its entity.
type trace struct{ source, id string }

func traceIn(r change.Record) trace {
	if r.Control != nil {
		return trace{string(r.Control.Action), r.Control.ID}
	}
	if r.Event != nil {
		return trace{r.Event.Source, r.Event.EventID}
	}
	return trace{}
}

// FillSent adds the outcome of each letter under way and, for a replayed one, the services that
// it was sent to, from the history of its entity; after Wait. Expired history stays unknown.
func (e *Env) FillSent(ctx context.Context, all []LetterReplay) error {
	for i := range all {
		r := &all[i]
		if r.Refused != "" {
			continue
		}
		l, err := e.Store.Letter(ctx, r.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if r.State = l.State; r.State != store.LetterReplayed {
			continue
		}
		entity, err := e.Store.Entity(ctx, r.Entity)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		in, err := e.Plan.Inspect(entity)
		if err != nil {
			return err
		}
		r.Sent = e.sentBy(in.History, r.trace)
	}
	return nil
}

// sentBy returns the services that the newest record of a trace sent something to.
func (e *Env) sentBy(t decide.History, of trace) []string {
	for i := len(t.Entries) - 1; i >= 0; i-- {
		entry := t.Entries[i]
		if entry.Source != of.source || !strings.HasPrefix(of.id, entry.EventID) || (entry.EventID == "") != (of.id == "") {
			continue
		}
		sent := []string{}
		for s := range e.Plan.Services {
			if t.Decided(e.Plan, i, s) == decide.DecisionSent {
				sent = append(sent, e.Plan.Services[s].Name)
			}
		}
		return sent
	}
	return nil
}
