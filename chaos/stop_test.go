//go:build verify

package chaos

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/e2e/harness"
	"github.com/stretchr/testify/require"
)

// I1, I2, I8: a process that is told to stop ends in the time that is configured
// for it, without failure, whichever server keeps its connections and says
// nothing. What it gave up comes again.
func TestStopWhileAServerIsSilent(t *testing.T) {
	const timeout = 6 * time.Second
	const margin = 30 * time.Second // of a machine that is busy
	w := newWorld(t, 1)
	main, err := os.ReadFile(w.project.Path("weir.yaml"))
	require.NoError(t, err)
	within := func(timeout time.Duration) {
		w.project.Write("weir.yaml", string(main)+"shutdown: {timeout: "+timeout.String()+"}\n")
	}
	within(timeout)
	for _, target := range networks() {
		pr := w.run()
		pr.Ready(200)
		load := w.load.start(t.Context())
		w.load.reach(t, 10)
		w.nets[target].set(weather{halfOpen: true})
		w.load.reach(t, 20)
		if target == storeServer {
			// One of them may be the look at whether the store is there, which
			// nothing at a stop waits for; the other is work.
			harness.Eventually(t, "statements that the store does not hear", func() error {
				return harness.Want(w.nets[target].unheard() >= 2, true)
			})
		}
		start := time.Now()
		pr.Terminate()
		select {
		case <-pr.Done:
		case <-time.After(timeout + margin):
			_ = pr.Cmd.Process.Signal(syscall.SIGQUIT) // stacks into the log
			pr.Wait()
			require.FailNow(t, "the process did not stop in time", target)
		}
		t.Logf("%s: stopped after %v", target, time.Since(start).Round(10*time.Millisecond))
		require.NoError(t, load())
		require.Zero(t, pr.Code, harness.Tail(pr.Log.String(), 20))
		w.nets[target].set(weather{})

		lines := strings.Count(pr.Log.String(), "the time for stopping was too short")
		switch target {
		case storeServer, kafkaServer: // nothing can be finished without them
			require.Equal(t, 1, lines, target)
		default:
			require.LessOrEqual(t, lines, 1, target)
		}
	}
	within(5 * time.Minute) // so that no pause of the machine is too long for it
	w.processes = []*harness.Process{w.run()}
	w.settle()
	w.stop(w.processes...)
	require.NotContains(t, w.processes[0].Log.String(), "the time for stopping was too short")
	require.NoError(t, w.cluster.Checks(w.hook))
}
