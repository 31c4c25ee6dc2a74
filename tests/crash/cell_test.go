package crash

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// cell is one kill.
type cell struct {
	on, point, place string
	nth              int
	// door is where the events come by HTTP and in a table.
	door bool
	// tables is where the sources are tables of a PostgreSQL.
	tables bool
	// command is what an operator asks for when the pipeline has drained and
	// stopped; it is what dies. Empty: the pipeline dies.
	command []string
}

func (c cell) spec(nth int) string {
	place := ""
	if c.place != "" {
		place = "@" + c.place
	}
	return fmt.Sprintf("%s%s:%d", c.point, place, nth)
}

// first is where the process dies before the one that is to die in takeover,
// so that there is something to take over.
func (c cell) first() string {
	if c.point == crash.TakenOver {
		return crash.DecideCommitted
	}
	return ""
}

// world makes a fresh world for a cell.
func (c cell) world(t testing.TB) *world {
	if c.tables {
		w := newTables(t, c.on, c.point != crash.SlotMade)
		if c.point == crash.ChangesAppended { // those before the rows are read may all be in them
			w.drain()
			w.execute(len(w.tables.rest))
		}
		return w
	}
	if c.door {
		return newDoor(t, c.on)
	}
	return newWorld(t, c.on)
}

// run makes one kill and returns the faults found afterwards.
func (c cell) run(t *testing.T) map[string]tally {
	w := c.world(t)
	if c.command != nil {
		return c.operate(w)
	}
	// How often a point is passed depends on how the batches fall. A run that
	// ended before the wanted passing is repeated in a fresh world.
	for nth, vain := c.nth, 0; ; w = c.world(t) {
		require.Less(t, vain, 5, "%s is never passed, or what must come before it", c.spec(nth))
		if first := c.first(); first != "" {
			if e := w.run(first + ":1"); !e.diedAt(first) {
				require.Zero(t, e.code, "it ended by itself before %s\n%s", first, harness.Tail(e.log, 60))
				vain++
				continue
			}
		}
		run := w.run
		if c.door {
			run = w.serve
		}
		e := run(c.spec(nth))
		if e.diedAt(c.point) {
			break
		}
		require.Zero(t, e.code, "it ended by itself before %s\n%s", c.spec(nth), harness.Tail(e.log, 60))
		if nth == 1 {
			vain++
		}
		nth = (nth + 1) / 2
	}
	if c.tables && len(w.tables.rest) > 0 {
		w.execute(len(w.tables.rest))
	}
	w.drain()
	return w.compare()
}
