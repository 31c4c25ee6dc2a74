//go:build verify

package crash

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// places are where a point can be passed, by store; a point that is not named
// has no places. An empty list: the point does not exist with that store.
func places(on, point string) []string {
	postgres := on == onPostgres
	switch point {
	case crash.Fetched, crash.Acknowledged, crash.Committing, crash.Committed:
		switch {
		case !postgres && (point == crash.Committing || point == crash.Committed):
			return nil // positions are in the store alone
		case postgres && point == crash.Acknowledged:
			return []string{".work", ".overlay", ".registry"} // both transports of sources
		case postgres:
			return []string{".work", ".registry"}
		}
		return []string{".work"}
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
	case crash.DeliverBatch, crash.GuardCounted, crash.Writing, crash.WriteHalf, crash.WriteFlying, crash.Written:
		return sinkNames
	}
	return []string{""}
}

// matrix returns the cells. usual is how often each point is passed in a run
// without a kill, door the same of a world with a door, slot of one with tables.
func matrix(on string, usual, door, slot map[string]int) []cell {
	var all []cell
	for _, point := range crash.Points() {
		at := places(on, point)
		for _, place := range at {
			all = append(all, cell{on: on, point: point, place: place, nth: 1})
			if later := usual[point]/2/len(at) + 1; later > 1 {
				all = append(all, cell{on: on, point: point, place: place, nth: later})
			}
		}
	}
	return slices.Concat(all, operatorCells(on), doorCells(on, door), slotCells(on, slot))
}

// operatorCells returns the cells in which a command dies.
func operatorCells(on string) []cell {
	var all []cell
	for _, point := range crash.OperatorPoints() {
		if point == crash.LettersReplay || point == crash.LettersReplayed {
			all = append(all, cell{on: on, point: point, nth: 1, command: letters})
			continue
		}
		for _, c := range [][]string{replay, reset, backfill} {
			all = append(all, cell{on: on, point: point, place: c[0], nth: 1, command: c})
		}
	}
	for _, point := range crash.ForgetPoints() {
		all = append(all, cell{on: on, point: point, place: operate.ForgetKind, nth: 1, command: forget})
	}
	for _, point := range crash.GuardPoints() {
		for _, sink := range []string{"batched", "file"} { // of a state sink and of a log sink
			all = append(all, cell{on: on, point: point, place: sink, nth: 1, command: release})
		}
	}
	return all
}

// passing is a place where a point is passed.
type passing struct{ point, place string }

// doorPassings are those of the ways in, in the order of the flow. further are
// points that other sources pass as well.
func doorPassings() (own, further []passing) {
	for _, p := range crash.FrontPoints() {
		own = append(own, passing{p, "registry"})
	}
	for _, p := range crash.OutboxPoints() {
		own = append(own, passing{p, "lab"})
	}
	for _, p := range []string{crash.IngestBatch, crash.GateChecked, crash.AppendHalf, crash.Appended, crash.Marked} {
		further = append(further, passing{p, "lab"}, passing{p, "registry"})
	}
	return own, further
}

// doorCells returns the cells of a world with a door. usual is how often points
// are passed in a run without a kill, by "point place".
func doorCells(on string, usual map[string]int) []cell {
	own, further := doorPassings()
	all := []cell{checksCell(on, 1), checksCell(on, 2)}
	for _, p := range append(own, further...) {
		c := cell{on: on, point: p.point, place: p.place, nth: 1, door: true}
		all = append(all, c)
		if c.nth = usual[p.point+" "+p.place]/2 + 1; c.nth > 1 {
			all = append(all, c)
		}
	}
	return all
}

// checksCell is the reset of check services, which dies behind the rows of the nth of them.
func checksCell(on string, nth int) cell {
	return cell{on: on, point: crash.ChecksReset, place: reset[0], nth: nth, command: reset, door: true}
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
	b.WriteString("| point | kills on PostgreSQL | kills on SQLite | ClickHouse | PostgreSQL upsert | PostgreSQL append | webhook | webhook in batches | webhook at a pace | Kafka | file |\n|" + strings.Repeat(" --- |", 3+len(sinkNames)) + "\n")
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

// usual lets a world without a kill run, and returns how often each point was
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

var table = flag.String("crash.table", "", "write the table to this file")

// I1, I2, I4, I5, I9: at whichever boundary a process dies, and with either
// store, no sink loses, repeats, mixes up or keeps old content.
func TestCrashMatrix(t *testing.T) {
	r := &results{kills: map[string]map[string]int{}, found: map[string]map[string]*tally{}}
	t.Run("kill", func(t *testing.T) {
		for _, on := range []string{onPostgres, onSQLite} {
			t.Run(on, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, on)
				behind := newDoor(t, on)
				shop := newTables(t, on, true)
				for _, c := range matrix(on, usual(w, w.run), usual(behind, behind.serve), usual(shop, shop.run)) {
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
		if r.kills[point] == nil && !slices.Contains(crash.ImportPoints(), point) { // tests/e2e/imports dies at those
			t.Errorf("%s: no kill", point)
		}
	}
	text := r.table()
	t.Log("lost / duplicate effects / stale / out of order\n" + text)
	if *table != "" {
		require.NoError(t, os.WriteFile(*table, []byte(r.state(t)+"\n\nlost / duplicate effects / stale / out of order\n\n"+text), 0o644))
	}
}
