package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

var now = time.Unix(1_800_000_000, 0)

// flowOf has services and one partition, whose services are at positions.
func flowOf(at ...int64) (f *Flow, p *Partition, queues []*Queue) {
	f = NewFlow(1 << 20)
	row := store.Progress{Token: store.Token{1}}
	for i := range at {
		q := &Queue{Number: int32(i)}
		f.Add(q)
		queues = append(queues, q)
		row.Positions = append(row.Positions, store.ServicePosition{Service: q.Number, Version: v(at[i])})
	}
	return f, f.Assign(&row), queues
}

func v(offset int64) change.Version { return change.NewVersion(1, offset) }

// frame is an open frame for services.
func frame(prev, to int64, services ...int32) *Frame {
	var b change.FrameBuilder
	for _, s := range services {
		b.Add(s, &change.Change{Op: change.Upsert, Service: "s", Entity: "e", Version: v(prev), Key: "k", Content: change.Content("c"), Doc: []byte(`1`)})
	}
	open, err := change.ParseFrame(b.AppendTo(nil, change.Frame{Prev: v(prev), From: v(prev), To: v(to)}))
	if err != nil {
		panic(err)
	}
	return &Frame{Frame: open}
}

// The log is read in turns for the highest lane, whose frames memory has, and for the lowest; not for one
// that cannot take changes, nor behind the end.
func TestTheLogIsReadForTheHighestAndTheLowest(t *testing.T) {
	_, p, queues := flowOf(900, 30, 10, 20)
	p.Next()
	p.Look(v(900), v(900), v(950))
	next := func() (got []int64) {
		for range 2 {
			after, found := p.Next()
			require.True(t, found)
			got = append(got, after.Offset())
		}
		return got
	}
	require.ElementsMatch(t, []int64{900, 10}, next())
	queues[2].Removed = true
	require.ElementsMatch(t, []int64{900, 20}, next())
	p.HandOut(frame(900, 950))
	require.ElementsMatch(t, []int64{30, 20}, next())
}

// A lane without budget for a frame stays before it, and the others go on.
func TestALaneThatCannotTakeAFrameStays(t *testing.T) {
	f, p, queues := flowOf(0, 0)
	p.Next()
	p.Look(0, 0, v(2))
	queues[1].held, f.held = f.Share(), f.Memory
	p.HandOut(frame(0, 1, 0, 1))
	p.HandOut(frame(1, 2, 0, 1))
	require.Equal(t, []change.Version{v(2), v(0)}, []change.Version{p.lanes[0].upTo, p.lanes[1].upTo})
	require.Equal(t, map[*Queue]int{queues[1]: 1}, f.Lags())
	_, found := p.Next()
	require.False(t, found)
	require.True(t, p.Starved())
	queues[1].held, f.held = 0, 0
	after, found := p.Next()
	require.Equal(t, []any{v(0), true}, []any{after, found})
	p.HandOut(frame(1, 2, 0, 1))
	require.Empty(t, queues[1].waiting, "the frame before it is missing")
	p.HandOut(frame(0, 1, 0, 1))
	p.HandOut(frame(1, 2, 0, 1))
	require.Len(t, queues[1].waiting, 2)
	require.Empty(t, f.Lags())
}

// A lane passes changes that the log has lost with a repair, and another that has them does not.
func TestWhatTheLogHasNotIsLost(t *testing.T) {
	_, p, queues := flowOf(5, 9)
	p.Next()
	p.Look(v(5), v(9), v(12))
	require.True(t, p.lanes[0].repair.Has(v(5)) && !p.lanes[0].repair.Has(v(9)))
	require.False(t, p.lanes[1].repair.Needed())
	p.HandOut(frame(9, 12, 0, 1))
	require.Len(t, queues[0].waiting, 1)
	require.Len(t, queues[1].waiting, 1)
	_, found := p.Next()
	require.False(t, found)
}

// A new service begins at the highest position: its decisions come in frames above.
func TestANewServiceBeginsAtTheHighestPosition(t *testing.T) {
	f, p, _ := flowOf(5, 9)
	p.HandOut(frame(9, 12, 0, 1))
	q := &Queue{Number: 7}
	f.Add(q)
	require.Equal(t, v(12), q.lanes[0].Position())
	require.Equal(t, v(5), p.lanes[0].Position())
}

// An older change of an entity from another partition, of an inbox with other numbers, is owed to
// a log sink. The same version twice is a repetition.
func TestALogSinkGetsAnOlderChangeOfAnotherPartition(t *testing.T) {
	newer, older := change.NewVersion(2, 0), change.NewVersion(1, 100)
	for log, want := range map[bool][]change.Version{true: {newer, older}, false: {newer}} {
		s := New(Config{Log: log})
		for _, v := range []change.Version{newer, older, newer} {
			s.Add(&Item{Entity: "e", Version: v, Position: v})
		}
		var got []change.Version
		for step := s.Next(time.Time{}); step.Kind == Write; step = s.Next(time.Time{}) {
			got = append(got, step.Items[0].Version)
			s.Done(time.Time{}, step, 0, make([]*sinks.Error, len(step.Items)), nil, false)
		}
		require.Equal(t, want, got)
	}
}

func TestJoinedSlicesKeepTheirEntities(t *testing.T) {
	t.Parallel()
	f, p, queues := flowOf(0)
	q := queues[0]
	for n := range int64(4) {
		p.HandOut(frame(n, n+1, 0))
	}
	hand := q.Take(4, now)
	require.Len(t, hand, 4)
	for _, n := range []int{2, 1, 3} {
		hand[n].Entities = int64(1 + n)
		f.Finish(hand[n])
		require.Equal(t, map[int32]int64{0: 0}, q.Entities())
	}
	require.Len(t, q.lanes[0].pending, 2)
	hand[0].Entities = 1
	f.Finish(hand[0])
	require.Equal(t, map[int32]int64{0: 10}, q.Entities())
	require.Equal(t, v(4), q.lanes[0].Position())
}
