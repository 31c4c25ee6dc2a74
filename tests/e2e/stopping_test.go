package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// late is by how much a stop may be longer than shutdown.timeout because the
// machine is busy: the process or the test may have been held up meanwhile. What
// hangs in these tests does so for much longer.
const late = 30 * time.Second

// I1, I7: a sink that hangs does not keep the process from ending in time.
func TestTerminateWhileASinkHangs(t *testing.T) {
	t.Parallel()
	const entities = 20
	hung, fine := harness.NewReceiver(t), harness.NewReceiver(t)
	hung.Answers(func(oracle.Record) int { return 0 })
	p := harness.Simple(t, "shutdown: {timeout: 12s}\n", map[string]string{"hung": harness.ReplaceOnce(t, harness.HookSink(hung), "timeout: 1s", "timeout: 5m"), "fine": harness.PatientHookSink(fine)})
	p.Write("events.jsonl", harness.Many(entities, 0, 5))
	run := p.Start("run")
	harness.Eventually(t, "the others have everything", func() error { return harness.Settled(fine.Received(), entities, "r4") })
	harness.Eventually(t, "the bad one hangs", func() error {
		if len(hung.Rejected()) == 0 {
			return harness.ErrNotYet
		}
		return nil
	})
	start := time.Now()
	run.Terminate()
	run.Ok()
	require.Less(t, time.Since(start), 12*time.Second+late)
	hung.Answers(nil)
	p.Drain()
	want := p.Expected("hung", "fine")
	for customer, r := range map[string]*harness.Receiver{"hung": hung, "fine": fine} {
		require.NoError(t, oracle.CheckState(want, customer+"/all@out", oracle.Newest(r.Received())))
	}
}

// A second signal ends the process at once, in any state.
func TestSecondSignal(t *testing.T) {
	hung := harness.NewReceiver(t)
	hung.Answers(func(oracle.Record) int { return 0 })
	p := harness.Simple(t, "shutdown: {timeout: 5m}\n", map[string]string{"hung": harness.ReplaceOnce(t, harness.HookSink(hung), "timeout: 1s", "timeout: 5m")})
	p.Write("events.jsonl", harness.Event(1, "X", "A"))
	run := p.Start("run")
	harness.Eventually(t, "it hangs", func() error {
		if len(hung.Rejected()) == 0 {
			return harness.ErrNotYet
		}
		return nil
	})
	run.Terminate()
	run.Says("event=process.stopping")
	run.Terminate()
	require.Equal(t, 128+int(syscall.SIGTERM), run.Wait())
	require.Contains(t, run.Log.String(), "stopped at once by a second signal")

	hung.Answers(nil)
	p.Drain()
	require.Equal(t, []string{"A"}, harness.States(hung.Received(), "X"))
}
