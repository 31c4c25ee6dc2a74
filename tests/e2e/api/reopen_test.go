package api

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I12: while another configuration is active the doors of the older one are
// closed; after a roll-back they open again, in the same process, and know the
// keys that they knew.
func TestDoorsOpenAgainAfterARollBack(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole pipeline, with servers")
	}
	t.Parallel()
	w := newWorld(t, onServers, "30d").start()
	door := w.ins[0]
	q := keyed("k1", "A", "s1")
	first := w.post(door, q)
	w.id(first)
	w.wants(1)

	w.p.Write("new.yaml", harness.ReplaceOnce(t, w.p.Read("weir.yaml"), "customers/*.yaml", "new/*.yaml"))
	w.p.Write("new/acme.yaml", harness.ReplaceOnce(t, w.p.Read("customers/acme.yaml"), "state: state", "state: state, now: id"))
	newer := w.p.StartAs("new.yaml", "run --role work")
	newer.Ready(200)
	door.Says("event=revision.superseded")
	newer.Terminate()
	require.Zero(t, newer.Wait())
	refused := w.p.StartAs("weir.yaml", "run --role work")
	require.Equal(t, 1, refused.Wait(), "a restart alone does not bring the older one back")
	require.Contains(t, refused.Log.String(), "--activate")

	back := w.p.StartAs("weir.yaml", "run --role work --activate")
	back.Ready(200)
	door.Says("stage=ingest event=revision.active")
	addresses := regexp.MustCompile(`event=api.listening address=(\S+)`).FindAllStringSubmatch(door.Log.String(), -1)
	require.Len(t, addresses, 2)
	var again answer
	harness.Eventually(t, "the door takes requests", func() error {
		var err error
		again, err = try(t.Context(), addresses[1][1], q)
		if err == nil && again.status == 503 {
			err = fmt.Errorf("503 %s", again.body)
		}
		return err
	})
	require.Equal(t, answer{202, first.body, true, ""}, again)
	require.NotContains(t, strings.ToLower(door.Log.String()), "panic")
	back.Terminate()
	require.Zero(t, back.Wait())
	require.Equal(t, []string{"s1"}, w.states("A"))
}
