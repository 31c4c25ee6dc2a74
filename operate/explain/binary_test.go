package explain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { harness.Main(m) }

// ask runs explain --json, which must end with a status, and returns its output.
func ask(p harness.Project, status int, args ...string) (x explain.Explanation) {
	p.T.Helper()
	pr := p.Start("explain --json", args...)
	require.Equal(p.T, status, pr.Wait(), harness.Tail(pr.Log.String(), 20))
	require.NoError(p.T, json.Unmarshal(pr.Out.Bytes(), &x))
	return x
}

func readFile(t *testing.T, p harness.Project, name string) string {
	t.Helper()
	text, err := os.ReadFile(p.Path(name))
	require.NoError(t, err)
	return string(text)
}

func embedded(t *testing.T) harness.Project {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme"), "zest": harness.FileSink("zest")})
	p.Write("customers/zest.yaml", harness.ReplaceOnce(t, readFile(t, p, "customers/zest.yaml"), "fields: {id: id, state: state}", "fields: {id: id}"))
	p.Write("events.jsonl", harness.Event(1, "B", "A")+harness.Event(2, "B", "B")+harness.Event(1, "B", "A")+"{\"id\":\n")
	return p
}

// checkEmbedded looks at the same report however it is reached.
func checkEmbedded(t *testing.T, p harness.Project) {
	t.Helper()
	x := ask(p, 0, "B", "--payload")
	require.Empty(t, x.Notes)
	var events []string
	for _, e := range x.Events {
		var payload bytes.Buffer
		require.NoError(t, json.Compact(&payload, e.Record.Payload))
		events = append(events, strings.Join([]string{e.Source, e.EventID, e.Outcome, payload.String()}, " "))
	}
	require.Equal(t, []string{`events e1 merged {"id":"B","state":"A"}`, `events e2 merged {"id":"B","state":"B"}`}, events[:2])
	require.Equal(t, []string{"acme/all@out", "zest/all@out"}, []string{x.Services[0].Service, x.Services[1].Service})
	require.Equal(t, explain.Sent, x.Services[0].Verdict, x.Services[0].Why)
	require.Equal(t, explain.Pruned, x.Services[1].Verdict, x.Services[1].Why)
	require.Equal(t, x.Events[1].Version, x.Services[0].Last.Version)
	require.True(t, x.Services[0].Last.Delivered)

	missing := p.Start("explain", "NO")
	require.Equal(t, 1, missing.Wait())
	require.Contains(t, missing.Out.String(), `There is no entity "NO"`)
	require.Contains(t, missing.Log.String(), `entity "NO" is not stored`)
	require.False(t, ask(p, 1, "NO").Found)
}

// No process runs: the command opens the data folder itself.
func TestEmbeddedNotRunning(t *testing.T) {
	p := embedded(t)
	nothing := p.Start("explain", "B")
	require.Equal(t, 1, nothing.Wait(), "before anything has run")
	p.Drain()
	checkEmbedded(t, p)

	human := p.Start("explain", "B", "--service", "zest/all@out").Ok()
	require.Contains(t, human, "changed nothing that this projection reads (id); the customer")
	require.NotContains(t, human, "acme/all@out")
	for _, args := range [][]string{{}, {"B", "--service", "zest/none@out"}, {"B", "--no-such-flag"}, {"B", "extra"}} {
		pr := p.Start("explain", args...)
		require.Equal(t, 2, pr.Wait(), args)
		require.NotEmpty(t, pr.Log.String())
	}
	completed, err := exec.Command(harness.Binary(t), "__complete", "explain", "-c", p.Path("weir.yaml"), "--service", "").Output()
	require.NoError(t, err)
	require.Contains(t, string(completed), "acme/all@out\nzest/all@out\n")
	require.Contains(t, p.Start("explain --help").Ok(), "weir explain B-007 -c weir.yaml")
}

// A process runs: it is asked.
func TestEmbeddedRunning(t *testing.T) {
	p := embedded(t)
	run := p.Start("run")
	harness.Eventually(t, "the delivery", func() error {
		return harness.Want(len(harness.States(p.Whole("out/acme.jsonl"), "B")), 2)
	})
	harness.Eventually(t, "the delivery being saved", func() error {
		if s := ask(p, 0, "B").Services; s[0].Verdict != explain.Sent || s[1].Verdict != explain.Pruned {
			return fmt.Errorf("%s %s", s[0].Why, s[1].Why)
		}
		return nil
	})
	checkEmbedded(t, p)
	require.False(t, run.Ended())
}

// A process runs and cannot be asked: the store alone is read, and that is said.
func TestEmbeddedWithoutListener(t *testing.T) {
	p := embedded(t)
	p.Write("weir.yaml", harness.ReplaceOnce(t, readFile(t, p, "weir.yaml"), `"127.0.0.1:0"`, `"off"`))
	run := p.Start("run")
	harness.Eventually(t, "the delivery", func() error {
		return harness.Want(len(harness.States(p.Whole("out/acme.jsonl"), "B")), 2)
	})
	x := ask(p, 0, "B")
	require.Len(t, x.Notes, 1)
	require.Contains(t, x.Notes[0], "the inbox was not read: ")
	require.Equal(t, "e2", x.Events[1].EventID)
	require.Len(t, x.Services, 2)
	require.False(t, run.Ended())
}

// PostgreSQL and Kafka, with a customer that refuses, one that is away, and a
// stale event.
func TestServers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	brokers, prefix := servers.Kafka(t)
	hook, away := harness.NewReceiver(t), harness.NewReceiver(t)
	hook.Answers(func(oracle.Record) int { return 422 })
	away.Down()
	sinks := map[string]string{"acme": fmt.Sprintf("{kafka: {topic: %sfeed}}", prefix), "hook": harness.PatientHookSink(hook), "away": harness.PatientHookSink(away)}
	p := harness.Simple(t, "", sinks)
	p.Write("weir.yaml", fmt.Sprintf(`
store: {postgres: {url: "%s"}}
kafka: {brokers: [%q], prefix: "%sweir", session_timeout: 1m}
sources:
  events:
    kafka: {topic: "%[3]sevents"}
    entity: id
    event_id: event
    sequence: n
    strip: [event, n]
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
`, servers.Postgres(t), brokers[0], prefix))
	c := &harness.Cluster{T: t, Brokers: brokers, Prefix: prefix, Sent: map[string]*kgo.Record{}}
	var err error
	c.Kafka, err = kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	t.Cleanup(c.Kafka.Close)
	c.Topics(2, prefix+"events", prefix+"feed")
	send := func(n int, state string) {
		c.Send(harness.Record(prefix+"events", "B", fmt.Sprintf(`{"event":"e%d","n":%d,"id":"B","state":%q}`, n, n, state)))
	}
	send(5, "A")
	run := p.Start("run")
	verdicts := func() map[string]string {
		got := map[string]string{}
		pr := p.Start("explain --json", "B")
		if pr.Wait() != 0 {
			return got
		}
		var x explain.Explanation
		require.NoError(t, json.Unmarshal(pr.Out.Bytes(), &x))
		for _, s := range x.Services {
			got[s.Service] = string(s.Verdict)
		}
		return got
	}
	harness.Eventually(t, "the verdicts", func() error {
		require.False(t, run.Ended(), harness.Tail(run.Log.String(), 40))
		got := verdicts()
		return harness.Want(fmt.Sprint(got), fmt.Sprint(map[string]string{"acme/all@out": "sent", "hook/all@out": "refused", "away/all@out": "queued"}))
	})
	send(4, "older")
	harness.Eventually(t, "the stale event", func() error {
		return harness.Want(verdicts()["acme/all@out"], "stale")
	})
	x := ask(p, 0, "B", "--payload")
	require.Empty(t, x.Notes)
	last := x.Events[len(x.Events)-1]
	require.Equal(t, "stale: sequence", last.Outcome)
	require.Equal(t, "e4", last.EventID)
	require.JSONEq(t, `{"id":"B","state":"older"}`, string(last.Record.Payload))
	require.Equal(t, "4", last.Record.Sequence)
	require.Len(t, x.Letters, 1)
	require.Contains(t, x.Services[2].Why, fmt.Sprintf("dead letter %d (refused:", x.Letters[0].ID))

	// The records expire; the stored state stays.
	admin := kadm.NewClient(c.Kafka)
	ends, err := admin.ListEndOffsets(t.Context(), prefix+"weir.inbox")
	require.NoError(t, err)
	_, err = admin.DeleteRecords(t.Context(), ends.Offsets())
	require.NoError(t, err)
	x = ask(p, 0, "B")
	require.Contains(t, x.Events[0].Gone, "retention removed it")
	require.Equal(t, "e5", x.Events[0].EventID)
	run.Terminate()
	run.Ok()
}
