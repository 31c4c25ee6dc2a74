package deliver

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Whatever is added and taken: a ring returns the newest that it has room for, in their
// order, each once, and counts all others as lost.
func TestRingKeepsTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lost := 0
		r := &ring{
			h: &recorder{grown: make(chan struct{}, 1), hurried: make(chan struct{}, 1)}, room: rapid.IntRange(1, 5).Draw(t, "room"),
			drop: func() { lost++ },
		}
		next, want := change.Version(0), []change.Version{}
		dropped := 0
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "take") == 0 {
				got := []change.Version{}
				for _, a := range r.takeAll(nil) {
					got = append(got, a.Version)
				}
				require.Equal(t, want, got)
				want = want[:0]
				continue
			}
			r.add(store.Attempt{Version: next})
			if want = append(want, next); len(want) > r.room {
				want = want[1:]
				dropped++
			}
			next++
		}
		require.Equal(t, dropped, lost)
	})
}
