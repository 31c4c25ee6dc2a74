package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// guardMemory counts as the stores do, for the retractions of one service.
type guardMemory struct {
	state store.GuardState
	slots map[string]time.Time
}

func (m *guardMemory) admit(now time.Time, changes ...store.GuardedChange) []store.Admitted {
	a := store.Admission{Kind: store.GuardRetract, Share: 0.05, Min: 50, Window: 10 * time.Minute, Entities: 1000, Now: now, Changes: changes}
	n := store.GuardCounts{Known: map[string]time.Time{}, Slots: map[time.Time]int64{}}
	for entity, at := range m.slots {
		n.Known[entity] = at
		n.Slots[at]++
	}
	answers, _, _ := m.state.Judge(&a, &n)
	m.slots = n.Known
	return answers
}

// history draws the retractions of months: fewer than the limit in each window are of entities that the
// service had for longer than that, and many others came and left within one.
func history(t *rapid.T) []store.GuardedChange {
	begin := time.Unix(1_600_000_000, 0)
	var all []store.GuardedChange
	for n := range rapid.IntRange(100, 1000).Draw(t, "retractions") {
		begin = begin.Add(time.Duration(rapid.Int64Range(int64(15*time.Second), int64(time.Hour)).Draw(t, "pause")))
		all = append(all, store.GuardedChange{Entity: fmt.Sprint("e", n), Position: change.NewVersion(1, int64(len(all))), At: begin})
		if rapid.IntRange(0, 50).Draw(t, "sessions") == 0 {
			for i := range rapid.IntRange(1, 200).Draw(t, "short") {
				all = append(all, store.GuardedChange{Entity: fmt.Sprint("s", n, "/", i), Position: change.NewVersion(1, int64(len(all))), At: begin, Young: true})
			}
		}
	}
	return all
}

// batches cuts changes, in the order of a few partitions, into writes, and calls f with each.
func batches(t *rapid.T, changes []store.GuardedChange, f func([]store.GuardedChange)) {
	parts := make([][]store.GuardedChange, rapid.IntRange(1, 4).Draw(t, "partitions"))
	for n, c := range changes {
		parts[n%len(parts)] = append(parts[n%len(parts)], c)
	}
	for left := true; left; {
		left = false
		for p := range parts {
			size := min(len(parts[p]), rapid.IntRange(0, 60).Draw(t, "size"))
			if size > 0 {
				f(parts[p][:size])
			}
			parts[p] = parts[p][size:]
			left = left || len(parts[p]) > 0
		}
	}
}

// Months of history that are read in seconds hold nothing, in any order of the partitions.
func TestABacklogIsNotHeldByItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, now := &guardMemory{}, time.Unix(1_700_000_000, 0)
		batches(t, history(t), func(changes []store.GuardedChange) {
			now = now.Add(time.Millisecond)
			require.NotContains(t, m.admit(now, changes...), store.Held)
		})
	})
}

// A mass deletion within such a history is held, at the limit.
func TestAMassDeletionInABacklogIsHeld(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		changes := history(t)
		at := rapid.IntRange(0, len(changes)-1).Draw(t, "accident")
		burst := rapid.IntRange(51, 300).Draw(t, "deleted")
		all := append([]store.GuardedChange{}, changes[:at]...)
		for n := range burst {
			all = append(all, store.GuardedChange{Entity: fmt.Sprint("gone", n), At: changes[at].At.Add(time.Duration(n) * time.Millisecond)})
		}
		all = append(all, changes[at:]...)
		m, now := &guardMemory{}, time.Unix(1_700_000_000, 0)
		held, left := false, 0
		batches(t, all, func(changes []store.GuardedChange) {
			if held {
				return
			}
			now = now.Add(time.Millisecond)
			for n, answer := range m.admit(now, changes...) {
				held = held || answer == store.Held
				if answer == store.Counted && len(changes[n].Entity) > 4 && changes[n].Entity[:4] == "gone" {
					left++
				}
			}
		})
		require.True(t, held)
		require.LessOrEqual(t, left, 50)
	})
}

// Without times of the source, a whole file of history is now: entities that came and left within it do
// not count, earlier ones do.
func TestAHistoryWithoutTimes(t *testing.T) {
	t.Parallel()
	m, now := &guardMemory{}, time.Unix(1_700_000_000, 0)
	for n := range 1000 {
		require.NotContains(t, m.admit(now, store.GuardedChange{Entity: fmt.Sprint("e", n), Young: true}), store.Held)
	}
	held := false
	for n := range 51 {
		held = m.admit(now, store.GuardedChange{Entity: fmt.Sprint("old", n)})[0] == store.Held
	}
	require.True(t, held)
}

// Without a time of the source, and with one that lies ahead, a change counts now.
func TestAChangeWithoutATimeCountsNow(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	m := &guardMemory{}
	var changes []store.GuardedChange
	for n := range 60 {
		c := store.GuardedChange{Entity: fmt.Sprint("e", n)}
		if n%2 == 0 {
			c.At = now.Add(time.Duration(n) * time.Hour)
		}
		changes = append(changes, c)
	}
	answers := m.admit(now, changes...)
	require.Equal(t, store.Counted, answers[49])
	require.Equal(t, store.Held, answers[50])
}
