//go:build verify

package e2e

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I1, I2, I8: a store that keeps its connections and says nothing is down like
// any other.
func TestSilentStoreIsNotReady(t *testing.T) {
	const entities = 20
	store := servers.StartOwn(t, "postgres")
	p := harness.SimpleOnBrokers(t, "", fmt.Sprintf("store: {postgres: {url: %q}}\n", store.Address), map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, 5))
	harness.Eventually(t, "the work before", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r4") })
	run.Ready(200)

	store.Pause()
	p.Append("events.jsonl", harness.Many(entities, 5, 10))
	run.Ready(503)

	store.Resume()
	harness.Eventually(t, "the work after", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r9") })
	run.Ready(200)
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
}
