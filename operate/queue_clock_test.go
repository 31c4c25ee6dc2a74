package operate_test

import (
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The oldest queued change is at least as old as it is said to be, and at most twice the time
// between two snapshots older while few are kept; its age grows while nothing moves.
func TestTheOldestQueuedChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var clock operate.QueueClock
		begin := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
		decided := map[int64]time.Time{} // by offset
		var end, position int64
		for n := range rapid.IntRange(1, 600).Draw(t, "snapshots") {
			now := begin.Add(time.Duration(n) * 5 * time.Second)
			for range rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "decided") {
				decided[end] = now
				end++
			}
			position += rapid.Int64Range(0, min(3, end-position)).Draw(t, "delivered")
			r, err := operate.ReadProgress(t.Context(), progress{
				marks: map[int32]store.Mark{0: {LastTo: change.NewVersion(1, end)}},
				rows:  []store.Progress{{Partition: 0, Positions: []store.ServicePosition{{Service: 1, Version: change.NewVersion(1, position)}}}},
			})
			require.NoError(t, err)
			clock.Note(r, now)
			oldest := clock.Oldest(r, 1)
			if position == end {
				require.Zero(t, oldest)
				continue
			}
			require.False(t, oldest.IsZero())
			require.False(t, oldest.After(decided[position]), "it is older than that")
			if n < 128 {
				require.Equal(t, decided[position], oldest)
			}
		}
	})
}
