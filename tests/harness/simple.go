package harness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// SimpleMain has one followed file as its source and runs embedded; further
// sections can be added.
const SimpleMain = `
sources:
  events:
    file: {path: events.jsonl}
    entity: id
    event_id: event
    operation: op
    strip: [event]
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
`

// Simple makes a project whose customers each have one sink, which gets id and
// state of every entity.
func Simple(t testing.TB, more string, sinks map[string]string) Project {
	files := map[string]string{"weir.yaml": SimpleMain + more, "events.jsonl": ""}
	for customer, sink := range sinks {
		files["customers/"+customer+".yaml"] = fmt.Sprintf(
			"customer: %s\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n      out: %s\n", customer, sink)
	}
	return NewProject(t, files)
}

// SimpleOnBrokers is Simple with its logs on servers; kafka holds more keys for
// them, more the rest of the file, in YAML.
func SimpleOnBrokers(t testing.TB, kafka, more string, sinks map[string]string) Project {
	brokers, prefix := servers.Kafka(t)
	p := Simple(t, fmt.Sprintf("kafka: {brokers: [%q], prefix: %q, %s}\n", brokers[0], prefix+"weir", kafka)+more, sinks)
	p.LogBrokers, p.LogPrefix = brokers, prefix
	return p
}

// FileSink is the delivery to the file out/NAME.jsonl, in YAML.
func FileSink(name string) string { return "{file: {path: ../out/" + name + ".jsonl}}" }

// HookSink is the delivery to a receiver, in YAML.
func HookSink(r *Receiver) string {
	return fmt.Sprintf("{webhook: {url: %q, secret: %q, timeout: 1s}, retry: {min_backoff: 10ms, max_backoff: 100ms}}", r.URL(), WebhookSecret)
}

// PatientHookSink is HookSink for receivers that answer: on a busy machine
// a late answer is waited for, and no attempt is made twice
// because of it. HookSink itself times out soon.
func PatientHookSink(r *Receiver) string {
	return ReplaceOnce(r.T, HookSink(r), "timeout: 1s", "timeout: 5m")
}

// Event is one line; n makes its event id.
func Event(n int, entity, state string) string {
	return fmt.Sprintf(`{"event":"e%d","id":%q,"state":%q}`+"\n", n, entity, state)
}

// Many makes events about entities E0, E1, …: in each round every entity gets
// the state rROUND.
func Many(entities, from, to int) string {
	var b strings.Builder
	for round := from; round < to; round++ {
		for e := range entities {
			b.WriteString(Event(round*entities+e, fmt.Sprint("E", e), fmt.Sprint("r", round)))
		}
	}
	return b.String()
}

// Settled reports whether the newest of records has the state for all of
// entities E0, E1, ….
func Settled(records []oracle.Record, entities int, state string) error {
	newest := oracle.Newest(records)
	for e := range entities {
		r, ok := newest[fmt.Sprint("E", e)]
		if !ok || StateOf(r) != state {
			return fmt.Errorf("entity E%d has %s, want state %s", e, r.Doc, state)
		}
	}
	return nil
}

// StateOf is the state in the document of a record.
func StateOf(r oracle.Record) string {
	var doc struct{ State string }
	_ = json.Unmarshal(r.Doc, &doc)
	return doc.State
}

// States are the states of one entity in the order of records; retractions are "-".
func States(records []oracle.Record, entity string) []string {
	all := []string{}
	for _, r := range records {
		switch {
		case r.Entity != entity:
		case r.Op == "retract":
			all = append(all, "-")
		default:
			all = append(all, StateOf(r))
		}
	}
	return all
}

// SimpleModel is the model of a simple project.
func SimpleModel(customers ...string) oracle.Config {
	v := oracle.Projection{Fields: []oracle.Field{{To: "id", From: "id"}, {To: "state", From: "state"}}}
	for _, c := range customers {
		v.Services = append(v.Services, c+"/all@out")
	}
	return oracle.Config{
		Sources:    []oracle.Source{{Name: "events", Entity: "id", EventID: "event", Operation: "op"}},
		Strip:      map[string][]string{"events": {"event"}},
		Projection: []oracle.Projection{v},
	}
}

// Expected runs the model over a simple project whose process has ended.
func (p Project) Expected(customers ...string) oracle.Expected {
	p.T.Helper()
	input := ReadLines(p.T, map[string]string{"events": p.Path("events.jsonl")})
	want, err := oracle.Run(SimpleModel(customers...), ModelEvents(p.T, 1, p.Inbox(), input.Find))
	require.NoError(p.T, err)
	input.Complete()
	return want
}

// Letter is what dlq prints with --json.
type Letter struct {
	ID            int64   `json:"id"`
	Stage         string  `json:"stage"`
	Code          string  `json:"code"`
	Reason        string  `json:"reason"`
	Source        string  `json:"source"`
	Service       string  `json:"service"`
	Entity        string  `json:"entity"`
	Offset        int64   `json:"offset"`
	Count         int64   `json:"count"`
	Payload       *string `json:"payload"`
	PayloadBase64 string  `json:"payload_base64"`
}

// Letters are the open dead letters, as dlq list prints them, but the oldest first.
func (p Project) Letters() []Letter {
	p.T.Helper()
	return p.LettersAs("weir.yaml")
}

// LettersAs is Letters with another main configuration file.
func (p Project) LettersAs(config string) []Letter {
	p.T.Helper()
	var all []Letter
	require.NoError(p.T, json.Unmarshal([]byte(p.StartAs(config, "dlq list --json").Ok()), &all))
	slices.Reverse(all)
	return all
}

// Letter is one dead letter with its payload, as dlq list prints it.
func (p Project) Letter(id int64) Letter {
	p.T.Helper()
	var l Letter
	require.NoError(p.T, json.Unmarshal([]byte(p.Start("dlq list --json", fmt.Sprint(id)).Ok()), &l))
	return l
}

// ReplaceOnce replaces what must be there exactly once.
func ReplaceOnce(t testing.TB, text, old, new string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(text, old))
	return strings.Replace(text, old, new, 1)
}

// Whole is records without a last line that is still being written.
func (p Project) Whole(name string) []oracle.Record {
	return p.RecordsUpTo(name, true)
}

// Want returns an error that says so when got is not want.
func Want[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}
