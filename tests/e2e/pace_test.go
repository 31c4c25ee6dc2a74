package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
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

// Over kills while changes rest and while they are written, a customer gets of each entity some of
// its changes in order, the newest last, and all processes together keep the rate.
func TestPaceHoldsOverKills(t *testing.T) {
	hook := harness.NewReceiver(t)
	var attempts []time.Time
	hook.Answers(func(oracle.Record) int { attempts = append(attempts, time.Now()); return http.StatusNoContent })
	sink := harness.ReplaceOnce(t, harness.PatientHookSink(hook), "retry:", "pace: {rate: 20/s, burst: 5, settle: 200ms, settle_max: 1s}, retry:")
	p := harness.Simple(t, "", map[string]string{"acme": sink})
	began := time.Now()
	for round := range 4 {
		run := p.Start("run")
		run.Ready(200)
		p.Append("events.jsonl", harness.Many(30, 10*round, 10*round+10))
		if before := len(hook.Received()); round%2 == 0 {
			harness.Eventually(t, "attempts", func() error { return harness.Want(len(hook.Received()) > before+3, true) })
		} else {
			harness.Eventually(t, "changes that rest", func() error {
				return harness.Want(run.Metric("weir_delivery_paced", "service", "acme/all@out") > 0, true)
			})
		}
		run.Kill()
	}
	p.Drain()
	got := hook.Received()
	require.NoError(t, harness.Settled(got, 30, "r39"))
	require.NoError(t, oracle.CheckCoalesced(p.Expected("acme"), "acme/all@out", got))
	require.NoError(t, oracle.CheckRate(began, attempts, 20, 5))
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
