package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/stretchr/testify/require"
)

// I5: an entity remembers the last eight event ids of each source, not seven and not nine:
// a producer that repeats its last sends is stale for all of them, with any events between
// from another source, and an id with other content is another event.
func TestI5TheLastEightEventIDsAreRemembered(t *testing.T) {
	content := canonicaltree.Digest{1}
	f := fence{}
	eventOf := func(source string, n int, content canonicaltree.Digest) *change.Event {
		e := &change.Event{Origin: change.Origin{Source: source}, EventID: fmt.Sprint("event-", n)}
		e.SetMark(content)
		return e
	}
	see := func(source string, n int) staleReason {
		e := eventOf(source, n, content)
		if reason := f.check(e); reason != fresh {
			return reason
		}
		f.note(e, change.NewVersion(1, int64(n)), time.UnixMilli(int64(n)))
		return fresh
	}
	for n := range 9 {
		require.Equal(t, fresh, see("lab", n))
		require.Equal(t, fresh, see("registry", 100+n), "each source has its own")
	}
	for n := 1; n < 9; n++ {
		require.Equal(t, staleEventID, see("lab", n), "event %d is among the last eight", n)
	}
	require.Equal(t, fresh, f.check(eventOf("lab", 8, canonicaltree.Digest{2})), "the id again for other content")
	require.Equal(t, fresh, see("lab", 0), "the ninth from the end")
	require.Equal(t, fresh, see("lab", 1), "which the one before has displaced")
	require.Equal(t, staleEventID, see("lab", 3))
	require.Equal(t, staleEventID, see("registry", 101), "the other source displaced none")
	require.Len(t, f["lab"].Events, 8)
}
