package recovery

import (
	"errors"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I1, I2, I4: the connection is lost in the middle of COMMIT, so that Weir
// cannot know what became of it: at times it was done, at times it was not.
// Nothing is lost and nothing comes twice, under load and for two outcomes in a row.
func TestConnectionCutDuringCommit(t *testing.T) {
	t.Parallel()
	p := newProxy(t, servers.Postgres(t))
	w := newWorld(t, p.url, 100)
	run := w.run()
	w.say(1)
	w.agree(run)
	p.cuts(func(n int) outcome {
		return []outcome{committed, spared, notCommitted, notCommitted, spared, committed, committed, notCommitted}[n%8]
	})
	harness.Eventually(t, "several cuts of both kinds", func() error {
		w.say(1)
		return errors.Join(
			harness.Want(p.happened(committed) >= 4, true),
			harness.Want(p.happened(notCommitted) >= 4, true),
		)
	})
	p.cuts(func(int) outcome { return spared })
	w.agree(run)
	run.Says("event=decide.retake")
	run.Ready(200)
	require.Zero(t, run.Metric("weir_inbox_rereads_total"), "the store lost nothing")
	stop(run)
	require.NoError(t, w.check())
	require.Zero(t, w.repeated(), "a target is not asked twice either")
	require.Empty(t, w.Letters())
}
