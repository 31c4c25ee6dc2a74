//go:build verify

package api

import (
	"strings"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// The process dies inside a request, at each boundary. The key is finished by
// the next request, in its place: what came between is not overwritten by a
// second effect of the first.
func TestCrashAfterWriteBeforeAnswer(t *testing.T) {
	both(t, func(t *testing.T, on string) {
		for _, c := range []struct {
			point string
			want  []string // the effects, in their order
		}{
			{crash.FrontBegun, []string{"between", "first"}},
			{crash.FrontAppended, []string{"first", "between"}},
			{crash.FrontCompleted, []string{"first", "between"}},
		} {
			for _, q := range []request{
				keyed("k1", "A", "first"),
				{path: "plain/events:batch", key: "k2", body: `[{"id":"A","state":"first"}]`},
				order("e1", "A", "first"),
			} {
				t.Run(c.point+"/"+q.path+q.key, func(t *testing.T) {
					w := newWorld(t, on, "30d")
					source, _, _ := strings.Cut(q.path, "/")
					dying := w.door("WEIR_CRASH=" + c.point + "@" + source + ":1")
					dying.Ready(200)
					_, err := try(t.Context(), dying.Address("ingest"), q)
					require.Error(t, err, "the process died before it answered")
					dying.Wait()
					status := dying.Cmd.ProcessState.Sys().(syscall.WaitStatus)
					require.Equal(t, syscall.SIGKILL, status.Signal(), harness.Tail(dying.Log.String(), 40))

					w.start()
					between := keyed("between", "A", "between")
					if source == "orders" { // of the same source: two of them would be merged
						between = order("between", "A", "between")
					}
					w.id(w.post(w.ins[0], between))
					if c.point == crash.FrontBegun {
						w.wants(1)
					} else {
						w.wants(2)
					}
					a := w.finish(w.ins[len(w.ins)-1], q)
					require.Equal(t, 202, a.status, a.body)
					if on == onServers { // SQLite forgets an answer that is not written out
						require.Equal(t, c.point == crash.FrontCompleted, a.replayed)
					}
					require.Equal(t, answer{202, a.body, true, ""}, w.post(w.ins[0], q), "from now on it is a repetition")
					require.Equal(t, c.want, w.states("A"))
				})
			}
		}
	})
}
