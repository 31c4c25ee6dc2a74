package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// showLetter prints one dead letter with its payload.
func showLetter(ctx context.Context, a *app, text string) error {
	id, err := letterID(text)
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(s assemble.Store) error {
		l, err := s.Letter(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("there is no dead letter %d", id)
		}
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(operate.LetterOf(l))
		}
		if err := a.facts(letterFacts(&l)...); err != nil {
			return err
		}
		payload := string(l.Payload)
		if isTerminal(a.out) {
			payload = terminal.Harmless(payload)
		}
		_, err = fmt.Fprintf(a.out, "\n%s\n", payload)
		return err
	})
}

// letterFacts returns everything about a dead letter except its payload.
func letterFacts(l *store.DeadLetter) []any {
	facts := []any{"id", l.ID, "first", l.Created}
	if l.Count > 1 {
		facts = append(facts, "last", l.Last, "count", l.Count)
	}
	facts = append(facts, "state", l.State, "stage", l.Stage, "reason", l.Code+": "+l.Reason, "source", l.Source, "service", l.Service, "entity", l.Entity, "event id", l.EventID)
	if l.Version != 0 {
		facts = append(facts, "version", l.Version)
	}
	if l.Topic != "" {
		facts = append(facts, "origin", fmt.Sprintf("%s, partition %d, offset %d", l.Topic, l.Part, l.Offset))
	}
	if l.Original != nil {
		facts = append(facts, "edited", fmt.Sprintf("yes; it had %d bytes at first", len(l.Original)))
	}
	return facts
}
