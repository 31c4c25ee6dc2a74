package imports

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/store"
)

// Desk ingests batches of one source in the process that has the state open. All fields are
// needed. It may be used concurrently.
type Desk struct {
	Store  Store
	Events *events.Handler
	Source *events.Source
	// Ready returns why no batch can be ingested now, nil when one can: an error of class
	// store.Superseded while another configuration is active, under which the rows may be of
	// another entity.
	Ready func(ctx context.Context) error
}

// NewDesk returns a desk for a source of a session's configuration that takes files.
func NewDesk(s *session.Session, source *config.Source) (*Desk, error) {
	shape, err := assemble.ExtractorOf(s.Config, source)
	if err != nil {
		return nil, err
	}
	inbox := &Inbox{Source: source.Name, Topic: s.Inbox.Topic, Append: s.Logs.Append}
	a := s.Config.API
	return &Desk{
		Store: s.Store,
		Events: events.New(events.Options{
			Ledger: s.Store, Keep: a.Idempotency.Retention.D(), MaxRows: a.MaxRows, Metrics: events.NewMetrics(prometheus.NewRegistry()), Logger: s.Logger,
		}),
		Source: &events.Source{Name: source.Name, Extractor: shape, Push: inbox, Patches: source.Mode == config.Patch},
		Ready: func(ctx context.Context) error {
			_, err := s.Active(ctx)
			return err
		},
	}, nil
}

// Ingest implements Ingest. A batch without rows that is not the last begins the import, or
// continues it.
func (d *Desk) Ingest(ctx context.Context, b Batch) (Import, error) {
	if err := d.Ready(ctx); err != nil {
		return Import{}, err
	}
	i, err := begin(ctx, d.Store, b.Import)
	switch {
	case err != nil || i.State == Done || i.Rows != b.After:
		return i, err
	case len(b.Rows) == 0 && !b.Last:
		crash.At(crash.ImportBegun, i.Source)
		return i, nil
	}
	next, letters, err := d.take(ctx, i, b)
	if err != nil {
		return i, err
	}
	crash.At(crash.ImportTaken, i.Source)
	if err := next.save(ctx, d.Store, letters); err != nil {
		// ErrFenced says that another run was faster, whose commit may still be under way: the
		// same batch again finds the position.
		return i, err
	}
	crash.At(crash.ImportStepped, i.Source)
	return next, nil
}

// take ingests rows and returns the import behind them and the refused ones.
func (d *Desk) take(ctx context.Context, i Import, b Batch) (_ Import, letters []store.DeadLetter, err error) {
	if i.Bytes, i.Rows = b.Bytes, i.Rows+int64(len(b.Rows)); b.Last {
		i.State = Done
	}
	var rows []events.Row
	var given []Row
	refuse := func(r Row, code, reason string) {
		i.Refused++
		letters = append(letters, letterOf(i, r, code, reason))
	}
	for _, r := range b.Rows {
		if r.Code != "" {
			refuse(r, r.Code, r.Reason)
			continue
		}
		rows, given = append(rows, events.Row{Value: r.Value, Origin: fmt.Sprintf("%s:%d", i.ID, r.Number)}), append(given, r)
	}
	results, err := d.Events.Take(ctx, i.job.Tenant, d.Source, rows)
	if err != nil {
		return i, nil, err
	}
	for n, x := range results {
		switch x.Status {
		case events.Accepted:
			i.Accepted++
		case events.Duplicate:
			i.Duplicate++
		case events.Skipped:
			refuse(given[n], "no_entity", "the event is about no entity")
		case events.Conflicting:
			refuse(given[n], "conflicting", "another event was ingested under this event id")
		default:
			reason := x.Refusal.Reason
			if x.Refusal.Code == ingest.BadJSON {
				reason += dialect(string(given[n].Value))
			}
			refuse(given[n], x.Refusal.Code, reason)
		}
	}
	slices.SortFunc(letters, func(a, b store.DeadLetter) int { return strings.Compare(a.DedupKey, b.DedupKey) })
	return i, letters, nil
}

// letterOf makes the dead letter of a refused row.
func letterOf(i Import, r Row, code, reason string) store.DeadLetter {
	headers, err := json.Marshal(map[string]string{"import": i.ID, "row": strconv.FormatInt(r.Number, 10), "line": strconv.FormatInt(r.Line, 10)})
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return store.DeadLetter{
		Stage: store.StageIngest, Code: code, Reason: reason, Source: i.Source, Payload: r.Value, Headers: headers,
		State: store.LetterOpen, DedupKey: letterKey(i.ID, r.Number),
	}
}

// Inbox appends prepared events to the inbox, like events.Pusher, also for sources that take no
// posts.
type Inbox struct {
	Source string // for crash points
	Topic  string
	Append func(ctx context.Context, records []transport.Record) error
}

// Push implements events.Pusher: all events are durable, or none is known to be.
func (x *Inbox) Push(ctx context.Context, pushed ...*message.Message) []error {
	errs := make([]error, len(pushed))
	events := make([]change.Record, len(pushed))
	for n, m := range pushed {
		events[n] = ingest.PreparedOf(m.Context()).Record()
	}
	records, err := operate.InboxRecords(x.Topic, events)
	if len(records) == 0 && err == nil {
		return nil
	}
	if crash.Enabled && len(records) > 1 && crash.Due(crash.ImportAppendHalf, x.Source) {
		_ = x.Append(ctx, records[:len(records)/2])
		crash.Die()
	}
	if err == nil {
		err = x.Append(ctx, records)
	}
	for n := range errs {
		errs[n] = err
	}
	return errs
}
