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
func flowOf(at ...store.Position) (f *Flow, p *Partition, queues []*Queue) {
	f = NewFlow(1 << 20)
	row := store.Progress{Token: store.Token{1}}
	for i := range at {
		q := &Queue{Number: int32(i)}
		f.Add(q)
		queues = append(queues, q)
		row.Positions = append(row.Positions, store.ServicePosition{Service: q.Number, Position: at[i]})
	}
	return f, f.Assign(&row), queues
}

func v(offset int64) change.Version { return change.NewVersion(1, offset) }

func place(version, offset int64) store.Position {
	return store.Position{Version: v(version), LogOffset: offset}
}

// frame is an open frame for services.
func frame(offset, prev, to int64, services ...int32) *Frame {
	return partOf(offset, &change.Frame{Prev: v(prev), From: v(prev), To: v(to), Last: true}, services...)
}

func partOf(offset int64, f *change.Frame, services ...int32) *Frame {
	var b change.FrameBuilder
	for _, s := range services {
		b.Add(s, &change.Change{Op: change.Upsert, Service: "s", Entity: "e", Version: f.From, Key: "k", Content: change.Content("c"), Doc: []byte(`1`)})
	}
	open, err := change.ParseFrame(b.AppendTo(nil, *f))
	if err != nil {
		panic(err)
	}
	return &Frame{Frame: open, Offset: offset, Counts: true}
}

// A frame is a repetition only if it is one for every live service: the tail begins at the
// lowest of their positions.
func TestTheTailBeginsAtTheLowestLivePosition(t *testing.T) {
	_, p, _ := flowOf(place(7, 1000), place(5, 1001), place(1, 1))
	require.Equal(t, []bool{true, true, false}, []bool{p.lanes[0].live, p.lanes[1].live, p.lanes[2].live})
	require.Equal(t, LogCursor{UpTo: v(5), Next: 1000}, p.tail)
}

// The catch-up reader serves the lowest service of those that can take changes.
func TestCatchUpServesTheLowestFirst(t *testing.T) {
	_, p, queues := flowOf(place(900, 9000), place(30, 30),
		place(10, 10), place(20, 20))
	at, found := p.Behind(now)
	require.True(t, found)
	require.EqualValues(t, 10, at.Next)
	queues[2].Removed = true
	at, _ = p.Behind(now)
	require.EqualValues(t, 20, at.Next)
}

// Of a position whose changes were cut into parts all are done together: until the part in
// hand is done, the position stays where the frame begins.
func TestThePositionOfAHalfDonePart(t *testing.T) {
	for partial, want := range map[bool]change.Version{true: v(5), false: v(6)} {
		f, p, queues := flowOf(place(5, 0))
		require.Equal(t, Done, p.Tail(partOf(0, &change.Frame{Prev: v(5), From: v(5), To: v(9), Last: !partial}, 0), now))
		for _, s := range queues[0].Take(10, now) {
			f.Advance(s, v(6))
		}
		require.Equal(t, want, p.lanes[0].Position().Version)
	}
}

// A lane without budget for a frame gets no later copy of it: the changes behind its first copy
// would seem missing.
func TestALaneSkipsNothingToALaterCopy(t *testing.T) {
	f, p, queues := flowOf(place(100, 1000), place(0, 0), place(0, 0))
	reads, rests := p.lanes[1], p.lanes[2]
	offer := func(offset, prev, to int64) {
		reply, _ := p.CatchUp(offset, frame(offset, prev, to, 0))
		require.Equal(t, Done, reply)
	}
	offer(0, 0, 1)
	require.Equal(t, reads.cursor, rests.cursor, "they go together")
	queues[2].held = f.Share()
	offer(1, 1, 2)
	offer(2, 2, 3)
	queues[2].held = 0
	offer(3, 1, 2)
	offer(4, 2, 3)
	require.Equal(t, []any{v(3), int64(5)}, []any{reads.cursor.UpTo, reads.cursor.Next})
	require.Equal(t, []any{v(1), int64(1)}, []any{rests.cursor.UpTo, rests.cursor.Next}, "all that it lacks is left to read")
}

// At a gap the tail waits for no search: the live services that lack the changes become
// lagging, one that has them gets the frame at once, and after the search all are live.
func TestAGapHoldsUpNoServiceThatHasTheChanges(t *testing.T) {
	f, p, queues := flowOf(place(5, 3), place(5, 3))
	p.lanes[1].cursor.UpTo = v(9) // it joined beyond the tail
	after := frame(4, 9, 12, 0, 1)
	require.Equal(t, Done, p.Tail(after, now))
	require.Empty(t, queues[0].waiting)
	require.Len(t, queues[1].waiting, 1)

	at, found := p.Behind(now)
	require.True(t, found)
	reply, missing := p.CatchUp(at.Next, after)
	require.Equal(t, []any{Absent, at}, []any{reply, missing})
	p.Searched(missing, after, Found{End: 5, LastTo: v(12)})
	require.True(t, p.lanes[0].repair.Has(v(5)) && !p.lanes[0].repair.Has(v(9)))
	require.False(t, p.lanes[1].repair.Needed())
	reply, _ = p.CatchUp(4, after)
	require.Equal(t, Done, reply)
	require.Len(t, queues[0].waiting, 1)
	_, found = p.Behind(now)
	require.False(t, found)
	require.Empty(t, f.Lags())
}

// All services lag while the tail is inside a position that was cut, and the log no longer has what
// they lack: they follow to the end of that position, where they join. Short of it they would
// search again without end.
func TestLostChangesBelowATailInsideAPosition(t *testing.T) {
	_, p, queues := flowOf(place(5, 0), place(7, 2))
	p.tail = LogCursor{UpTo: v(27), Next: 33, part: 2, to: v(33), first: 31}
	for _, l := range p.lanes {
		l.live = false
	}
	for n := 0; ; n++ {
		at, found := p.Behind(now)
		if !found {
			break
		}
		require.Less(t, n, len(queues), "once for each")
		p.Searched(at, nil, Found{Start: 33, End: 33, LastTo: v(33)})
	}
	for i, l := range p.lanes {
		require.Equal(t, v(33), l.cursor.UpTo)
		require.True(t, l.repair.Has(v([]int64{5, 7}[i])) && l.repair.Has(v(32)) && !l.repair.Has(v(33)))
	}
}

// A frame of the outbox is not in the log yet: while its changes are pending, the next owner begins at a
// record that the log has, before the place where the frame will be.
func TestThePlaceOfAFrameOfTheOutbox(t *testing.T) {
	for name, after := range map[string]*Frame{"at the log's end": nil, "before a frame": frame(3, 9, 12, 0)} {
		_, p, queues := flowOf(place(5, 2))
		l := p.lanes[0]
		l.live, p.tail = false, LogCursor{UpTo: v(12), Next: 5}
		at, found := p.Behind(now)
		require.True(t, found)
		p.Searched(at, after, Found{Start: 0, End: 5, LastTo: v(9), Outbox: []*change.Frame{frame(0, 5, 9, 0).Frame}})
		require.True(t, queues[0].CanTake(1), name)
		require.Equal(t, place(5, map[bool]int64{true: 4, false: 3}[after == nil]), l.Position(), name)
	}
}

// The log ends below the decided changes while the outbox owes frames: their owner may be about
// to publish them, so the tail waits for one more call.
func TestALogThatEndsBelowTheDecisions(t *testing.T) {
	_, p, _ := flowOf(place(5, 3))
	p.LogEnded(v(9), 0, 4, false)
	require.True(t, p.Lacks(v(9)), "a record is left to read")
	p.LogEnded(v(9), 0, 3, true)
	require.True(t, p.Lacks(v(9)), "it may be published")
	p.LogEnded(v(9), 0, 3, true)
	require.False(t, p.Lacks(v(9)))
	at, found := p.Behind(now)
	require.True(t, found)
	require.Equal(t, LogCursor{UpTo: v(5), Next: 3}, at)

	_, p, _ = flowOf(place(5, 3))
	p.LogEnded(v(9), 0, 1, false)
	require.True(t, p.Lacks(v(9)), "another log of the same name is read from its start")
	p.LogEnded(v(9), 0, 0, false)
	require.False(t, p.Lacks(v(9)))
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

// The budget is used up: bytes in hand at a failing sink do not count, since they wait for its
// recovery; a slow service that holds most of it becomes lagging once another is idle.
func TestTheBudgetIsFreed(t *testing.T) {
	at := place(0, 0)
	for failing, waits := range map[bool][]Reply{true: {Done}, false: {Full, Done}} {
		f, p, queues := flowOf(at, at)
		f.Memory = costOf(frame(0, 0, 1, 0).Frame, &frame(0, 0, 1, 0).Slices[0]) + 1
		require.Equal(t, Done, p.Tail(frame(0, 0, 1, 0), now))
		queues[0].Take(10, now)
		f.SetFailing(queues[0], failing)
		if !failing { // it is slow, and its next change waits
			f.Memory *= 2
			require.Equal(t, Done, p.Tail(frame(1, 1, 2, 0), now))
		}
		offset := p.tail.Next
		for n, reply := range waits {
			require.Equal(t, reply, p.Tail(frame(offset, offset, offset+1, 1), now.Add(time.Duration(n)*time.Second)), "slow: %v", !failing)
		}
		lags := map[*Queue]int{}
		if !failing {
			lags[queues[0]] = 1
		}
		require.Equal(t, lags, f.Lags())
	}
}

func TestJoinedSlicesKeepTheirEntities(t *testing.T) {
	t.Parallel()
	f, p, queues := flowOf(place(0, 0))
	q := queues[0]
	for n := range int64(4) {
		require.Equal(t, Done, p.Tail(frame(n, n, n+1, 0), now))
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
	require.Equal(t, v(4), q.lanes[0].Position().Version)
}
