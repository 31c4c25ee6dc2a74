package crashtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/e2e/harness"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/stretchr/testify/require"
)

// places are where a point can be passed, by store; a point that is not named
// has no places. An empty list: the point does not exist with that store.
func places(on, point string) []string {
	postgres := on == onPostgres
	switch point {
	case crash.Fetched, crash.Acknowledged, crash.Committing, crash.Committed:
		switch {
		case postgres && point == crash.Acknowledged:
			return []string{".deliver", ".decide", ".overlay", ".registry"} // both transports of sources
		case postgres:
			return []string{".deliver", ".decide", ".registry"}
		}
		return []string{".deliver", ".decide"}
	case crash.IngestBatch, crash.GateChecked, crash.Appended, crash.Marked:
		return []string{"registry", "overlay"}
	case crash.AppendHalf:
		return []string{"registry"}
	case crash.PositionSaving, crash.PositionSaved:
		if postgres {
			return nil
		}
		return []string{"registry"}
	case crash.MigrateHalf:
		if !postgres {
			return nil
		}
	case crash.DeliverBatch, crash.Writing, crash.WriteHalf, crash.WriteFlying, crash.Written:
		return sinkNames
	}
	return []string{""}
}

// cell is one kill.
type cell struct {
	on, point, place string
	nth              int
	// door is where the events come by HTTP, in files to import, and in a table.
	door bool
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

// first is where the process dies before the one that is to die in take-over,
// so that there is something to take over.
func (c cell) first() string {
	switch c.point {
	case crash.TakenOver, crash.RepublishHalf, crash.Republished:
		return crash.PublishHalf + ":2"
	}
	return ""
}

// matrix gives the cells. usual is how often each point is passed in a run
// without a kill, door the same of a world with a door.
func matrix(on string, usual, door map[string]int) []cell {
	var all []cell
	for i, point := range crash.Points() {
		at := places(on, point)
		if !*full && len(at) > 0 {
			n := i % len(at)
			if on == onSQLite { // so that each sink has its turn
				n = (i + 1) % len(at)
			}
			at = at[n : n+1]
		}
		for _, place := range at {
			c := cell{on: on, point: point, place: place, nth: 1}
			later := usual[point]/2/len(places(on, point)) + 1
			switch {
			case *full && later > 1:
				all = append(all, c, cell{on: on, point: point, place: place, nth: later})
			case on == onSQLite:
				c.nth = later
				fallthrough
			default:
				all = append(all, c)
			}
		}
	}
	return append(append(all, operatorCells(on)...), doorCells(on, door)...)
}

// results collects the tallies of all cells.
type results struct {
	mu    sync.Mutex
	kills map[string]map[string]int    // by point and store
	found map[string]map[string]*tally // by point and sink
}

func (r *results) add(c cell, found map[string]tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kills[c.point] == nil {
		r.kills[c.point], r.found[c.point] = map[string]int{}, map[string]*tally{}
	}
	r.kills[c.point][c.on]++
	for sink, t := range found {
		if r.found[c.point][sink] == nil {
			r.found[c.point][sink] = &tally{}
		}
		r.found[c.point][sink].add(t)
	}
}

// table is the matrix in Markdown.
func (r *results) table() string {
	var b strings.Builder
	b.WriteString("| point | kills on PostgreSQL | kills on SQLite | ClickHouse | PostgreSQL upsert | PostgreSQL append | webhook | Kafka | file |\n|" + strings.Repeat(" --- |", 9) + "\n")
	for _, point := range crash.All() {
		if r.kills[point] == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %d |", point, r.kills[point][onPostgres], r.kills[point][onSQLite])
		for _, sink := range sinkNames {
			fmt.Fprintf(&b, " %s |", r.found[point][sink])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// state says in a sentence which run the table is of.
func (r *results) state(t testing.TB) string {
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short", "HEAD").Output()
	require.NoError(t, err)
	kills := 0
	for _, stores := range r.kills {
		kills += stores[onPostgres] + stores[onSQLite]
	}
	return fmt.Sprintf("Run on %s at commit %s: %d kills.", time.Now().UTC().Format(time.DateOnly), bytes.TrimSpace(commit), kills)
}

// tableMark stands in the page where the table begins; it is the last thing there.
const tableMark = "<!-- make crash writes the table below -->"

// usual lets a world without a kill run, and gives how often each point was
// passed, by its name and by "name place". All must be zero then too.
func usual(w *world, run func(crash string) end) map[string]int {
	e := run("")
	require.Zero(w.t, e.code, harness.Tail(e.log, 60))
	w.drain()
	for sink, found := range w.compare() {
		require.True(w.t, found.zero(), "%s: %s", sink, strings.Join(found.notes, "; "))
	}
	passed := map[string]int{}
	for _, p := range e.passed {
		name, _, _ := strings.Cut(p, " ")
		passed[name]++
		passed[p]++
	}
	return passed
}

// world makes a fresh world for a cell.
func (c cell) world(t testing.TB) *world {
	if !c.door {
		return newWorld(t, c.on)
	}
	after := "delete"
	if (c.on == onSQLite) == (c.nth == 1) {
		after = "mark"
	}
	return newDoor(t, c.on, after)
}

// run makes one kill and gives what is wrong afterwards.
func (c cell) run(t *testing.T) map[string]tally {
	w := c.world(t)
	if c.command != nil {
		return c.operate(w)
	}
	for nth := c.nth; ; nth = (nth + 1) / 2 {
		// How often a point is passed depends on how the batches fall. A run
		// that ended before the wanted passing is repeated in a fresh world.
		if first := c.first(); first != "" {
			e := w.run(first)
			require.True(t, e.diedAt(crash.PublishHalf), "it did not die at %s\n%s", first, harness.Tail(e.log, 40))
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
		require.Greater(t, nth, 1, "%s is never passed", c.spec(nth))
		w = c.world(t)
	}
	w.drain()
	return w.compare()
}

// I1, I2, I4, I5, I9: whichever boundary a process dies at, and whatever its
// store, no sink loses, repeats, mixes up or keeps old content.
func TestCrashMatrix(t *testing.T) {
	r := &results{kills: map[string]map[string]int{}, found: map[string]map[string]*tally{}}
	t.Run("kill", func(t *testing.T) {
		for _, on := range []string{onPostgres, onSQLite} {
			t.Run(on, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, on)
				passed, door := usual(w, w.run), map[string]int(nil)
				if *full {
					w := newDoor(t, on, "delete")
					door = usual(w, w.serve)
				}
				for _, c := range matrix(on, passed, door) {
					t.Run(strings.Join(append(slices.Clone(c.command), c.spec(c.nth)), " "), func(t *testing.T) {
						t.Parallel()
						found := c.run(t)
						r.add(c, found)
						for sink, f := range found {
							if !f.zero() {
								t.Errorf("%s: lost / duplicate / stale / out of order = %s: %s", sink, f, strings.Join(f.notes, "; "))
							}
						}
					})
				}
			})
		}
	})
	if t.Failed() && len(r.kills) == 0 {
		return
	}
	for _, point := range crash.All() {
		if r.kills[point] == nil {
			t.Errorf("%s: no kill", point)
		}
	}
	text := r.table()
	t.Log("lost / duplicate effects / stale / out of order\n" + text)
	if *table != "" {
		page, err := os.ReadFile(*table)
		require.NoError(t, err)
		above, _, ok := strings.Cut(string(page), tableMark)
		require.True(t, ok, "%s has no line %s", *table, tableMark)
		require.NoError(t, os.WriteFile(*table, []byte(above+tableMark+"\n\n"+r.state(t)+"\n\n"+text), 0o644))
	}
}
