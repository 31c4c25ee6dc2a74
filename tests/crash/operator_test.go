package crash

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/client"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/operate"
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
	forget   = []string{"customer", "remove", "acme", "--forget", "--yes"} // acme's file is gone
	release  = []string{"guard", "release"}
)

// outdated counts entities that the first revision decided: a revision is known
// by its identity, which begins with the fingerprint.
const outdated = "SELECT count(*) FROM entities WHERE substr(fingerprint, 1, 32) IN (SELECT substr(fingerprint, 1, 32) FROM revisions WHERE number = 1)"

// operate lets the pipeline drain, kills the command at its point, returns the
// same command again, and lets the pipeline drain once more.
func (c cell) operate(w *world) map[string]tally {
	if slices.Equal(c.command, release) {
		return c.release(w)
	}
	var answers []client.Answer
	if c.door {
		e := w.serve("")
		require.Zero(w.t, e.code, harness.Tail(e.log, 60))
		answers = w.asked()
	}
	w.drain()
	if slices.Equal(c.command, backfill) {
		// Another fingerprint, under which every document is the same.
		w.Write("weir.yaml", strings.Replace(w.Read("weir.yaml"), `strip: ["updated_at"`, `strip: ["nowhere", "updated_at"`, 1))
		w.drain()
		require.NotZero(w.t, w.count(outdated))
	}
	if slices.Equal(c.command, forget) {
		w.Write("weir.yaml", strings.Replace(w.Read("weir.yaml"), `["acme.yaml"]`, `["other.yaml"]`, 1))
		w.Write("other.yaml", otherFile)
		w.drain()
		w.refusedAs = forgotten
		require.NotZero(w.t, w.count("SELECT count(*) FROM dam_rows WHERE service LIKE 'acme/%'"))
	}
	e := w.command(c.spec(c.nth), c.command...)
	require.True(w.t, e.diedAt(c.point), "it ended by itself before %s\n%s", c.spec(c.nth), harness.Tail(e.log, 60))
	e = w.command("", c.command...)
	if finished := slices.Equal(c.command, forget) && c.point == crash.JobSaved; !finished { // the store then knows no acme
		require.Zero(w.t, e.code, harness.Tail(e.log, 60))
	}
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
	case slices.Equal(c.command, forget):
		for _, table := range []string{"dam_rows", "dead_letters"} {
			require.Zero(w.t, w.count("SELECT count(*) FROM "+table+" WHERE service LIKE 'acme/%'"), table)
		}
		require.Zero(w.t, w.count("SELECT count(*) FROM services WHERE name LIKE 'acme/%'"))
	}
	return w.compare()
}

// otherFile is the customer that stays when acme is removed.
const otherFile = `
customer: other
projections:
  view:
    fields: {id: id}
    deliver: {file: {file: {path: out/other.jsonl}}}
`

// forgotten is the state of rows of a customer that was removed.
const forgotten = ""

// release lets the guard hold every service at its third update, with a kill of the process behind the
// first hold, or of the command that ends it, until all holds are released and nothing is left.
func (c cell) release(w *world) map[string]tally {
	w.Write("acme.yaml", strings.Replace(w.Read("acme.yaml"), "customer: acme\n", "customer: acme\nguard: {retract: off, update: 1%, min: 2}\n", 1))
	killed := c.point == crash.GuardHeld
	if killed {
		e := w.run(c.spec(1))
		require.True(w.t, e.diedAt(c.point), "it ended by itself before %s\n%s", c.spec(1), harness.Tail(e.log, 60))
	}
	for held := w.untilHeld(); len(held) > 0; held = w.untilHeld() {
		for _, service := range held {
			args := append(slices.Clone(release), service)
			if killed || !strings.HasSuffix(service, c.place) {
				require.Zero(w.t, w.command("", args...).code, args)
				continue
			}
			e := w.command(c.spec(1), args...)
			require.True(w.t, e.diedAt(c.point), "it ended by itself before %s\n%s", c.spec(1), harness.Tail(e.log, 60))
			killed = true
			require.Equal(w.t, c.point == crash.HoldEnding, w.command("", args...).code == 0, "the hold is ended once")
		}
	}
	require.True(w.t, killed, "the guard never held %s", c.place)
	return w.compare()
}

// untilHeld runs the pipeline until it has nothing to do but for services that the guard holds, and
// returns these; none: until it is idle.
func (w *world) untilHeld() []string {
	pr := w.Start("run", "--until-idle")
	var held []string
	harness.Eventually(w.t, "idle or held", func() error {
		held = held[:0]
		if pr.Ended() {
			return nil
		}
		list := w.Start("guard show --json")
		if list.Wait() != 0 { // before the first run there is no store
			return errors.New(list.Log.String())
		}
		var found []operate.Held
		if err := json.Unmarshal(list.Out.Bytes(), &found); err != nil {
			return err
		}
		for _, h := range found {
			held = append(held, h.Service)
		}
		return harness.Want(len(held) > 0, true)
	})
	if len(held) > 0 {
		pr.Terminate()
	}
	require.True(w.t, pr.Wait() == 0 || len(held) > 0, harness.Tail(pr.Log.String(), 60))
	return held
}

func (w *world) count(query string) (n int64) {
	require.NoError(w.t, w.query(query, func(scan func(...any) error) error { return scan(&n) }))
	return n
}
