package operate_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

type progress struct {
	marks map[int32]store.Mark
	rows  []store.Progress
	err   error
}

func (p progress) Marks(context.Context) (map[int32]store.Mark, error) { return p.marks, p.err }
func (p progress) Inboxes(context.Context) ([]store.Inbox, error) {
	return []store.Inbox{{Generation: 1, Partitions: 2}, {Generation: 2, Partitions: 4}}, nil
}
func (p progress) AllProgress(context.Context) ([]store.Progress, error) { return p.rows, nil }

// Queued changes are counted from positions, of all partitions and generations.
func TestWhatWaitsFollowsFromPositions(t *testing.T) {
	v := change.NewVersion
	position := func(service int32, at change.Version) store.ServicePosition {
		return store.ServicePosition{Service: service, Version: at}
	}
	r, err := operate.ReadProgress(t.Context(), progress{
		marks: map[int32]store.Mark{
			0: {Watermark: v(2, 100), LastTo: v(2, 90)}, // without changes since 90
			1: {Watermark: v(2, 7), LastTo: v(1, 50)},
			2: {Watermark: v(2, 9), LastTo: v(2, 9)}, // nobody has it yet
			3: {Watermark: v(2, 9)},                  // nothing was ever sent
		},
		rows: []store.Progress{
			{Partition: 0, Positions: []store.ServicePosition{position(1, v(2, 90)), position(3, v(2, 60)), position(4, v(1, 95))}},
			{Partition: 1, Positions: []store.ServicePosition{position(1, v(1, 50)), position(3, v(1, 48)), position(4, v(2, 1))}},
			{Partition: 3},
		},
	})
	require.NoError(t, err)
	require.EqualValues(t, 0+0+9, r.Pending(1))
	require.EqualValues(t, 30+2+9, r.Pending(3))
	require.EqualValues(t, 90+0+9, r.Pending(4), "of two generations the newer one is counted")
	require.EqualValues(t, 9, r.Pending(2), "nothing of a new service stands before what the others reached")
	require.Equal(t, v(2, 90), r.Position(0, 2))
	require.Equal(t, v(2, 60), r.Position(0, 3))
	require.Zero(t, r.Position(2, 1))
	require.EqualValues(t, 30, r.Waiting(0, 3))
	require.Zero(t, r.Waiting(3, 3))
	for _, entity := range []string{"a", "b", "c", "d"} { // each was decided in a partition of its generation's
		require.Equal(t, transport.PartitionOf([]byte(entity), 2), r.Partition(entity, v(1, 9)))
		require.Equal(t, transport.PartitionOf([]byte(entity), 4), r.Partition(entity, v(2, 9)))
		require.Equal(t, r.Partition(entity, v(2, 9)), r.Partition(entity, v(7, 9)), "of the newest, if it is not known")
	}

	var lost core.Repair
	lost.Lose(v(2, 20), v(2, 30))
	repaired := position(1, v(2, 90))
	repaired.Repair = lost.Encode()
	r, err = operate.ReadProgress(t.Context(), progress{
		marks: map[int32]store.Mark{0: {Watermark: v(2, 100), LastTo: v(2, 90)}},
		rows:  []store.Progress{{Positions: []store.ServicePosition{repaired}}},
	})
	require.NoError(t, err)
	require.Equal(t, v(2, 20), r.Position(0, 1), "lost changes are not delivered while they are repaired")
	require.EqualValues(t, 70, r.Pending(1))
	repairs := r.Repairs(map[int32]string{1: "c/p@a", 2: "c/p@b"})
	require.Len(t, repairs, 1)
	require.Equal(t, "lost changes of c/p@a", repairs[0].What)
	require.Equal(t, operate.LevelDegraded, repairs[0].Level)
	require.Equal(t, v(2, 90), r.Position(0, 2), "a new service has nothing to repair")

	inTwo := "" // an entity that was in partition 0 of the first inbox and is in another of the second
	for n := 0; inTwo == "" || transport.PartitionOf([]byte(inTwo), 2) != 0 || transport.PartitionOf([]byte(inTwo), 4) != 2; n++ {
		inTwo = strconv.Itoa(n)
	}
	rows := []store.Progress{
		{Partition: 0, Positions: []store.ServicePosition{position(1, v(1, 40)), position(2, v(1, 50)), position(3, v(2, 1))}},
		{Partition: 2, Positions: []store.ServicePosition{position(1, v(2, 8)), position(2, v(2, 8)), position(3, v(2, 8))}},
	}
	r, err = operate.ReadProgress(t.Context(), progress{rows: rows, marks: map[int32]store.Mark{
		0: {Watermark: v(2, 9), LastTo: v(1, 50)}, 2: {Watermark: v(2, 9), LastTo: v(2, 9)},
	}})
	require.NoError(t, err)
	require.Zero(t, r.Received(inTwo, v(2, 7), 1), "changes of the first inbox wait in another partition")
	require.Equal(t, v(2, 8), r.Received(inTwo, v(2, 7), 2))
	require.Equal(t, v(2, 8), r.Received(inTwo, v(2, 7), 3))
	require.Equal(t, v(1, 40), r.Received(inTwo, v(1, 7), 1))
	require.Equal(t, v(2, 0), r.Received(inTwo, v(1, 7), 3))

	away := errors.New("away")
	_, err = operate.ReadProgress(t.Context(), progress{err: away})
	require.ErrorIs(t, err, away)
}
