package crash

import (
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/client"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// Operators' requests in the matrix. None of them may send anything that is
// not due: after a replay every entity is unchanged; a reset alone sends
// nothing; a backfill finds a configuration that shows the same; and a letter
// that is replayed is refused once more.
var (
	replay   = []string{"replay", "--all"}
	reset    = []string{"reset", "--all", "--yes"}
	backfill = []string{"replay", "--outdated"}
	letters  = []string{"dlq", "replay", "--all", "--yes"}
)

// outdated counts entities that the first revision decided: a revision is known
// by its identity, which begins with the fingerprint.
const outdated = "SELECT count(*) FROM entities WHERE fingerprint IN (SELECT substr(fingerprint, 1, 32) FROM revisions WHERE number = 1)"

// operate lets the pipeline drain, kills the command at its point, returns the
// same command again, and lets the pipeline drain once more.
func (c cell) operate(w *world) map[string]tally {
	var answers []client.Answer
	if c.door {
		e := w.serve("")
		require.Zero(w.t, e.code, harness.Tail(e.log, 60))
		answers = w.asked()
	}
	w.drain()
	if slices.Equal(c.command, backfill) {
		// Another fingerprint, under which every document is the same.
		w.write("weir.yaml", strings.Replace(w.read("weir.yaml"), `strip: ["updated_at"`, `strip: ["nowhere", "updated_at"`, 1))
		w.drain()
		require.NotZero(w.t, w.count(outdated))
	}
	e := w.command(c.spec(c.nth), c.command...)
	require.True(w.t, e.diedAt(c.point), "it ended by itself before %s\n%s", c.spec(c.nth), harness.Tail(e.log, 60))
	e = w.command("", c.command...)
	require.Zero(w.t, e.code, harness.Tail(e.log, 60))
	w.drain()
	switch {
	case slices.Equal(c.command, reset):
		w.refusedAs = "unknown"
		require.Zero(w.t, w.count("SELECT count(*) FROM dam_rows WHERE state <> 'unknown'"))
		if c.door {
			w.forgotten(answers)
		}
	case slices.Equal(c.command, backfill):
		require.Zero(w.t, w.count(outdated))
	}
	return w.compare()
}

func (w *world) count(query string) (n int64) {
	require.NoError(w.t, w.query(query, func(scan func(...any) error) error { return scan(&n) }))
	return n
}
