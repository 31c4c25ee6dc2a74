package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I1, I2, I3, I4, I5, I11: two processes share the work over real servers, one
// is killed under load and comes back; every sink ends as the model says.
func TestTwoProcessesAndAKill(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t)
	valkey, keys := servers.Valkey(t)
	hook := harness.NewReceiver(t)
	p := harness.NewProject(t, map[string]string{
		"weir.yaml":           fmt.Sprintf(harness.DistributedMain, c.Store, valkey, keys, c.Brokers[0], c.Prefix),
		"customers/acme.yaml": fmt.Sprintf(harness.DistributedAcme, c.Clickhouse, hook.URL(), harness.WebhookSecret, c.Target),
		"customers/beta.yaml": fmt.Sprintf(harness.DistributedBeta, c.Target, c.Prefix),
	})
	c.Topics(4, c.Prefix+"registry", c.Prefix+"lab", c.Prefix+"overlay", c.Prefix+"feed")
	r, serial := rand.New(rand.NewPCG(3, 3)), 0
	c.Send(harness.Bananas(r, c.Prefix, 1500, 150, &serial)...)

	a, b := p.Start("run"), p.Start("run")
	harness.Eventually(t, "both processes decide and deliver", func() error {
		c.Send(harness.Bananas(r, c.Prefix, 10, 150, &serial)...)
		for _, pr := range []*harness.Process{a, b} {
			require.False(t, pr.Ended(), harness.Tail(pr.Log.String(), 60))
			if pr.Metric("weir_events_total") == 0 || pr.Metric("weir_deliveries_total", `outcome="delivered"`) == 0 {
				return fmt.Errorf("not yet")
			}
		}
		return nil
	})
	for range 10 {
		c.Send(harness.Bananas(r, c.Prefix, 100, 150, &serial)...)
	}
	a.Kill()
	for range 10 {
		c.Send(harness.Bananas(r, c.Prefix, 100, 150, &serial)...)
	}
	a = p.Start("run")
	c.Send(harness.Bananas(r, c.Prefix, 500, 150, &serial)...)
	harness.Eventually(t, "all sinks agree with the model", func() error {
		require.False(t, a.Ended() || b.Ended(), harness.Tail(a.Log.String(), 60))
		return c.Checks(hook)
	})
	a.Ready(200)
	b.Ready(200)
	// The other one may have done all of that before this one was in the group. Few
	// events at a time: all of them must be through in the end.
	harness.Eventually(t, "the process that came back takes part", func() error {
		c.Send(harness.Bananas(r, c.Prefix, 1, 150, &serial)...)
		if a.Metric("weir_deliveries_total") == 0 {
			return harness.ErrNotYet
		}
		return nil
	})
	harness.Eventually(t, "all sinks agree with the model again", func() error { return c.Checks(hook) })
	a.Terminate()
	b.Terminate()
	a.Ok()
	b.Ok()
	require.NoError(t, c.Checks(hook))
}
