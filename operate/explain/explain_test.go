package explain_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

const mainFile = `
sources:
  registry:
    file: {path: registry.jsonl}
    entity: id
    event_id: ev
    sequence: seq
    strip: [ts]
  lab:
    file: {path: lab.jsonl}
    entity: id
    mode: patch
    mount: lab
merge: {precedence: [registry, lab], required: [registry]}
customers: ["customers/*.yaml"]
`

const acme = `
customer: acme
projections:
  ripeness:
    when: doc.origin in ["EC", "CO"]
    fields: {banana_id: id, level: level, sugar: {path: lab.sugar, default: 0}}
    deliver: {archive: {file: {path: out/a.jsonl}}}
`

const zest = `
customer: zest
projections:
  list:
    fields: {banana_id: id}
    deliver:
      archive: {file: {path: out/z.jsonl}}
      hook: {webhook: {url: "https://zest.example/hook", secret: "whsec_YmFuYW5hYmFuYW5hYmFuYW5hYmFuYW5h"}, pace: {settle: 2s}}
`

// world is a configuration with a simulated state behind it.
type world struct {
	t       *testing.T
	config  *config.Config
	sim     *decide.Simulator
	records []change.Record
	entity  func(store.Entity) store.Entity
	dead    []store.DeadLetter
	// attempts are those to deliver, the newest first.
	attempts  []store.Attempt
	checked   map[int32]store.CheckRow
	reached   map[string]int64 // offset of the position of a service; the others have reached the end
	first     int64            // of the inbox
	broken    error
	paused    []store.Pause
	processes []operate.Process
}

func (w *world) ListReports(context.Context, string) (all []store.Report, err error) {
	for _, p := range w.processes {
		body, err := json.Marshal(p)
		require.NoError(w.t, err)
		all = append(all, store.Report{Name: p.Name, Body: body})
	}
	return all, nil
}

func (w *world) Pauses(context.Context) ([]store.Pause, error) { return w.paused, nil }

func newWorld(t *testing.T) *world { return worldOf(t, acme) }

func worldOf(t *testing.T, acme string) *world {
	c := load(t, map[string]string{"weir.yaml": mainFile, "customers/acme.yaml": acme, "customers/zest.yaml": zest})
	numbers := map[string]int32{}
	for i, s := range c.Services() {
		numbers[s.Name] = int32(i + 1)
	}
	plan, err := assemble.Plan(c, numbers, 1)
	require.NoError(t, err)
	return &world{
		t: t, config: c, sim: decide.NewSimulator(plan),
		entity: func(e store.Entity) store.Entity { return e },
	}
}

func load(t *testing.T, files map[string]string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(t, err)
	return c
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// event decides an event; id, sequence and payload may be empty.
func (w *world) event(source, id, sequence, payload string) {
	e := &change.Event{
		Origin: change.Origin{Source: source, Topic: "stream-" + source, Offset: int64(100 * len(w.records))}, EventID: id, Sequence: sequence, Op: change.Upsert, Payload: []byte(payload),
	}
	if payload == "" {
		e.Op, e.Payload = change.Delete, nil
	}
	w.decide(change.Record{Entity: "B-007", Event: e})
}

func (w *world) decide(r change.Record) {
	_, err := w.sim.Apply(r, noon.Add(time.Duration(len(w.records))*time.Second))
	require.NoError(w.t, err)
	w.records = append(w.records, r)
}

func (w *world) Entity(_ context.Context, id string) (store.Entity, error) {
	e := w.sim.Stored(id)
	if !e.Found {
		return e, store.ErrNotFound
	}
	return w.entity(e), nil
}

func (w *world) ListLetters(_ context.Context, f store.LetterFilter) ([]store.DeadLetter, error) {
	var found []store.DeadLetter
	for _, l := range w.dead {
		if l.Entity == f.Entity && f.State == cmp.Or(l.State, store.LetterOpen) {
			found = append(found, l)
		}
	}
	return found, nil
}

func (w *world) KnownServices(context.Context) (map[string]int32, error) {
	known := map[string]int32{"acme/crm@check": 71, "acme/web@check": 72}
	for i, s := range w.config.Services() {
		known[s.Name] = int32(i + 1)
	}
	return known, nil
}

func (w *world) Active(context.Context) (store.Revision, error) {
	return store.Revision{Number: 5}, nil
}

func (w *world) ListAttempts(_ context.Context, f store.AttemptFilter) (found []store.Attempt, err error) {
	for _, a := range w.attempts {
		if a.Entity == f.Entity && (f.Service == 0 || f.Service == a.Service) {
			found = append(found, a)
		}
	}
	return found[:min(len(found), f.Limit)], nil
}

func (w *world) CheckRows(_ context.Context, keys []store.Key) (rows []store.CheckRow, err error) {
	for _, k := range keys {
		row := w.checked[k.Service]
		row.Key = k
		rows = append(rows, row)
	}
	return rows, nil
}

func (w *world) partition() int32 {
	return transport.PartitionOf([]byte("B-007"), int32(w.config.Kafka.Inbox.Partitions))
}

func (w *world) Marks(context.Context) (map[int32]store.Mark, error) {
	end := change.NewVersion(1, int64(len(w.records)))
	return map[int32]store.Mark{w.partition(): {Watermark: end, LastTo: end}}, nil
}

func (w *world) AllProgress(context.Context) ([]store.Progress, error) {
	row := store.Progress{Partition: w.partition()}
	for i, s := range w.config.Services() {
		at := int64(len(w.records))
		if n, ok := w.reached[s.Name]; ok {
			at = n
		}
		row.Positions = append(row.Positions, store.ServicePosition{Service: int32(i + 1), Version: change.NewVersion(1, at)})
	}
	return []store.Progress{row}, nil
}

func (w *world) Inboxes(context.Context) ([]store.Inbox, error) {
	return []store.Inbox{w.inbox()}, nil
}

func (w *world) inbox() store.Inbox {
	return store.Inbox{Generation: 1, Partitions: int32(w.config.Kafka.Inbox.Partitions)}
}

func (w *world) Offsets(context.Context, string) (start, end map[int32]int64, err error) {
	return map[int32]int64{w.partition(): w.first}, map[int32]int64{w.partition(): int64(len(w.records))}, w.broken
}

func (w *world) OffsetsAt(context.Context, string, time.Time) (map[int32]int64, error) {
	panic("nothing is looked up by its time")
}

func (w *world) Scan(_ context.Context, _ string, from, _ map[int32]int64, f func(transport.Scanned) error) error {
	offset := from[w.partition()]
	key, head, value, err := change.EncodeRecord(w.records[offset])
	require.NoError(w.t, err)
	return f(transport.Scanned{Received: transport.Received{
		Offset: offset, Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}},
	}})
}

func (w *world) explain(edit func(*explain.Input)) *explain.Explanation {
	in := explain.Input{Config: w.config, Store: w, Inbox: w.inbox(), Log: w, Entity: "B-007"}
	if edit != nil {
		edit(&in)
	}
	x, err := explain.Explain(w.t.Context(), in)
	require.NoError(w.t, err)
	return x
}

const (
	ripe = "acme/ripeness@archive"
	list = "zest/list@archive"
	hook = "zest/list@hook"
)

// Carried fields and rules of sameness are named where they may have held a change back.
func TestVerdictsNameWhatIsNotCompared(t *testing.T) {
	w := worldOf(t, strings.Replace(acme, "level: level", "level: {path: level, same: {round: 0}}", 1)+"    carry: {at: at}\n")
	w.event("registry", "e1", "1", `{"id":"B-007","origin":"EC","level":1.1,"at":1}`)
	w.event("registry", "e2", "2", `{"id":"B-007","origin":"EC","level":1.2,"at":2}`)
	why := func() (string, string) {
		x := w.explain(func(in *explain.Input) { in.Service = ripe })
		return x.Services[0].Why, x.Services[0].Events[len(x.Services[0].Events)-1]
	}
	said, became := why()
	require.Equal(t, "held back", became)
	require.Contains(t, said, "the same as what was sent before, apart from carried fields (at), equal by same: level (round: 0); the customer has version 1:0")
	w.event("registry", "e3", "3", `{"id":"B-007","origin":"EC","level":1.2,"at":3}`)
	said, became = why()
	require.Equal(t, "pruned", became)
	require.Contains(t, said, "changed nothing that this projection reads (id, lab.sugar, level, origin), apart from carried fields (at); the customer")
}

// firstBanana is the first event of most verdicts.
const firstBanana = `{"id":"B-007","origin":"EC","level":1}`

var verdicts = map[string]struct {
	do        func(w *world)
	service   string
	verdict   explain.Verdict
	why       string
	lastEvent string
}{
	"sent": {func(w *world) { w.event("registry", "e1", "1", firstBanana) }, ripe, explain.Sent,
		"The last event (registry e1, 1:0) changed this view, and the customer has version 1:0.", "delivered"},
	"pruned": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"EC","level":2}`)
	}, list, explain.Pruned, "The last event (registry e2, 1:1) changed nothing that this projection reads (id); the customer has version 1:0.", "pruned"},
	"held back": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"CO","level":1}`)
	}, ripe, explain.HeldBack, "The last event (registry e2, 1:1) changed the entity, but this view of it is the same as what was sent before; the customer has version 1:0.", "held back"},
	"noise": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", firstBanana)
	}, ripe, explain.Noise, "The last event (registry e2, 1:1) is noise: without what is stripped, its document equals the stored one; the customer has version 1:0.", "noise"},
	"stale": {func(w *world) {
		w.event("registry", "e1", "5", firstBanana)
		w.event("registry", "e0", "4", `{"id":"B-007","origin":"EC","level":9}`)
	}, ripe, explain.Stale, "The last event (registry e0, 1:1) is stale: its sequence is lower than one that was taken; the customer has version 1:0.", "stale"},
	"stale, again and again": {func(w *world) {
		w.event("registry", "e1", "5", firstBanana)
		w.event("registry", "e0", "4", `{"id":"B-007","origin":"EC","level":9}`)
		w.event("registry", "e2", "3", `{"id":"B-007","origin":"EC","level":8}`)
		w.event("registry", "e3", "2", `{"id":"B-007","origin":"EC","level":7}`)
	}, ripe, explain.Stale, "The last event (registry e3, 1:3) is stale, the last of 3 in a row: its sequence is lower than one that was taken; the customer has version 1:0.", "stale"},
	"repeated": {func(w *world) {
		w.event("registry", "e1", "", firstBanana)
		w.event("registry", "e1", "", firstBanana)
	}, ripe, explain.Stale, "is stale: an event with this id and content was taken already;", "stale"},
	"filter keeps it out": {func(w *world) { w.event("registry", "e1", "1", `{"id":"B-007","origin":"PH"}`) }, ripe, explain.NeverSent,
		`Nothing was ever sent: the filter (doc.origin in ["EC", "CO"]) does not let the document through, so there is nothing to retract.`, "filtered"},
	"retracted": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"PH","level":1}`)
	}, ripe, explain.Sent, `The last event (registry e2, 1:1) took the entity out of this view (filter doc.origin in ["EC", "CO"]), and the retraction with version 1:1 is delivered.`, "delivered"},
	"deleted": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", "")
	}, list, explain.Sent, "The last event (registry e2, 1:1) took the entity out of this view (all sources have deleted it), and the retraction with version 1:1 is delivered.", "delivered"},
	"not complete": {func(w *world) { w.event("lab", "", "", `{"sugar":3}`) }, list, explain.NeverSent,
		"Nothing was sent: the entity is not complete, since the required source registry has no document.", "incomplete"},
	"queued": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"EC","level":2}`)
		w.reached = map[string]int64{ripe: 1}
	}, ripe, explain.Queued, "Event (registry e2, 1:1) changed this view, and the change with version 1:1 is queued; in its partition the service has come to 1:1 and is 1 change behind at most.", "sent"},
	"paced": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.reached = map[string]int64{hook: 0}
	}, hook, explain.Paced, "the change with version 1:0 is sent by the service's pace (quiet for 2s, 20s after its first change at the latest);", "sent"},
	"held by the guard": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"EC","level":2}`)
		w.reached = map[string]int64{ripe: 1}
		w.paused = []store.Pause{{Service: ripe, Actor: store.GuardActor, Reason: "too much at once", Hold: &store.Hold{}}}
	}, ripe, explain.Queued, "is queued; the guard holds the service: too much at once.", "sent"},
	"its target fails": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.reached = map[string]int64{ripe: 0}
		w.processes = []operate.Process{{Name: "a:1", Seen: time.Now(), Health: operate.Health{Services: []operate.ServiceHealth{{Service: ripe, State: deliver.StateRetrying, Since: noon, Error: "connection refused"}}}}}
	}, ripe, explain.Queued, "is queued; its target fails since 2026-05-01T12:00:00Z: connection refused.", "sent"},
	"set aside": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.dead = []store.DeadLetter{{State: store.LetterRetrying, Attempts: 3, Reason: "500", NextTry: noon, Service: ripe, Entity: "B-007", Version: change.NewVersion(1, 0)}}
	}, ripe, explain.Queued, "is queued; it failed 3 times (500), and is tried again at 2026-05-01T12:00:00Z.", "sent"},
	"refused, and the row does not say so yet": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.dead = []store.DeadLetter{{ID: 7, Stage: store.StageDeliver, Code: "refused", Reason: "422 Unprocessable", Service: hook, Entity: "B-007", Version: change.NewVersion(1, 0)}}
	}, hook, explain.Refused, "Its newest change is dead letter 7 (refused: 422 Unprocessable), so the customer does not have it.", "dead letter"},
	"refused": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.change(hook, func(r *store.Row) { r.Refused = true })
		w.dead = []store.DeadLetter{{ID: 7, Count: 1, Stage: store.StageDeliver, Code: "refused", Reason: "422 Unprocessable", Service: hook, Entity: "B-007", Version: change.NewVersion(1, 0)}}
	}, hook, explain.Refused, "Its newest change is dead letter 7 (refused: 422 Unprocessable), so the customer does not have it: it is held back until the view changes, or the letter is replayed, or the service is reset.", "dead letter"},
	"refused again and again": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.change(hook, func(r *store.Row) { r.Refused = true })
		w.dead = []store.DeadLetter{{ID: 7, Count: 3, Last: noon, Stage: store.StageDeliver, Code: "refused", Reason: "422 Unprocessable", Service: hook, Entity: "B-007", Version: change.NewVersion(1, 0)}}
	}, hook, explain.Refused, "dead letter 7 (refused: 422 Unprocessable, 3 times, last " + noon.Format(time.RFC3339) + ")", "dead letter"},
	"refused, and its letter discarded": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.change(hook, func(r *store.Row) { r.Refused = true })
	}, hook, explain.Refused, "Version 1:0 was refused, and no dead letter of it is open any more: it is held back until the view changes, or weir replay B-007 --service zest/list@hook --force sends it, or the service is reset.", "refused"},
	"its twin is not": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.dead = []store.DeadLetter{{ID: 7, Stage: store.StageDeliver, Code: "refused", Service: hook, Entity: "B-007", Version: change.NewVersion(1, 0)}}
	}, list, explain.Sent, "The last event (registry e1, 1:0) changed this view", "delivered"},
	"reset": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.decide(change.Record{Entity: "B-007", Control: &change.Control{ID: "r", Action: change.Reset}})
	}, ripe, explain.Unknown, "A reset set the customer's content to unknown after version 1:0, so the next decision is sent.", "reset"},
	"another one was reset": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.decide(change.Record{Entity: "B-007", Control: &change.Control{ID: "r", Action: change.Reset, Services: []string{hook}}})
	}, ripe, explain.Sent, "The last event (registry e1, 1:0) changed this view", "delivered"},
	"refused long ago, and back since": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"EC","level":{}}`)
		w.event("registry", "e3", "3", `{"id":"B-007","origin":"CO","level":{}}`)
		w.dead = []store.DeadLetter{{ID: 7, Stage: store.StageDecide, Code: "projection", Reason: "no answer", Service: ripe, Entity: "B-007", Version: change.NewVersion(1, 1)}}
	}, ripe, explain.HeldBack, "The last event (registry e3, 1:2) changed the entity, but this view of it is the same as what was sent before", "held back"},
	"filtered": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"PH","level":1}`)
		w.event("registry", "e3", "3", `{"id":"B-007","origin":"PH","level":2}`)
	}, ripe, explain.Pruned, `The last event (registry e3, 1:2) changed nothing that this projection reads (id, lab.sugar, level, origin), or the filter (doc.origin in ["EC", "CO"]) keeps the entity out as before; the retraction with version 1:1 is delivered.`, "pruned"},
	"replayed": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.decide(change.Record{Entity: "B-007", Control: &change.Control{ID: "r", Action: change.Redecide}})
	}, ripe, explain.HeldBack, "The last record (redecide r, 1:1) decided again, and this view is the same as what was sent before;", "held back"},
	"new service": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.entity = func(e store.Entity) store.Entity {
			e.Fingerprint, e.States = []byte("older"), store.States{}
			return e
		}
	}, ripe, explain.NotYet, "Nothing was sent yet: the service is new to this entity, and the entity's next event or weir replay B-007 --service acme/ripeness@archive sends it.", "held back"},
	"without history": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.entity = func(e store.Entity) store.Entity { e.Fence = nil; return e }
	}, ripe, explain.UpToDate, "No event is on record; the customer has version 1:0.", ""},
	"fails": {func(w *world) {
		w.event("registry", "e1", "1", firstBanana)
		w.event("registry", "e2", "2", `{"id":"B-007","origin":"EC","level":{}}`)
	}, ripe, explain.Sent, "changed this view", "delivered"},
}

// Each way in which a customer gets an update or does not, and the sentence for it.
func TestVerdicts(t *testing.T) {
	for name, c := range verdicts {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.do(w)
			x := w.explain(func(in *explain.Input) { in.Service = c.service })
			require.True(t, x.Found)
			require.Len(t, x.Services, 1)
			s := x.Services[0]
			require.Equal(t, c.service, s.Service)
			require.Equal(t, c.verdict, s.Verdict, s.Why)
			require.Contains(t, s.Why, c.why)
			require.Equal(t, 1, strings.Count(s.Why+" ", ". "), "one sentence: %s", s.Why)
			if c.lastEvent == "" {
				require.Empty(t, s.Events)
			} else {
				require.Equal(t, c.lastEvent, s.Events[len(s.Events)-1])
			}
			require.NoError(t, x.Write(&bytes.Buffer{}, false))
		})
	}
}

func (w *world) change(service string, f func(*store.Row)) {
	known, err := w.KnownServices(w.t.Context())
	require.NoError(w.t, err)
	w.entity = func(e store.Entity) store.Entity {
		row := e.States.Get(known[service])
		f(&row)
		e.States.Set(row)
		return e
	}
}

// The human form, whole.
func TestHumanForm(t *testing.T) {
	w := newWorld(t)
	w.event("registry", "e1", "1", `{"id":"B-007","origin":"EC","level":1,"tags":[{"name":"organic"}]}`)
	w.event("lab", "", "", `{"sugar":14.2}`)
	w.event("registry", "9f1c9d3e-8c1c-4f7e-9a55-0123456789ab", "2", `{"id":"B-007","origin":"EC","level":1,"tags":[{"name":"organic"}]}`)
	w.event("registry", "e0", "1", `{"id":"B-007","origin":"EC","level":7}`)
	w.decide(change.Record{Entity: "B-007", Control: &change.Control{ID: "job-4", Action: change.Redecide, Actor: "ada@ops", Reason: "the table was restored"}})
	w.event("registry", "e3", "3", `{"id":"B-007","origin":"CO","level":2,"tags":[{"name":"organic"},{"name":"fair trade, and from a farm with a rather long name"}]}`)
	w.change(hook, func(r *store.Row) { r.Refused = true })
	w.dead = []store.DeadLetter{{ID: 7, Created: noon, Last: noon.Add(time.Hour), Count: 2, Stage: store.StageDeliver, Code: "refused", Reason: "the receiver answered 422 Unprocessable Entity", Service: hook, Entity: "B-007", Version: change.NewVersion(1, 0)}}
	w.first = 1
	var out bytes.Buffer
	require.NoError(t, w.explain(nil).Write(&out, false))
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 100, line)
	}
	golden := filepath.Join("testdata", "human.txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
}

// JSON has the same, with documents as JSON and payloads when asked for.
func TestJSONForm(t *testing.T) {
	w := newWorld(t)
	w.event("registry", "e1", "1", `{"id":"B-007","origin":"EC","level":1}`)
	w.event("lab", "", "", `{"sugar":2}`)
	text, err := json.Marshal(w.explain(func(in *explain.Input) { in.Payload = true }))
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, map[string]any{"banana_id": "B-007", "level": 1., "sugar": 2.}, got["services"].([]any)[0].(map[string]any)["view"])
	require.Equal(t, map[string]any{"sugar": 2.}, got["events"].([]any)[1].(map[string]any)["record"].(map[string]any)["payload"])
	require.EqualValues(t, w.partition(), got["partition"])
	part := got["merged"].(map[string]any)["parts"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"path": "id", "value": "B-007", "source": "registry"}, part)

	text, err = json.Marshal(w.explain(nil))
	require.NoError(t, err)
	require.NotContains(t, string(text), "payload")
}

// Expired or unreachable parts are named; the rest is reported.
func TestWhatIsGoneIsSaid(t *testing.T) {
	w := newWorld(t)
	w.event("registry", "e1", "1", `{"id":"B-007"}`)
	w.event("registry", "e2", "2", `{"id":"B-007"}`)
	w.first = 1
	x := w.explain(nil)
	require.Equal(t, "retention removed it (the inbox begins at offset 1)", x.Events[0].Gone)
	require.Nil(t, x.Events[0].Record)
	require.Equal(t, "e1", x.Events[0].EventID, "the history has it")
	require.NotNil(t, x.Events[1].Record)

	w.broken = errors.New("no broker answers")
	require.Equal(t, []string{"the inbox cannot be read: no broker answers"}, w.explain(nil).Notes)
	x = w.explain(func(in *explain.Input) { in.Log, in.NoInbox = nil, "another process has it" })
	require.Equal(t, []string{"the inbox was not read: another process has it"}, x.Notes)
	require.Len(t, x.Services, 3)

	w.records[1].Entity = "other"
	w.broken = nil
	require.Equal(t, `another entity's record is there ("other")`, w.explain(nil).Events[1].Gone)
}

func TestUnknownEntityAndService(t *testing.T) {
	w := newWorld(t)
	w.dead = []store.DeadLetter{{ID: 3, Stage: store.StageDecide, Code: "merge", Reason: "too deep", Source: "lab", Entity: "B-007"}}
	x := w.explain(nil)
	require.False(t, x.Found)
	require.Len(t, x.Letters, 1)
	var out bytes.Buffer
	require.NoError(t, x.Write(&out, false))
	require.Contains(t, out.String(), `There is no entity "B-007"`)
	require.Contains(t, out.String(), "merge: too deep")

	_, err := explain.Explain(t.Context(), explain.Input{Config: w.config, Store: w, Entity: "B-007", Service: "no/such@one"})
	require.ErrorIs(t, err, explain.ErrUnknownService)
}

// The report has the answers of customers' servers, harmless to a terminal.
func TestDeliveriesAreTold(t *testing.T) {
	w := newWorld(t)
	w.event("registry", "e1", "1", `{"id":"B-007","origin":"EC","level":1}`)
	w.attempts = []store.Attempt{
		{Service: 3, Entity: "B-007", At: noon.Add(time.Second), Version: change.NewVersion(1, 0), Outcome: "delivered", Status: 200, Answer: []byte("{\"ok\":true}"), Took: 12 * time.Millisecond},
		{Service: 3, Entity: "B-007", At: noon, Version: change.NewVersion(1, 0), Outcome: "failed", Status: 500, Answer: []byte("no\x1b[2J\nway"), Took: 7 * time.Millisecond},
	}
	x := w.explain(nil)
	require.Equal(t, []operate.Delivery{
		{At: noon, Service: hook, Entity: "B-007", Version: "1:0", Outcome: "failed", Status: 500, Answer: "no\x1b[2J\nway", Millis: 7},
		{At: noon.Add(time.Second), Service: hook, Entity: "B-007", Version: "1:0", Outcome: "delivered", Status: 200, Answer: `{"ok":true}`, Millis: 12},
	}, x.Deliveries)
	var b bytes.Buffer
	require.NoError(t, x.Write(&b, true))
	require.Contains(t, b.String(), `  2026-05-01 12:00:00Z  zest/list@hook  1:0      failed     500     7   "no\x1b[2J\nway"`)
	require.Contains(t, b.String(), `  2026-05-01 12:00:01Z  zest/list@hook  1:0      delivered  200     12  {"ok":true}`)
	for _, service := range []string{list, hook} {
		x := w.explain(func(in *explain.Input) { in.Service = service })
		require.Equal(t, service == hook, len(x.Deliveries) == 2, service)
	}
	require.Empty(t, w.explain(func(in *explain.Input) { in.Entity = "B-008" }).Deliveries)
}

// Of an event that an earlier configuration decided the outcome is not known any more.
func TestEventsOfAnEarlierConfiguration(t *testing.T) {
	w := newWorld(t)
	w.event("registry", "e1", "1", firstBanana)
	w.event("registry", "e2", "2", `{"id":"B-007","origin":"EC","level":2}`)
	of := func() []string {
		x := w.explain(nil)
		i := slices.IndexFunc(x.Services, func(s explain.Service) bool { return s.Service == list })
		return x.Services[i].Events
	}
	require.Equal(t, []string{"delivered", "pruned"}, of())
	w.config = worldOf(t, strings.Replace(acme, "level: level", "height: level", 1)).config
	require.Equal(t, []string{"delivered", "other revision"}, of())
}
