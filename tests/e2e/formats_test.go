package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

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

// A table as Debezium writes it: a snapshot, updates of which one changes
// nothing that the customer sees, a delete with its tombstone, the row created
// again, and the connector sending its last events once more after a crash.
func TestDebeziumTopic(t *testing.T) {
	t.Parallel()
	for _, withSchema := range []bool{false, true} {
		t.Run(fmt.Sprint("schema ", withSchema), func(t *testing.T) {
			f := newFeed(t, "crm.public.bananas", "    format: debezium\n    entity: id\n    sequence: source.lsn")
			wrap := func(payload string) string {
				if withSchema {
					return `{"schema":{"type":"struct","optional":false},"payload":` + payload + `}`
				}
				return payload
			}
			key := func(id int) string { return wrap(fmt.Sprintf(`{"id":%d}`, id)) }
			row := func(id int, state, note string) string {
				return fmt.Sprintf(`{"id":%d,"state":%q,"note":%q}`, id, state, note)
			}
			event := func(op, before, after string, lsn int) string {
				return wrap(fmt.Sprintf(`{"before":%s,"after":%s,"source":{"connector":"postgresql","lsn":%d},"op":%q,"ts_ms":1}`, before, after, lsn, op))
			}
			f.produce(
				key(1), event("r", "null", row(1, "green", ""), 100),
				key(2), event("r", "null", row(2, "green", ""), 100),
				key(3), event("c", "null", row(3, "green", ""), 110),
				wrap(`{"serverName":"crm"}`), wrap(`{"ts_ms":1}`),
			)
			first := f.Drain()
			require.EqualValues(t, 3, first.Delivered())
			require.Zero(t, first.Dead)

			repeated := []string{
				key(1), event("u", row(1, "green", ""), row(1, "yellow", ""), 120),
				key(1), event("d", row(1, "yellow", "ripe"), "null", 140),
				key(1), "",
			}
			f.produce(repeated[:2]...)
			f.produce(key(1), event("u", row(1, "yellow", ""), row(1, "yellow", "ripe"), 130)) // not for the customer
			f.produce(repeated[2:]...)
			f.produce(key(1), event("c", "null", row(1, "red", ""), 150))
			f.produce(repeated...) // once more, after a crash of the connector
			f.produce(
				key(2), event("d", `{"id":2,"state":null,"note":null}`, "null", 160), // replica identity default
				key(2), "",
				"", wrap(`{"op":"t","source":{"lsn":170},"ts_ms":1}`),
			)
			second := f.Drain()
			require.EqualValues(t, 2, second.Stale, "the update and the delete came twice")
			require.EqualValues(t, 1, second.Dead, "a truncate is for people")
			require.Equal(t, "truncate", f.Letters()[0].Code)
			got := f.Records("out/acme.jsonl")
			require.Equal(t, []string{"green", "yellow", "-", "red"}, harness.States(got, "1"))
			require.Equal(t, []string{"green", "-"}, harness.States(got, "2"))
			require.Equal(t, []string{"green"}, harness.States(got, "3"))
		})
	}
}
