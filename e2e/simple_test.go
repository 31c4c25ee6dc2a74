package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/stretchr/testify/require"
)

// simpleMain has one followed file as its source and runs embedded; further
// sections can be added.
const simpleMain = `
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

// simple makes a project whose customers each have one sink, which gets id and
// state of every entity.
func simple(t testing.TB, more string, sinks map[string]string) project {
	files := map[string]string{"weir.yaml": simpleMain + more, "events.jsonl": ""}
	for customer, sink := range sinks {
		files["customers/"+customer+".yaml"] = fmt.Sprintf(
			"customer: %s\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n      out: %s\n", customer, sink)
	}
	return newProject(t, files)
}

func fileSink(name string) string { return "{file: {path: ../out/" + name + ".jsonl}}" }

func hookSink(r *receiver) string {
	return fmt.Sprintf("{webhook: {url: %q, secret: %q, timeout: 1s}, retry: {min_backoff: 10ms, max_backoff: 100ms}}", r.url(), webhookSecret)
}

// event is one line; n makes its event id.
func event(n int, entity, state string) string {
	return fmt.Sprintf(`{"event":"e%d","id":%q,"state":%q}`+"\n", n, entity, state)
}

// many makes events about entities E0, E1, …: in each round every entity gets
// the state rROUND.
func many(entities, from, to int) string {
	var b strings.Builder
	for round := from; round < to; round++ {
		for e := range entities {
			b.WriteString(event(round*entities+e, fmt.Sprint("E", e), fmt.Sprint("r", round)))
		}
	}
	return b.String()
}

// settled tells whether the newest of records has the state for all of
// entities E0, E1, ….
func settled(records []model.Record, entities int, state string) error {
	newest := model.Newest(records)
	for e := range entities {
		r, ok := newest[fmt.Sprint("E", e)]
		if !ok || stateOf(r) != state {
			return fmt.Errorf("E%d has %s, want state %s", e, r.Doc, state)
		}
	}
	return nil
}

func stateOf(r model.Record) string {
	var doc struct{ State string }
	_ = json.Unmarshal(r.Doc, &doc)
	return doc.State
}

// states are the states of one entity in the order of records; retractions are "-".
func states(records []model.Record, entity string) []string {
	all := []string{}
	for _, r := range records {
		switch {
		case r.Entity != entity:
		case r.Op == "retract":
			all = append(all, "-")
		default:
			all = append(all, stateOf(r))
		}
	}
	return all
}

// simpleModel is the model of a simple project.
func simpleModel(customers ...string) model.Config {
	v := model.Projection{Fields: []model.Field{{To: "id", From: "id"}, {To: "state", From: "state"}}}
	for _, c := range customers {
		v.Services = append(v.Services, c+"/all@out")
	}
	return model.Config{
		Sources:    []model.Source{{Name: "events", Entity: "id", EventID: "event", Operation: "op"}},
		Strip:      map[string][]string{"events": {"event"}},
		Projection: []model.Projection{v},
	}
}

// expected runs the model over a simple project whose process has ended.
func (p project) expected(customers ...string) model.Expected {
	p.t.Helper()
	input := readLines(p.t, map[string]string{"events": p.path("events.jsonl")})
	want, err := model.Run(simpleModel(customers...), modelEvents(p.t, 1, p.embeddedInbox(), input.find))
	require.NoError(p.t, err)
	input.complete()
	return want
}

// letter is what dlq prints with --json.
type letter struct {
	ID            int64   `json:"id"`
	Stage         string  `json:"stage"`
	Code          string  `json:"code"`
	Reason        string  `json:"reason"`
	Source        string  `json:"source"`
	Service       string  `json:"service"`
	Entity        string  `json:"entity"`
	Offset        int64   `json:"offset"`
	Payload       *string `json:"payload"`
	PayloadBase64 string  `json:"payload_base64"`
}

func (p project) letters() []letter {
	p.t.Helper()
	var all []letter
	require.NoError(p.t, json.Unmarshal([]byte(p.start("dlq list --json").ok()), &all))
	return all
}

func (p project) letter(id int64) letter {
	p.t.Helper()
	var l letter
	require.NoError(p.t, json.Unmarshal([]byte(p.start("dlq show --json", fmt.Sprint(id)).ok()), &l))
	return l
}
