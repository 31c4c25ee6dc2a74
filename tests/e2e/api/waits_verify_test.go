//go:build verify

package api

import (
	"strings"
	"syscall"
	"testing"
	"time"

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
					w.wants(len(c.want) - 1 + boolean(c.point != crash.FrontBegun))
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

// A key is dropped when its retention is over: then it belongs to the
// first event sent under it. Both ways run side by side, since a minute is the least
// retention.
func TestExpiryThenTheKeyIsNew(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a minute, with servers")
	}
	t.Parallel()
	const retention = time.Minute
	other := keyed("k1", "A", "s2")
	var worlds []*world
	var began []time.Time
	var first []answer
	for i, on := range []string{embedded, onServers} {
		worlds = append(worlds, newWorld(t, on, retention.String()).start())
		began = append(began, time.Now())
		first = append(first, worlds[i].post(worlds[i].ins[0], keyed("k1", "A", "s1")))
		worlds[i].id(first[i])
		a := worlds[i].post(worlds[i].ins[0], other)
		require.Equal(t, 422, a.status, a.body)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for i, w := range worlds {
		a := w.post(w.ins[0], other)
		for a.status == 422 && time.Since(began[i]) < retention+harness.Patience {
			<-tick.C
			a = w.post(w.ins[len(w.ins)-1], other)
		}
		require.GreaterOrEqual(t, time.Since(began[i]), retention, "forgotten too early")
		require.NotEqual(t, w.id(first[i]), w.id(a))
		require.False(t, a.replayed)
		require.Equal(t, 422, w.post(w.ins[0], keyed("k1", "A", "s1")).status, "the key is the new content's now")
		require.Equal(t, []string{"s1", "s2"}, w.states("A"))
	}
}
