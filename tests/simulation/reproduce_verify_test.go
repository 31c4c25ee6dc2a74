//go:build verify

package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A seed nearly always reproduces the same effects at the same virtual times,
// alone as well as among others: see the package's documentation for the part
// left to the runtime. A machine that stops in the middle of a schedule disturbs
// it too: goroutines that run for longer than 10 ms of real time lose their turn.
// So the test asks whether a seed has a trace of its own: one that it produces twice in a
// few runs. If draws depended on what other schedules do, there would be none.
func TestSeedsReproduce(t *testing.T) {
	f := fixture(t)
	const schedules, runs = 200, 5
	atOnce, same, among := 0, 0, map[uint64]Report{}
	simulate(t, f, Rules{}, true, inARow(1, schedules), func(r Report) bool { among[r.Seed] = r; return true })
	for s := uint64(1); s <= schedules; s++ {
		traces := map[uint64]bool{among[s].Trace: true}
		for run := 2; run <= runs; run++ {
			r := once(t, f, s, true)
			if traces[r.Trace] {
				same++
				if run == 2 {
					atOnce++
				}
				break
			}
			traces[r.Trace] = true
			t.Logf("seed %d: %d and %d effects", s, len(among[s].Lines), len(r.Lines))
		}
	}
	t.Logf("%d of %d, %d of them at once", same, schedules, atOnce)
	require.Greater(t, same, schedules*3/4)
}
