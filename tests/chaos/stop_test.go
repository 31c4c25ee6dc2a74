//go:build verify

package chaos

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// attempts bounds the stops until one has to give up work.
const attempts = 5

// I1, I2, I8: a process that is told to stop ends in the time that is configured
// for it, without failure, whichever server keeps its connections open in
// silence. Abandoned deliveries are repeated.
func TestStopWhileAServerIsSilent(t *testing.T) {
	const timeout = 6 * time.Second
	w := newWorld(t, 1)
	main := w.project.Read("weir.yaml")
	within := func(timeout time.Duration) {
		w.project.Write("weir.yaml", main+"shutdown: {timeout: "+timeout.String()+"}\n")
	}
	within(timeout)
	for _, target := range networks() {
		cut := w.stopWhileSilent(target, timeout)
		if target != storeServer && target != kafkaServer {
			continue
		}
		// Nothing can be finished without these two. But the work in hand
		// at the moment of its stop cannot be observed from outside: on a busy machine
		// it may be nothing.
		for n := 1; !cut && n < attempts; n++ {
			cut = w.stopWhileSilent(target, timeout)
		}
		require.True(t, cut, "%s: no stop had to give up anything", target)
	}
	within(5 * time.Minute) // so that no pause of the machine is too long for it
	w.processes = []*harness.Process{w.run()}
	w.settle()
	w.stop(w.processes...)
	require.NotContains(t, w.processes[0].Log.String(), tooShort)
	require.NoError(t, w.cluster.Checks(w.hook))
}

// tooShort is the message of a process that abandoned work at its stop.
const tooShort = "shutdown.timeout was too short"

// stopWhileSilent stops a process under load while a server says nothing, and
// reports whether the stop was cut short.
func (w *world) stopWhileSilent(target string, timeout time.Duration) bool {
	const margin = 30 * time.Second // of a machine that is busy
	pr := w.run()
	pr.Ready(200)
	load := w.load.start(w.t.Context())
	w.load.reach(w.t, 10)
	w.nets[target].Set(harness.Weather{HalfOpen: true})
	w.load.reach(w.t, 20)
	if target == storeServer {
		// One of them may be the look at whether the store is there, which nothing at
		// a stop waits for; the other is work.
		harness.Eventually(w.t, "statements that the store does not hear", func() error {
			return harness.Want(w.nets[target].Unheard() >= 2, true)
		})
	}
	start := time.Now()
	pr.Terminate()
	select {
	case <-pr.Done:
	case <-time.After(timeout + margin):
		_ = pr.Cmd.Process.Signal(syscall.SIGQUIT) // stacks into the log
		pr.Wait()
		require.FailNow(w.t, "the process did not stop in time", target)
	}
	took := time.Since(start)
	w.t.Logf("%s: stopped after %v", target, took.Round(10*time.Millisecond))
	require.NoError(w.t, load())
	require.Zero(w.t, pr.Code, harness.Tail(pr.Log.String(), 20))
	w.nets[target].Set(harness.Weather{})

	lines := strings.Count(pr.Log.String(), tooShort)
	require.LessOrEqual(w.t, lines, 1, target)
	if took < timeout/4 { // the first part of a stop has a quarter of its time
		require.Zero(w.t, lines, "%s: there was time left", target)
	}
	return lines == 1
}
