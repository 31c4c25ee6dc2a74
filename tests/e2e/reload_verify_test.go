//go:build verify

package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// I1, I2, I4, I12: customers come and go while events flow. Who stays gets every
// change once, as if nothing had happened; who is new gets what changes from then
// on, and the rest by a replay; who comes back is known.
func TestReloadUnderLoad(t *testing.T) {
	const entities = 50
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	round := 0
	send := func(rounds int) {
		p.Append("events.jsonl", harness.Many(entities, round, round+rounds))
		round += rounds
	}
	settled := func(name string, n int) {
		t.Helper()
		harness.Eventually(t, name, func() error {
			return harness.Settled(p.Whole("out/"+name+".jsonl"), n, fmt.Sprint("r", round-1))
		})
	}
	p.Append("events.jsonl", harness.Event(1_000_000, "quiet", "calm"))
	send(20)
	settled("acme", entities)

	send(60)
	p.Write("customers/zest.yaml", customer("zest"))
	require.Equal(t, reloaded{Changed: true, Revision: 2, Services: 2, Added: []string{"zest/all@out"}, Removed: []string{}}, reload(t, p))
	run.Ready(200)
	send(40)
	settled("acme", entities)
	settled("zest", entities)
	require.Empty(t, harness.States(p.Whole("out/zest.jsonl"), "quiet"), "nothing has happened to it since")
	p.Start("replay --service zest/all@out --wait").Ok()
	harness.Eventually(t, "the backfill", func() error {
		return harness.Want(fmt.Sprint(harness.States(p.Whole("out/zest.jsonl"), "quiet")), "[calm]")
	})
	again := reload(t, p)
	require.False(t, again.Changed)
	require.EqualValues(t, 2, again.Revision)

	send(60)
	require.NoError(t, os.Remove(p.Path("customers/zest.yaml")))
	// That was the active configuration once: to go back has to be said.
	refused := p.Start("reload")
	require.Equal(t, 2, refused.Wait())
	require.Contains(t, refused.Log.String(), "--activate")
	require.Positive(t, run.Metric("weir_reload_refused"))
	require.Equal(t, []string{"zest/all@out"}, reload(t, p, "--activate").Removed)
	require.Zero(t, run.Metric("weir_reload_refused"))
	left := len(p.Whole("out/zest.jsonl"))
	send(5)
	settled("acme", entities)
	require.Len(t, p.Whole("out/zest.jsonl"), left, "it gets nothing any more")

	p.Write("customers/zest.yaml", customer("zest"))
	reload(t, p, "--activate")
	p.Start("replay --service zest/all@out --wait").Ok()
	settled("zest", entities)
	require.Equal(t, []string{"calm"}, harness.States(p.Whole("out/zest.jsonl"), "quiet"), "what it had is remembered")

	run.Terminate()
	run.Ok()
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
}
