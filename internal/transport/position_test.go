package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The commit is behind the last acknowledgement; records handed out and not
// acknowledged comes first again, and says that it may be a repetition.
func TestPositionsFollowAcknowledgements(t *testing.T) {
	g := &Group{gc: GroupConfig{FrameRecords: 2, FrameBytes: 1 << 20, BufferBytes: 1 << 20}, budget: NewBudget(1 << 20)}
	a := newAssignment(g, 0, "id", 5, 5)
	defer a.cancel()
	offsets := func(b batch) (all []int64) {
		for _, r := range b.fetched {
			all = append(all, r.Offset)
		}
		return all
	}
	push := func(all ...int64) {
		records := make([]*kgo.Record, len(all))
		for i, offset := range all {
			records[i] = &kgo.Record{Offset: offset}
		}
		a.push(records)
	}
	_, moved := a.toCommit()
	require.False(t, moved)
	push(5, 6, 7, 8)
	b, waiting := a.take(0)
	require.True(t, waiting)
	require.Equal(t, []int64{5, 6}, offsets(b))
	require.EqualValues(t, 5, a.knownTo())
	a.acknowledged(b)
	at, moved := a.toCommit()
	require.True(t, moved)
	require.EqualValues(t, 7, at.Offset)

	b, _ = a.take(0)
	require.Equal(t, []int64{7, 8}, offsets(b))
	a.handedOut(b)
	require.EqualValues(t, 9, a.knownTo())
	push(9)
	a.requeue(b)
	at, _ = a.toCommit()
	require.EqualValues(t, 7, at.Offset, "nothing was acknowledged")
	b, _ = a.take(0)
	require.Equal(t, []int64{7, 8}, offsets(b))
	a.acknowledged(b)
	for offset := int64(9); offset < 11; offset++ {
		b, _ = a.take(0)
		a.acknowledged(b)
		at, _ = a.toCommit()
		require.Equal(t, offset+1, at.Offset, "the next record, which did not come yet")
		push(offset + 1)
	}
}
