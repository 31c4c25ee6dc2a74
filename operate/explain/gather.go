package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// gather reads the store. The progress of deliveries comes before letters and rows: a change
// that became a letter, or that a newer one replaced, is passed only after that.
func (s *report) gather(ctx context.Context) error {
	var err error
	if s.reached, err = operate.ReadProgress(ctx, s.in.Store); err != nil {
		return err
	}
	filter := store.LetterFilter{Entity: s.Entity, State: store.LetterOpen, NewestFirst: true, Limit: maxLetters}
	if s.letters, err = s.in.Store.ListLetters(ctx, filter); err != nil {
		return err
	}
	s.letters = slices.DeleteFunc(s.letters, func(l store.DeadLetter) bool {
		return s.in.Service != "" && l.Service != "" && l.Service != s.in.Service
	})
	for _, l := range s.letters {
		s.Letters = append(s.Letters, operate.LetterOf(l))
	}
	filter.State = store.LetterRetrying
	if s.retrying, err = s.in.Store.ListLetters(ctx, filter); err != nil {
		return err
	}
	if s.entity, err = s.in.Store.Entity(ctx, s.Entity); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	s.Found = err == nil
	known, err := s.in.Store.KnownServices(ctx)
	if err != nil {
		return err
	}
	if _, ok := known[s.in.Service]; ok || s.in.Service == "" { // not of a check, or of a service that has not run yet
		s.Deliveries, err = operate.Deliveries(ctx, s.in.Store, operate.DeliveryQuery{Entity: s.Entity, Service: s.in.Service, Limit: maxDeliveries})
		if err != nil {
			return err
		}
	}
	if s.Checks, err = checkServices(ctx, s.in, known); err != nil {
		return err
	}
	if !s.Found {
		s.Looked = []string{
			"stored entities: there is none with this id; ids are compared byte for byte",
			fmt.Sprintf("open dead letters: %d name it", len(s.letters)),
			"an event whose id could not be read names no entity: weir dlq list --stage ingest has it",
		}
		return nil
	}
	s.Version = versionOf(s.entity.Version)
	if !s.entity.Deleted.IsZero() {
		s.Deleted = &s.entity.Deleted
	}
	s.rows = map[string]store.Row{}
	for name, number := range known {
		if row := s.entity.States.Get(number); row.Found {
			s.rows[name] = row
		}
	}
	if s.paused, err = operate.Paused(ctx, s.in.Store); err != nil {
		return err
	}
	processes, err := operate.Processes(ctx, s.in.Store)
	if err != nil {
		return err
	}
	s.failing = map[string]operate.ServiceHealth{}
	for i := range processes {
		for _, h := range processes[i].Services {
			if processes[i].Alive(time.Now()) && (h.State == deliver.StateRetrying || h.Cause == deliver.PausedByRefusal) {
				s.failing[h.Service] = h
			}
		}
	}
	// Every store of a process knows the active revision.
	if r, ok := s.in.Store.(interface {
		Active(ctx context.Context) (store.Revision, error)
	}); ok {
		active, err := r.Active(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		s.active = active.Number
	}
	return nil
}

func versionOf(v change.Version) string {
	if v == 0 {
		return ""
	}
	return v.String()
}
