package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
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

// feed is a project whose one source reads a topic of a fake of a broker.
type feed struct {
	harness.Project
	brokers []string
	topic   string
}

func newFeed(t *testing.T, topic, source string) feed {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	brokers := broker.ListenAddrs()
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf("sources:\n  crm:\n    kafka: {brokers: [%q], topic: %s}\n%s\ncustomers: [acme.yaml]\nadmin: {listen: \"127.0.0.1:0\"}\n", brokers[0], topic, source),
		"acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n      out: {file: {path: out/acme.jsonl}}\n",
	})
	f := feed{p, brokers, topic}
	f.produce()
	return f
}

// produce appends records, alternately a key and a value; "" is none.
func (f feed) produce(keysAndValues ...string) {
	f.T.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	require.NoError(f.T, err)
	defer client.Close()
	if len(keysAndValues) == 0 {
		made, err := kadm.NewClient(client).CreateTopics(f.T.Context(), 2, 1, nil, f.topic)
		require.NoError(f.T, err)
		require.NoError(f.T, made.Error())
	}
	for i := 0; i < len(keysAndValues); i += 2 {
		r := &kgo.Record{Topic: f.topic}
		if key := keysAndValues[i]; key != "" {
			r.Key = []byte(key)
		}
		if value := keysAndValues[i+1]; value != "" {
			r.Value = []byte(value)
		}
		require.NoError(f.T, client.ProduceSync(f.T.Context(), r).FirstErr())
	}
}
