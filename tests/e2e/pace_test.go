package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// A thousand updates of an entity reach a customer that lets entities settle as one to three
// writes, also when the process is killed while they wait.
func TestAHotEntityIsSentAtItsPace(t *testing.T) {
	hook := harness.NewReceiver(t)
	sink := harness.ReplaceOnce(t, harness.PatientHookSink(hook), "retry:", "pace: {rate: 50/s, settle: 4s, settle_max: 1m}, retry:")
	p := harness.SimpleOnBrokers(t, "", fmt.Sprintf("store: {postgres: {url: %q}}\n", servers.Postgres(t)), map[string]string{"acme": sink})
	first := p.Start("run")
	first.Ready(200)
	p.Append("events.jsonl", harness.Many(1, 0, 1000))
	harness.Eventually(t, "changes that wait", func() error {
		if first.Metric("weir_delivery_paced", "service", "acme/all@out") == 0 {
			return errors.New("none")
		}
		return nil
	})
	first.Kill()
	next := p.Start("run")
	hook.Arrives(t, "E0", "r999")
	require.LessOrEqual(t, len(hook.Received()), 3)
	next.Terminate()
	require.Zero(t, next.Wait(), harness.Tail(next.Log.String(), 20))
}

// An entity that does not change reaches a customer that refreshes it again and again, in
// versions of its own, over a kill and on servers; another customer gets it once.
func TestAnUnchangedEntityIsSentAgain(t *testing.T) {
	t.Parallel()
	hook, once := harness.NewReceiver(t), harness.NewReceiver(t)
	sink := harness.ReplaceOnce(t, harness.PatientHookSink(hook), "retry:", "refresh: 2s, retry:")
	p := harness.SimpleOnBrokers(t, "", fmt.Sprintf("store: {postgres: {url: %q}}\n", servers.Postgres(t)),
		map[string]string{"acme": sink, "other": harness.PatientHookSink(once)})
	p.Append("events.jsonl", harness.Many(3, 0, 1))
	again := func(least int) {
		harness.Eventually(t, "refreshes", func() error {
			versions := map[string]map[uint64]bool{}
			for _, r := range hook.Received() {
				if versions[r.Entity] == nil {
					versions[r.Entity] = map[uint64]bool{}
				}
				versions[r.Entity][r.Version] = true
			}
			for e := range 3 {
				if n := len(versions[fmt.Sprintf("E%d", e)]); n < least {
					return fmt.Errorf("E%d: %d of %d versions", e, n, least)
				}
			}
			return nil
		})
	}
	first := p.Start("run")
	again(3)
	first.Kill()
	next := p.Start("run")
	again(5)
	next.Terminate()
	require.Zero(t, next.Wait(), harness.Tail(next.Log.String(), 20))
	require.Len(t, once.Received(), 3)
}
