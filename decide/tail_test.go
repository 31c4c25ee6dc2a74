package decide

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// A tail has what was decided since somebody looks, the latest first, with what it
// came to for whom, and no more than the last ones.
func TestTheTailFollowsWhileSomebodyLooks(t *testing.T) {
	w := newFlow(t)
	w.tail = &Tail{}
	d, _ := w.owner(t, nil, true)
	all := func(*Decided) bool { return true }
	hand(t, d, 0, event(t, "B-1", 0, `{"id":"B-1","ripeness_level":1}`))
	require.Empty(t, w.tail.Last(10, all), "nobody looked before")

	hand(t, d, 0, event(t, "B-1", 1, `{"id":"B-1","ripeness_level":2}`))
	hand(t, d, 0, event(t, "B-1", 2, `{"id":"B-1","ripeness_level":2}`))
	hand(t, d, 0, event(t, "B-2", 3, `{"id":"B-2","ripeness_level":2}`))
	last := w.tail.Last(10, all)
	require.Len(t, last, 3)
	require.Equal(t, []string{"B-2", "B-1", "B-1"}, []string{last[0].Entity, last[1].Entity, last[2].Entity})
	require.Equal(t, []string{"merged", "noise", "merged"}, []string{last[0].Outcome, last[1].Outcome, last[2].Outcome})
	require.NotEmpty(t, last[0].Sent)
	require.Empty(t, last[1].Sent)
	require.Less(t, len(last[2].Sent), len(last[0].Sent), "not every service reads the ripeness")
	require.Equal(t, "registry", last[0].Source)
	require.Len(t, w.tail.Last(1, all), 1)
	require.Len(t, w.tail.Last(10, func(d *Decided) bool { return d.Entity == "B-1" }), 2)

	var records []transport.Received
	for i := range 2*tailLength + 7 {
		records = append(records, event(t, fmt.Sprint("C-", i), int64(4+i), `{"id":"C"}`))
	}
	hand(t, d, 0, records...)
	last = w.tail.Last(2*tailLength, all)
	require.Len(t, last, tailLength)
	require.Equal(t, fmt.Sprint("C-", 2*tailLength+6), last[0].Entity)
	require.Equal(t, fmt.Sprint("C-", tailLength+7), last[tailLength-1].Entity)
}
