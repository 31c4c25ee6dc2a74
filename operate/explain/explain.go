package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// Store is the part of a store that explain reads.
type Store interface {
	Entity(ctx context.Context, id string) (store.Entity, error)
	ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error)
	KnownServices(ctx context.Context) (map[string]int32, error)
	CheckRows(ctx context.Context, keys []store.Key) ([]store.CheckRow, error)
	operate.ProgressStore
	operate.DeliveryStore
	Pauses(ctx context.Context) ([]store.Pause, error)
	operate.ReportLister
}

// Input is the input of an explanation. It is not changed.
type Input struct {
	Config *config.Config
	Store  Store
	// Inbox is the current inbox, and Log reads its records. Log is nil when that is not
	// possible, and NoInbox says why.
	Inbox   store.Inbox
	Log     operate.Log
	NoInbox string
	Entity  string
	Service string // only this one; empty is all
	Payload bool   // with the payloads of events
}

// maxParts bounds the parts of the merged document that are shown.
const maxParts = 1000

// maxLetters bounds the dead letters that are shown, the newest first.
const maxLetters = 100

// maxDeliveries bounds the delivery attempts that are shown.
const maxDeliveries = 20

// ErrUnknownService is the error for a service that the configuration does not have.
var ErrUnknownService = errors.New("there is no such service in this configuration")

// Explain reports on one entity. An entity that is not stored is no error: Found is false, and
// check services may know it. The errors are errors of the store, ErrUnknownService, or say that
// stored state cannot be read. An inbox that does not answer is a note.
func Explain(ctx context.Context, in Input) (*Explanation, error) {
	if in.Service != "" && !slices.ContainsFunc(in.Config.Services(), func(s config.Service) bool { return s.Name == in.Service }) &&
		!slices.ContainsFunc(in.Config.Checks, func(c config.Check) bool { return c.Service() == in.Service }) {
		return nil, fmt.Errorf("%s: %w", in.Service, ErrUnknownService)
	}
	s := &report{Explanation: &Explanation{Entity: in.Entity, Events: []Event{}, Sources: []Source{}, Services: []Service{}}, in: in}
	if err := s.gather(ctx); err != nil || !s.Found {
		return s.Explanation, err
	}
	numbers := map[string]int32{} // those that the rows have
	for i, service := range in.Config.Services() {
		numbers[service.Name] = -int32(i) - 1 // nothing is stored under it
		if row, ok := s.rows[service.Name]; ok {
			numbers[service.Name] = row.Service
		}
	}
	var err error
	if s.plan, err = assemble.Plan(in.Config, numbers, 1); err != nil {
		return nil, err
	}
	if s.inspection, err = s.plan.Inspect(s.entity); err != nil {
		return nil, err
	}
	if s.inspection.MergeError != nil {
		s.Notes = append(s.Notes, "the source documents do not merge: "+s.inspection.MergeError.Error())
	} else if s.now, err = s.plan.Preview(s.entity, change.Control{Action: change.Redecide}); err != nil {
		return nil, err
	}
	s.events(ctx)
	if in.Service != "" { // requests for other services are no part of its report
		s.Events = slices.DeleteFunc(s.Events, func(e Event) bool {
			return e.Record != nil && len(e.Record.Services) > 0 && !slices.Contains(e.Record.Services, in.Service)
		})
	}
	s.documents()
	s.services()
	return s.Explanation, nil
}

// report builds an explanation.
type report struct {
	*Explanation
	in         Input
	entity     store.Entity
	rows       map[string]store.Row             // by service
	letters    []store.DeadLetter               // open
	retrying   []store.DeadLetter               // failed changes, and those behind them
	failing    map[string]operate.ServiceHealth // as live processes reported lately
	reached    *operate.DeliveryProgress
	paused     map[string]store.Pause
	plan       *decide.Plan
	inspection *decide.Inspection
	now        decide.Step // what would be decided now
	active     int64       // the active revision; 0 is unknown
}
