//go:build verify

package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// blow is what happens to the embedded process, and when.
type blow struct {
	after  time.Duration // of its life, so from opening until past the end of the load
	signal syscall.Signal
	pause  time.Duration // of a SIGSTOP before the signal; 0: none
}

func (b blow) String() string {
	if b.pause > 0 {
		return fmt.Sprintf("%v: pause %v, %v", b.after, b.pause, b.signal)
	}
	return fmt.Sprintf("%v: %v", b.after, b.signal)
}

// I1, I2, I4, I5: the file sink has one writer. It, its broker and its state are
// one process, which is killed, paused and stopped at random; the files hold
// every change once and in order.
func TestChaosEmbedded(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 2))
	blows := make([]blow, *rounds)
	for i := range blows {
		blows[i].after = time.Duration(100+r.IntN(1200)) * time.Millisecond
		blows[i].signal = syscall.SIGKILL
		if r.IntN(4) == 0 {
			blows[i].signal = syscall.SIGTERM
		}
		if r.IntN(3) == 0 {
			blows[i].pause = time.Duration(50+r.IntN(500)) * time.Millisecond
		}
	}
	t.Logf("seed %d: %v", *seed, blows)
	p := harness.Generate(t, int(*seed), 300, 1500*len(blows)) //nolint:gosec // a seed
	for _, b := range blows {
		run := p.Start("run --until-idle")
		ended := func(d time.Duration) bool {
			select {
			case <-run.Done:
				return true
			case <-time.After(d):
				return false
			}
		}
		signal := func(s syscall.Signal) {
			if err := run.Cmd.Process.Signal(s); err != nil {
				require.ErrorIs(t, err, os.ErrProcessDone) // by itself, a moment ago
			}
		}
		if ended(b.after) {
			require.Zero(t, run.Code, harness.Tail(run.Log.String(), 60))
			continue
		}
		if b.pause > 0 {
			signal(syscall.SIGSTOP)
			ended(b.pause)
			signal(syscall.SIGCONT)
		}
		if b.signal == syscall.SIGTERM {
			// A process that has not come to its first line may not have asked for
			// the signal yet, and dies of it.
			harness.Eventually(t, "the process has begun", func() error {
				return harness.Want(run.Ended() || run.Log.String() != "", true)
			})
		}
		signal(b.signal)
		if b.signal == syscall.SIGTERM {
			run.Ok()
		} else {
			run.Wait()
		}
	}
	p.Drain()
	harness.CheckGenerated(p)
	require.Empty(t, p.Letters())
	require.Zero(t, p.Drain().Read)
}
