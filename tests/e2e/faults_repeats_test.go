package e2e

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/valkey-io/valkey-go"
)

// onServers is a project over real servers, with customer acme's view all in
// an appending table and a webhook. sources is YAML. The session is long: no process
// is killed here, and none should be taken for dead on a busy machine.
func onServers(t *testing.T, c *harness.Cluster, hook *harness.Receiver, sources string) harness.Project {
	valkey, keys := servers.Valkey(t)
	return harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(`
store: {postgres: {url: %q}}
gate: {valkey: {address: %q, prefix: %q}}
kafka: {brokers: [%q], prefix: %q, session_timeout: 20s, inbox: {partitions: 4}}
sources:
%s
customers: [acme.yaml]
admin: {listen: "127.0.0.1:0"}
`, c.Store, valkey, keys, c.Brokers[0], c.Prefix+"weir", sources),
		"acme.yaml": fmt.Sprintf(`
customer: acme
projections:
  all:
    fields: {id: id, state: state, level: lab.level}
    deliver:
      history: {postgres: {url: %q, table: history, mode: append, columns: {doc: {type: json, path: "@this"}}}}
      hook: %s
`, c.Target, harness.PatientHookSink(hook)),
	})
}

// viewOfAll is the model of acme's view in onServers.
func viewOfAll(sources ...oracle.Source) oracle.Config {
	return oracle.Config{Sources: sources, Projection: []oracle.Projection{{
		Services: []string{"acme/all@history", "acme/all@hook"},
		Fields:   []oracle.Field{{To: "id", From: "id"}, {To: "state", From: "state"}, {To: "level", From: "lab.level"}},
	}}}
}

// agrees compares both sinks of onServers with the model.
func agrees(c *harness.Cluster, hook *harness.Receiver, config oracle.Config) error {
	want, err := c.Model(config)
	if err != nil {
		return err
	}
	if err := oracle.CheckLog(want, "acme/all@history", c.Rows("history", "acme/all@history", "seq")); err != nil {
		return err
	}
	attempts := hook.Received()
	if err := oracle.CheckAttempts(want, "acme/all@hook", attempts); err != nil {
		return err
	}
	return oracle.CheckState(want, "acme/all@hook", oracle.Newest(attempts))
}

// I2, I4, I5: the same event ids in flight at the same time, in two partitions
// of a topic that two processes read and twice in one partition, have one effect
// each; an id that is used again for other content has its own.
func TestSameEventIDTwiceInFlight(t *testing.T) {
	t.Parallel()
	const entities = 150
	c := harness.NewCluster(t)
	hook := harness.NewReceiver(t)
	topic := c.Prefix + "events"
	p := onServers(t, c, hook, fmt.Sprintf("  events: {kafka: {topic: %q}, entity: key, event_id: header:ce_id}", topic))
	c.Topics(2, topic)
	byHand, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(byHand.Close)
	c.Kafka = byHand
	event := func(partition int32, e int, id, state string) *kgo.Record {
		name := fmt.Sprint("E", e)
		r := harness.Record(topic, name, fmt.Sprintf(`{"id":%q,"state":%q}`, name, state))
		r.Partition, r.Headers = partition, []kgo.RecordHeader{{Key: "ce_id", Value: fmt.Appendf(nil, "%s-%s", name, id)}}
		return r
	}
	var first, second []*kgo.Record
	for e := range entities {
		for _, part := range []int32{0, 1} {
			first = append(first, event(part, e, "1", "A"), event(part, e, "1", "A"), event(part, e, "2", "B"))
			second = append(second, event(part, e, "2", "C"), event(part, e, "2", "C"))
		}
	}
	// It is all there before the two begin: each finds its partition full.
	c.Send(first...)
	a, b := p.Start("run"), p.Start("run")
	states := func(want ...string) func() error {
		return func() error {
			rows := c.Rows("history", "acme/all@history", "seq")
			for e := range entities {
				if got := harness.States(rows, fmt.Sprint("E", e)); fmt.Sprint(got) != fmt.Sprint(want) {
					return fmt.Errorf("E%d has %v, want %v", e, got, want)
				}
			}
			return nil
		}
	}
	harness.Eventually(t, "one effect each", states("A", "B"))
	c.Send(second...)
	harness.Eventually(t, "the ids' other content", states("A", "B", "C"))
	// Changes still under way change nothing.
	config := viewOfAll(oracle.Source{Name: "events", Entity: "key", EventID: "header:ce_id"})
	harness.Eventually(t, "the sinks agree with the model", func() error { return agrees(c, hook, config) })
	for _, pr := range []*harness.Process{a, b} {
		pr.Terminate()
		pr.Ok()
	}
	p.Drain()
	require.NoError(t, agrees(c, hook, config))
	require.NoError(t, states("A", "B", "C")())
}

// I4, I5: the gate's server loses everything between an event and its
// producer's late retry. With a sequence, however much came in between, or by
// its id while the entity remembers that, the old value does not come back, also
// when the event was noise. An entity remembers the last eight ids of a source;
// beyond them a retry without sequence is an event like any other.
func TestRetryAfterTheGateWasFlushed(t *testing.T) {
	t.Parallel()
	valkeyServer := servers.StartOwn(t, "valkey")
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{valkeyServer.Address}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(`
gate: {valkey: {address: %q, timeout: 1m}}
sources:
  numbered: {file: {path: numbered.jsonl}, entity: id, event_id: event, sequence: n, strip: [event, n]}
  plain: {file: {path: plain.jsonl}, entity: id, event_id: event, strip: [event, n]}
customers: [acme.yaml]
admin: {listen: "off"}
`, valkeyServer.Address),
		"acme.yaml": `
customer: acme
projections:
  all: {fields: {id: id, state: state}, deliver: {out: {file: {path: out/acme.jsonl}}}}
`,
	})
	event := func(entity string, n int, state string) string {
		return fmt.Sprintf(`{"event":"%s-%d","n":%d,"id":%q,"state":%q}`+"\n", entity, n, n, entity, state)
	}
	flush := func() { require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error()) }
	say := func(repeated, stale int64, numbered, plain string) {
		t.Helper()
		p.Append("numbered.jsonl", numbered)
		p.Append("plain.jsonl", plain)
		s := p.Drain()
		require.Equal(t, repeated, s.Repeated, "known to the gate")
		require.Equal(t, stale, s.Stale, "dropped by the fence")
	}
	states := func(entity string) []string { return harness.States(p.Records("out/acme.jsonl"), entity) }

	numbered, wantN := "", []string{}
	for n := range 20 {
		state := fmt.Sprint("s", n)
		numbered += event("N", n, state)
		wantN = append(wantN, state)
	}
	plain := event("P", 1, "A") + event("P", 2, "A") + event("P", 3, "B") // 2 is noise
	for n := 4; n <= 8; n++ {
		plain += event("P", n, "B") // noise
	}
	say(0, 0, numbered, plain)
	say(2, 0, event("N", 0, "s0"), event("P", 1, "A")) // while the gate knows them

	flush()
	say(0, 4, event("N", 0, "s0")+event("N", 18, "s18"), event("P", 1, "A")+event("P", 2, "A"))
	require.Equal(t, wantN, states("N"))
	require.Equal(t, []string{"A", "B"}, states("P"))

	say(0, 0, "", event("P", 9, "B")) // the ninth id: the first is forgotten
	flush()
	say(0, 2, event("N", 0, "s0"), event("P", 1, "A")+event("P", 4, "B"))
	require.Equal(t, wantN, states("N"))
	require.Equal(t, []string{"A", "B", "A"}, states("P"), "as far as the entity remembers: 1 came back, 4 did not")
	say(0, 0, "", event("P", 10, "B"))
	require.Equal(t, []string{"A", "B", "A", "B"}, states("P"))

	config := harness.SimpleModel("acme")
	config.Sources = []oracle.Source{
		{Name: "numbered", Entity: "id", EventID: "event", Sequence: "n"},
		{Name: "plain", Entity: "id", EventID: "event"},
	}
	config.Strip = map[string][]string{"numbered": {"event", "n"}, "plain": {"event", "n"}}
	input := harness.ReadLines(t, map[string]string{"numbered": p.Path("numbered.jsonl"), "plain": p.Path("plain.jsonl")})
	want, err := oracle.Run(config, harness.ModelEvents(t, 1, p.Inbox(), input.Find))
	require.NoError(t, err)
	input.Complete()
	require.NoError(t, oracle.CheckLog(want, "acme/all@out", p.Records("out/acme.jsonl")))
}
