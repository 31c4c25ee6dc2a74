package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A new snapshot after a stream, and changes during one, in records captured from Debezium:
// the documents that customers get, as such and with the remedies of the docs.
func TestSnapshotsOfDebezium(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, records, source, fields string
		docs                          []string // of entity 1
		noise, stale                  int
	}{
		{
			// FLOAT has six digits in a snapshot, by the text protocol, and all of them in the stream.
			"other digits", "mariadb-float", "", "{price: price, cents: cents}",
			[]string{`{"price":16777.2,"cents":1677722}`, `{"price":16777.217,"cents":1677722}`, `{"price":16777.2,"cents":1677722}`, `{"price":16777.217,"cents":1677722}`, `{"price":16777.2,"cents":1677722}`, `{"price":16777.217,"cents":1677722}`},
			2, 0,
		},
		{
			"other digits, rounded", "mariadb-float", "", "{price: {path: price, same: {round: 1}}, cents: cents}",
			[]string{`{"price":16777.2,"cents":1677722}`}, 2, 0,
		},
		{
			// A publication has no generated columns by default.
			"a column of snapshots alone", "postgres-generated", "sequence: source.lsn", "{name: name, cents: cents}",
			[]string{`{"name":"fig","cents":100}`, `{"name":"Fig"}`, `{"name":"FIG"}`, `{"name":"FIG","cents":100}`, `{"name":"fig"}`}, 1, 0,
		},
		{
			"a column of snapshots alone, stripped", "postgres-generated", "sequence: source.lsn\n    strip: [cents]", "{name: name}",
			[]string{`{"name":"fig"}`, `{"name":"Fig"}`, `{"name":"FIG"}`, `{"name":"fig"}`}, 2, 0,
		},
		{
			"rows without lsn", "postgres-incremental", "sequence: source.lsn", "{qty: qty}",
			[]string{`{"qty":1}`, `{"qty":2}`, `{"qty":3}`}, 2, 0,
		},
		{
			// The table was read 14 seconds after the snapshot began, and has that time.
			"changes older than the reading", "mariadb-changes-during-a-snapshot", "sequence: source.ts_ms", "{v: v}",
			[]string{`{"v":2}`, `{"v":3}`, `{"v":4}`, `{"v":5}`, `{"v":6}`, `{"v":7}`, `{"v":8}`, `{"v":9}`, `{"v":10}`, `{"v":11}`, `{"v":12}`, `{"v":13}`}, 0, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFeed(t, "shop.fruit", "    format: debezium\n    entity: id\n    "+c.source)
			f.Write("acme.yaml", "customer: acme\nprojections:\n  all:\n    fields: "+c.fields+"\n    deliver:\n      out: {file: {path: out/acme.jsonl}}\n")
			text, err := os.ReadFile(filepath.Join("testdata/snapshots", c.records+".json"))
			require.NoError(t, err)
			var captured struct {
				Records []struct{ Key, Value json.RawMessage }
			}
			require.NoError(t, json.Unmarshal(text, &captured))
			require.NotEmpty(t, captured.Records)
			var keysAndValues []string
			for _, r := range captured.Records {
				keysAndValues = append(keysAndValues, string(r.Key), string(r.Value))
			}
			f.produce(keysAndValues...)
			end := f.Drain()
			require.Zero(t, end.Dead)
			var docs []string
			for _, r := range f.Records("out/acme.jsonl") {
				if r.Entity == "1" {
					docs = append(docs, string(r.Doc))
				}
			}
			require.Equal(t, c.docs, docs)
			require.Equal(t, []int{c.noise, c.stale}, []int{int(end.Noise), int(end.Stale)})
		})
	}
}
