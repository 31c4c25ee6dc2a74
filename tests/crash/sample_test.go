package crash

import (
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/operate"
)

// I1, I2, I4, I5, I9: a handful of the matrix, one of each kind of boundary: of
// ingest, the decision, a takeover, a delivery, the ways in and
// an operator's command. `SUITE=crash make verify` runs all.
func TestKilledAtSomePoints(t *testing.T) {
	for _, c := range []cell{
		{on: onPostgres, point: crash.Appended, place: "registry", nth: 1},
		{on: onSQLite, point: crash.DecideOutcome, nth: 1},
		{on: onPostgres, point: crash.DecideCommitted, nth: 1},
		{on: onPostgres, point: crash.TakenOver, nth: 1},
		{on: onSQLite, point: crash.DecideCommitted, nth: 1},
		{on: onSQLite, point: crash.TakenOver, nth: 1},
		{on: onSQLite, point: crash.Written, place: "file", nth: 1},
		{on: onPostgres, point: crash.Written, place: "paced", nth: 2},
		{on: onSQLite, point: crash.Saving, nth: 2}, // changes rest
		{on: onPostgres, point: crash.WriteFlying, place: "kafka", nth: 1},
		{on: onSQLite, point: crash.Written, place: "kafka", nth: 2},
		{on: onSQLite, point: crash.FrontAppended, place: "registry", nth: 1, door: true},
		{on: onSQLite, point: crash.JobAppended, place: replay[0], nth: 1, command: replay},
		{on: onSQLite, point: crash.JobAppended, place: operate.ForgetKind, nth: 1, command: forget},
		{on: onSQLite, point: crash.GuardHeld, place: "file", nth: 1, command: release},
		{on: onSQLite, point: crash.HoldEnded, place: "batched", nth: 1, command: release},
	} {
		t.Run(c.on+" "+c.spec(c.nth), func(t *testing.T) {
			t.Parallel()
			for sink, found := range c.run(t) {
				if !found.zero() {
					t.Errorf("%s: lost / duplicate / stale / out of order = %s: %s", sink, found, strings.Join(found.notes, "; "))
				}
			}
		})
	}
}
