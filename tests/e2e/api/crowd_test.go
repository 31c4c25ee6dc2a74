package api

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I2: 64 clients send one request at the same time, while a process that takes it dies inside,
// at each boundary: one effect and one answer, also when newer events of the entity came since.
func TestManyClientsWithOneKey(t *testing.T) {
	both(t, func(t *testing.T, on string) {
		w := newWorld(t, on, "30d")
		if on == onServers {
			w.start()
		}
		var states []string
		var doors atomic.Pointer[[]string]
		crowd := func(q request) (string, error) { return w.crowd(q, func() []string { return *doors.Load() }) }
		open := func(ins ...*harness.Process) {
			var addresses []string
			for _, in := range ins {
				addresses = append(addresses, in.Address("ingest"))
			}
			doors.Store(&addresses)
		}
		for _, point := range []string{crash.FrontBegun, crash.FrontAppended, crash.FrontCompleted} {
			q := keyed("key-"+point, "A", point)
			if point == crash.FrontAppended {
				q = request{path: "plain/events:batch", key: "key", body: `[{"id":"A","state":"` + point + `"}]`}
			}
			dying := w.door("WEIR_CRASH=" + point + "@plain:1")
			dying.Ready(200)
			open(dying)
			var first string
			answered := make(chan error, 1)
			go func() {
				var err error
				first, err = crowd(q)
				answered <- err
			}()
			dying.Wait()
			require.Equal(t, syscall.SIGKILL, dying.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), harness.Tail(dying.Log.String(), 40))
			if on == embedded {
				w.start()
			}
			open(w.ins...)
			require.NoError(t, <-answered)
			w.id(w.post(w.ins[0], keyed("later-"+point, "A", "later-"+point)))
			again, err := crowd(q)
			require.NoError(t, err)
			require.Equal(t, first, again)
			states = append(states, point, "later-"+point)
			w.wants(len(states))
			if on == embedded {
				w.stop()
				w.ins = nil
			}
		}
		require.Equal(t, states, w.states("A"))
	})
}
