package explain_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
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

func embedded(t *testing.T) harness.Project {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme"), "zest": harness.FileSink("zest")})
	p.Write("customers/zest.yaml", harness.ReplaceOnce(t, p.Read("customers/zest.yaml"), "fields: {id: id, state: state}", "fields: {id: id}"))
	p.Write("events.jsonl", harness.Event(1, "B", "A")+harness.Event(2, "B", "B")+harness.Event(1, "B", "A")+"{\"id\":\n")
	return p
}

// No process runs: the command opens the data folder itself.
func TestEmbeddedNotRunning(t *testing.T) {
	p := embedded(t)
	nothing := p.Start("explain", "B")
	require.Equal(t, 1, nothing.Wait(), "before anything has run")
	p.Drain()
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
