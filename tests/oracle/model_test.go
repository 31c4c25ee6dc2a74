package oracle_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

var config = oracle.Config{
	Sources: []oracle.Source{
		{Name: "registry", Entity: "m.id", EventID: "m.event", Payload: "d", Operation: "m.op", Sequence: "m.seq"},
		{Name: "lab", Entity: "id", Patch: true, Mount: "lab"},
		{Name: "extra", Entity: "id"},
	},
	Required: []string{"registry"},
	Strip:    map[string][]string{"registry": {"at", "**.trace"}},
	Projection: []oracle.Projection{
		{Services: []string{"one"}, Fields: []oracle.Field{{To: "banana_id", From: "id"}, {To: "ripe.level", From: "lab.level"}, {To: "kind", Const: "banana"}}},
		{Services: []string{"two"}, When: func(d any) bool { return oracle.At(d, "origin") == "EC" },
			Fields: []oracle.Field{{To: "id", From: "id"}, {To: "weight", From: "weight", Default: json.Number("0")}}},
	},
}

// stream numbers events: source, then the value.
func stream(lines ...string) []oracle.Event {
	var events []oracle.Event
	for i := 0; i < len(lines); i += 2 {
		events = append(events, oracle.Event{Source: lines[i], Stream: lines[i], Offset: int64(i), Version: uint64(100 + i/2), Value: []byte(lines[i+1])})
	}
	return events
}

func registry(seq int, doc string) string {
	return fmt.Sprintf(`{"m":{"id":"B","event":"e%d","seq":%d},"d":%s}`, seq, seq, doc)
}

// The checks tell the output of a broken pipeline from a right one.
func TestDoctoredOutputsAreCaught(t *testing.T) {
	doc := func(w string) string { return fmt.Sprintf(`{"id":"B","origin":"EC","weight":%s}`, w) }
	want, err := oracle.Run(config, stream(
		"registry", registry(1, doc("1")), "registry", registry(2, doc("2")), "registry", registry(3, doc("1")),
		"registry", `{"m":{"id":"B","event":"e4","seq":4,"op":"delete"}}`, "registry", registry(5, doc("3")),
	))
	require.NoError(t, err)
	var good []oracle.Record
	for _, c := range want["two"]["B"] {
		r := oracle.Record{Service: "two", Entity: "B", Op: c.Op, Version: c.Version, Key: fmt.Sprint("k", c.Version)}
		if c.Op == "upsert" {
			r.Doc = []byte(oracle.Text(c.Doc))
		}
		good = append(good, r)
	}
	require.Len(t, good, 5)
	require.NoError(t, oracle.CheckLog(want, "two", good))
	require.NoError(t, oracle.CheckState(want, "two", oracle.Newest(good)))
	require.NoError(t, oracle.CheckAttempts(want, "two", append(good, good...)))

	change := func(i int, f func(*oracle.Record)) []oracle.Record {
		c := slices.Clone(good)
		f(&c[i])
		return c
	}
	invented := oracle.Record{Service: "two", Entity: "C", Op: "upsert", Version: 9, Key: "c", Doc: []byte(`{}`)}
	both := map[string][]oracle.Record{
		"marker before effect: the last change is lost": good[:4],
		"invented entity":                      append(slices.Clone(good), invented),
		"another document":                     change(4, func(r *oracle.Record) { r.Doc = []byte(`{"id":"B","weight":4}`) }),
		"another number literal":               change(4, func(r *oracle.Record) { r.Doc = []byte(`{"id":"B","weight":3.0}`) }),
		"another version":                      change(4, func(r *oracle.Record) { r.Version = 105 }),
		"a retraction instead":                 change(4, func(r *oracle.Record) { r.Op = "retract" }),
		"more than the projection":             change(4, func(r *oracle.Record) { r.Doc = []byte(`{"id":"B","weight":3,"secret":1}`) }),
		"nothing at all":                       nil,
		"a stale document under a new version": change(4, func(r *oracle.Record) { r.Doc = good[0].Doc }),
	}
	logOnly := map[string][]oracle.Record{
		"dropped in the middle":         slices.Delete(slices.Clone(good), 1, 2),
		"delivered twice":               append(slices.Clone(good), good[4]),
		"repeated under another key":    append(slices.Clone(good), change(4, func(r *oracle.Record) { r.Key = "again" })[4]),
		"stale overwrite":               {good[0], good[2], good[1], good[3], good[4]},
		"a suppression too many: A,B,A": {good[0], good[1], good[3], good[4]},
		"another service's":             change(1, func(r *oracle.Record) { r.Service = "one" }),
	}
	for name, bad := range both {
		require.Error(t, oracle.CheckLog(want, "two", bad), name)
		require.Error(t, oracle.CheckState(want, "two", oracle.Newest(bad)), name)
	}
	for name, bad := range logOnly {
		require.Error(t, oracle.CheckLog(want, "two", bad), name)
	}
	require.Error(t, oracle.CheckState(want, "two", map[string]oracle.Record{"B": good[3]}), "a stale retraction stays")
	require.Error(t, oracle.CheckAttempts(want, "two", []oracle.Record{invented}))
	require.Error(t, oracle.CheckAttempts(want, "two", change(4, func(r *oracle.Record) { r.Key = good[0].Key })), "one key, two contents")
}
