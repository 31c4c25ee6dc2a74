package noise_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/operate/noise"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { harness.Main(m) }

type answer struct {
	From, To string
	Sources  []noise.Report
}

// ask runs noise --json.
func ask(p harness.Project, args ...string) (x answer) {
	p.T.Helper()
	require.NoError(p.T, json.Unmarshal([]byte(p.Start("noise --json", args...).Ok()), &x))
	return x
}

const entities = 20

// events returns some rounds: fields in projections stay equal, one field outside of them
// changes in every second round, and each round repeats in another order.
func events(from, to int) string {
	var b strings.Builder
	for round := from; round < to; round++ {
		for e := range entities {
			fmt.Fprintf(&b, `{"event":"e%d-%d","items":[{"seen_at":%d}],"id":"E%d","state":"s"}`+"\n", round, e, round/2, e)
		}
	}
	return b.String()
}

// counted wants the numbers of events, noise and suppressed.
func counted(x answer, want ...int64) error {
	r := x.Sources[0]
	if got := []int64{r.Events, r.Noise, r.Suppressed}; fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("events, noise, suppressed: %v, want %v", got, want)
	}
	return nil
}

// The counts outlive their processes; the offered rule has the promised effect.
func TestNothingRuns(t *testing.T) {
	t.Parallel()
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	p.Write("events.jsonl", events(0, 10))
	nothing := p.Start("noise")
	require.Equal(t, 1, nothing.Wait(), "there is no state yet")

	p.Drain()
	x := ask(p)
	require.NoError(t, counted(x, 200, 100, 80))
	r := x.Sources[0]
	require.Len(t, r.Fields, 1)
	require.EqualValues(t, 80, r.Fields[0].Events)
	require.Equal(t, "items.0.seen_at", r.Fields[0].Example)
	require.Equal(t, []string{"event", "items.*.seen_at"}, r.Strip)
	require.EqualValues(t, 80, r.Saved)
	require.InDelta(t, 0.4, r.SavedShare, 1e-9)

	p.Append("events.jsonl", events(10, 12))
	p.Drain() // another process adds to it
	require.NoError(t, counted(ask(p, "--source", "events"), 240, 120, 100))

	human := p.Start("noise").Ok()
	require.Contains(t, human, "events: 240 events\n  120 (50.0 %) noise")
	require.Contains(t, human, "100 (41.7 %) items.*.seen_at: no projection reads it; such as items.0.seen_at of E")
	_, rules, found := strings.Cut(human, "To paste:\n")
	require.True(t, found)
	require.Equal(t, "sources:\n  events:\n    strip: [\"event\", \"items.*.seen_at\"]\n", rules)
	text := p.Read("weir.yaml")
	line := strings.TrimSpace(strings.Split(rules, "\n")[2])
	p.Write("weir.yaml", harness.ReplaceOnce(t, text, "strip: [event]", line))

	human = p.Start("noise").Ok()
	require.Contains(t, human, "Nothing was seen yet under this configuration.\nCounts under an earlier one")
	p.Append("events.jsonl", events(12, 22))
	sent := len(p.Whole("out/acme.jsonl"))
	p.Drain()
	// The first event of each entity moves it to the rules; the rest is noise.
	require.NoError(t, counted(ask(p), 200, 180, 0))
	require.Len(t, p.Whole("out/acme.jsonl"), sent, "nobody gets anything by it")

	unknown := p.Start("noise --source nobody")
	require.Equal(t, 2, unknown.Wait())
	require.Contains(t, unknown.Log.String(), "--source nobody")
}
