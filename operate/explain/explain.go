package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/projections/merge"
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

// revisions is a Store that knows the active revision, which every store of a process does.
type revisions interface {
	Active(ctx context.Context) (store.Revision, error)
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
// check services may know it. The errors are those of the store, ErrUnknownService, or say that
// stored state cannot be read. An inbox that does not answer is a note.
func Explain(ctx context.Context, in Input) (*Explanation, error) {
	if in.Service != "" && !slices.ContainsFunc(in.Config.Services(), func(s config.Service) bool { return s.Name == in.Service }) &&
		!slices.ContainsFunc(in.Config.Checks, func(c config.Check) bool { return c.Service() == in.Service }) {
		return nil, fmt.Errorf("%s: %w", in.Service, ErrUnknownService)
	}
	// Before letters and rows: a change that became a letter, or that a newer one
	// replaced, is passed only after that.
	reached, err := operate.ReadProgress(ctx, in.Store)
	if err != nil {
		return nil, err
	}
	letters, err := in.Store.ListLetters(ctx, store.LetterFilter{Entity: in.Entity, State: store.LetterOpen, NewestFirst: true, Limit: maxLetters})
	if err != nil {
		return nil, err
	}
	letters = slices.DeleteFunc(letters, func(l store.DeadLetter) bool {
		return in.Service != "" && l.Service != "" && l.Service != in.Service
	})
	retrying, err := in.Store.ListLetters(ctx, store.LetterFilter{Entity: in.Entity, State: store.LetterRetrying, NewestFirst: true, Limit: maxLetters})
	if err != nil {
		return nil, err
	}
	x := &Explanation{Entity: in.Entity, Events: []Event{}, Sources: []Source{}, Services: []Service{}}
	for _, l := range letters {
		x.Letters = append(x.Letters, letterOf(l))
	}
	if x.Deliveries, err = deliveries(ctx, in); err != nil {
		return nil, err
	}
	if x.Checks, err = checkServices(ctx, in); err != nil {
		return nil, err
	}
	entity, err := in.Store.Entity(ctx, in.Entity)
	if errors.Is(err, store.ErrNotFound) {
		x.Looked = []string{
			"stored entities: there is none with this id; ids are compared byte for byte",
			fmt.Sprintf("open dead letters: %d name it", len(letters)),
			"an event whose id could not be read names no entity: weir dlq list --stage ingest has it",
		}
		return x, nil
	}
	if err != nil {
		return nil, err
	}
	known, err := in.Store.KnownServices(ctx)
	if err != nil {
		return nil, err
	}
	paused, err := operate.Suspended(ctx, in.Store)
	if err != nil {
		return nil, err
	}
	failing, err := failingServices(ctx, in.Store)
	if err != nil {
		return nil, err
	}
	s := &report{Explanation: x, in: in, entity: entity, letters: letters, retrying: retrying, reached: reached, paused: paused, failing: failing, rows: map[string]store.Row{}}
	for name, number := range known {
		if row := entity.States.Get(number); row.Found {
			s.rows[name] = row
		}
	}
	if err := s.compile(); err != nil {
		return nil, err
	}
	x.Found = true
	x.Version = versionOf(entity.Version)
	if !entity.Deleted.IsZero() {
		x.Deleted = &entity.Deleted
	}
	if r, ok := in.Store.(revisions); ok {
		active, err := r.Active(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		s.active = active.Number
	}
	x.Complete, x.Current = s.inspection.Complete, s.inspection.Current
	s.events(ctx)
	if in.Service != "" { // requests for other services are no part of its report
		s.Events = slices.DeleteFunc(s.Events, func(e Event) bool {
			return e.Record != nil && len(e.Record.Services) > 0 && !slices.Contains(e.Record.Services, in.Service)
		})
	}
	s.sources()
	s.merged()
	return x, s.services()
}

// failingServices returns the services whose deliveries fail, as live processes reported lately.
func failingServices(ctx context.Context, s Store) (map[string]operate.ServiceHealth, error) {
	processes, err := operate.Processes(ctx, s)
	failing := map[string]operate.ServiceHealth{}
	for i := range processes {
		for _, h := range processes[i].Services {
			if processes[i].Alive(time.Now()) && (h.State == deliver.StateRetrying || h.State == deliver.StatePaused) {
				failing[h.Service] = h
			}
		}
	}
	return failing, err
}

// deliveries returns the newest attempts to deliver something of the entity.
func deliveries(ctx context.Context, in Input) ([]operate.Delivery, error) {
	if in.Service != "" {
		known, err := in.Store.KnownServices(ctx)
		if _, ok := known[in.Service]; err != nil || !ok { // of a check, or of a service that has not run yet
			return nil, err
		}
	}
	return operate.Deliveries(ctx, in.Store, operate.DeliveryQuery{Entity: in.Entity, Service: in.Service, Limit: maxDeliveries})
}

// report builds an explanation.
type report struct {
	*Explanation
	in         Input
	entity     store.Entity
	rows       map[string]store.Row // by service
	letters    []store.DeadLetter   // open
	retrying   []store.DeadLetter   // failed changes, and those behind them
	failing    map[string]operate.ServiceHealth
	reached    *operate.DeliveryProgress
	paused     map[string]deliver.Suspension
	plan       *decide.Plan
	inspection *decide.Inspection
	now        decide.Step // what would be decided now
	active     int64       // the active revision; 0 is unknown
}

// compile compiles the configuration with the numbers that the rows have, and
// looks at the entity with it.
func (s *report) compile() error {
	numbers := map[string]int32{}
	for i, service := range s.in.Config.Services() {
		numbers[service.Name] = -int32(i) - 1 // nothing is stored under it
		if row, ok := s.rows[service.Name]; ok {
			numbers[service.Name] = row.Service
		}
	}
	var err error
	if s.plan, err = assemble.Plan(s.in.Config, numbers, 1); err != nil {
		return err
	}
	if s.inspection, err = s.plan.Inspect(s.entity); err != nil {
		return err
	}
	if s.inspection.MergeError != nil {
		s.Notes = append(s.Notes, "the source documents do not merge: "+s.inspection.MergeError.Error())
		return nil //nolint:nilerr // the note has it
	}
	s.now, err = s.plan.Preview(s.entity, change.Control{Action: change.Redecide})
	return err
}

func versionOf(v change.Version) string {
	if v == 0 {
		return ""
	}
	return v.String()
}

func letterOf(l store.DeadLetter) Letter {
	return Letter{
		ID: l.ID, Created: l.Created, Last: l.Last, Count: l.Count, Stage: l.Stage, Code: l.Code, Reason: l.Reason,
		Source: l.Source, Service: l.Service, EventID: l.EventID, Version: versionOf(l.Version),
	}
}

// sources lists the source documents by precedence, also those of sources that
// the configuration no longer has.
func (s *report) sources() {
	seen := map[string]*decide.Seen{}
	for i := range s.inspection.Seen {
		seen[s.inspection.Seen[i].Source] = &s.inspection.Seen[i]
	}
	text := func(n canonicaltree.Node) json.RawMessage {
		if !n.Exists() {
			return nil
		}
		return json.RawMessage(n.Raw())
	}
	known := map[string]bool{}
	for _, name := range byPrecedence(s.in.Config) {
		c := s.in.Config.Sources.Find(name)
		known[name] = true
		required := slices.Contains(s.in.Config.Merge.Required, name)
		doc := s.inspection.Docs[name]
		if required && !doc.Exists() {
			s.Missing = append(s.Missing, name)
		}
		s.Sources = append(s.Sources, Source{
			Source: name, Mode: c.Mode, Mount: c.Mount, Required: required, Document: text(doc), Seen: seen[name], Position: s.lastPosition(name, seen[name]),
		})
	}
	var gone []string
	for name := range s.inspection.Docs {
		if !known[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		s.Sources = append(s.Sources, Source{Source: name, Document: text(s.inspection.Docs[name]), Seen: seen[name], Position: s.lastPosition(name, seen[name]), Unknown: true})
	}
}

// byPrecedence lists the names of all sources, the strongest first.
func byPrecedence(c *config.Config) []string {
	names := slices.Clone(c.Merge.Precedence)
	for i := range c.Sources {
		if !slices.Contains(names, c.Sources[i].Name) {
			names = append(names, c.Sources[i].Name)
		}
	}
	return names
}

func (s *report) merged() {
	if !s.inspection.Merged.Exists() {
		return
	}
	d := &Document{Document: json.RawMessage(s.inspection.Merged.Raw()), Parts: []Part{}}
	s.plan.Merge.Parts(s.inspection.Docs, func(p merge.Part) bool {
		if len(d.Parts) == maxParts {
			d.More++
			return true
		}
		d.Parts = append(d.Parts, Part{Path: p.Path.String(), Value: json.RawMessage(p.Value.Raw()), Source: p.Source, Over: slices.Clone(p.Over)})
		return true
	})
	s.Merged = d
}

// services looks at each service.
func (s *report) services() error {
	for _, service := range s.in.Config.Services() {
		if s.in.Service != "" && service.Name != s.in.Service {
			continue
		}
		v, err := s.service(service)
		if err != nil {
			return err
		}
		s.Services = append(s.Services, v)
	}
	return nil
}

func (s *report) service(c config.Service) (Service, error) {
	out := Service{Service: c.Name, Filter: s.in.Config.Projections[c.Projection].When}
	if c.Current != c.Name {
		out.Renamed = c.Current
	}
	view, err := s.inspection.View(c.Projection)
	if err != nil {
		out.Fault = err.Error()
	} else if s.inspection.MergeError == nil {
		out.Match, out.View, out.Hash = view.Match, view.Doc, view.Content.String()
	}
	row, sent := s.rows[c.Name]
	if sent {
		out.Last = &LastSent{Version: versionOf(row.Version), State: "upsert"}
		switch {
		case row.Content == nil:
			out.Last.State = "unknown"
		case row.Refused:
			out.Last.State, out.Last.Hash = "refused", row.Content.String()
		case row.Content.IsRetracted():
			out.Last.State = "retracted"
		default:
			out.Last.Hash = row.Content.String()
		}
		partition := s.reached.Partition(s.Entity, row.Version)
		at := s.reached.Position(partition, row.Service).Version
		out.Position, out.Behind = versionOf(at), s.reached.Waiting(partition, row.Service)
		out.Queued = row.Content != nil && !row.Refused && row.Version >= at
		if p, is := s.paused[c.Name]; is && p.Hold != nil {
			out.Paused = "the guard holds the service: " + p.Why
		} else if is {
			out.Paused = "the service is paused by " + p.By
		}
		parked := slices.IndexFunc(s.retrying, func(l store.DeadLetter) bool { return l.Service == c.Name })
		if h, failing := s.failing[c.Name]; failing {
			out.Waits = fmt.Sprintf("its target fails since %s: %s", h.Since.Format(time.RFC3339), h.Error)
		}
		if parked >= 0 && row.Content != nil && !row.Refused && s.retrying[parked].Version == row.Version {
			l := &s.retrying[parked]
			out.Queued, out.Waits = true, "an earlier change of the entity fails, and this one follows it"
			if l.Attempts > 0 {
				out.Waits = fmt.Sprintf("it failed %d times (%s), and is tried again at %s", l.Attempts, l.Reason, l.NextTry.Format(time.RFC3339))
			}
		}
		out.Last.Delivered = !out.Queued && row.Content != nil && !row.Refused && row.Version < at && !slices.ContainsFunc(s.letters, func(l store.DeadLetter) bool {
			return l.Service == c.Name && l.Version == row.Version
		})
	}
	out.WouldSend = slices.ContainsFunc(s.now.Sent, func(x change.Change) bool { return x.Service == c.Name })
	var decided change.Version // the newest event that is known to have been decided for the service
	for i := range s.Events {
		became := s.outcomeOf(i, c, &out, row)
		out.Events = append(out.Events, became)
		if slices.Contains([]string{"sent", "delivered", "held back", "filtered", "refused"}, became) {
			decided = max(decided, change.Version(s.Events[i].version))
		}
	}
	var newest *store.DeadLetter // unless something was decided since
	for i := range s.letters {
		if l := &s.letters[i]; l.Service == c.Name {
			out.Letters = append(out.Letters, l.ID)
			if (row.Refused || l.Version >= decided) && (newest == nil || l.Version >= newest.Version) {
				newest = l
			}
		}
	}
	s.verdict(&out, c, row, sent, newest)
	return out, nil
}

// outcomeOf returns the outcome of an event for a service.
func (s *report) outcomeOf(i int, c config.Service, out *Service, row store.Row) string {
	sent := out.Last != nil
	e := s.Events[i]
	for _, l := range s.letters {
		if l.Service == c.Name && uint64(l.Version) == e.version {
			return "dead letter"
		}
	}
	if sent && uint64(row.Version) == e.version && row.Content != nil {
		switch {
		case row.Refused:
			return "refused"
		case out.Last.Delivered:
			return "delivered"
		}
		return "sent"
	}
	if e.Action == "" && e.Outcome != decide.HistoryMerged && e.Outcome != decide.HistoryIncomplete {
		word, _, _ := strings.Cut(e.Outcome, ":")
		return word
	}
	if e.Record != nil && len(e.Record.Services) > 0 && !slices.Contains(e.Record.Services, c.Name) {
		return "-" // it was about others
	}
	service := slices.IndexFunc(s.plan.Services, func(p decide.Service) bool { return p.Name == c.Name })
	switch decision := s.inspection.History.Decided(s.plan, e.entry, service); {
	case decision != "":
		return strings.ReplaceAll(decision, "_", " ")
	case e.Action != "":
		return e.Action
	}
	if !s.Current || s.active == 0 {
		return "other revision"
	}
	return fmt.Sprintf("before revision %d", s.active)
}
