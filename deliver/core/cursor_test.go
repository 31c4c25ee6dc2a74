package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
)

// A cursor passes each position once, after its predecessor, and the parts of one position
// all or none, in their order.
func TestACursorFollowsItsFrames(t *testing.T) {
	f := LogCursor{UpTo: 10, Next: 5}
	whole := func(prev, from, to change.Version) *change.Frame {
		return &change.Frame{Prev: prev, From: from, To: to, Last: true}
	}
	part := func(n int, to change.Version, last bool) *change.Frame {
		return &change.Frame{Prev: 12, From: 12, To: to, Part: n, Last: last}
	}
	require.Equal(t, Repeated, f.Judge(whole(8, 8, 10)))
	require.Equal(t, Gap, f.Judge(whole(11, 11, 12)), "its predecessor was not handed out")
	require.Equal(t, Follows, f.Judge(whole(10, 10, 12)))
	require.Equal(t, Follows, f.Judge(whole(9, 9, 12)), "other borders: it overlaps")
	require.Equal(t, Repeated, f.Judge(part(1, 13, true)), "its first part was not seen")

	start, upTo := f.Pass(whole(10, 10, 12), 5)
	require.Equal(t, []any{int64(5), change.Version(10)}, []any{start, upTo})
	require.Equal(t, []any{change.Version(12), int64(6)}, []any{f.UpTo, f.restart()})

	start, upTo = f.Pass(part(0, 13, false), 6)
	require.Equal(t, []any{int64(6), change.Version(12)}, []any{start, upTo})
	require.Equal(t, change.Version(12), f.UpTo, "the position moves with the last part")
	require.Equal(t, int64(6), f.restart(), "and until then restarts at the first")
	require.Equal(t, Repeated, f.Judge(part(2, 13, true)), "not in its turn")
	require.Equal(t, Repeated, f.Judge(part(1, 14, true)), "of another decision")
	require.Equal(t, Follows, f.Judge(part(1, 13, true)))
	start, _ = f.Pass(part(1, 13, true), 7)
	require.Equal(t, int64(6), start)
	require.Equal(t, []any{change.Version(13), int64(8)}, []any{f.UpTo, f.restart()})
}

// A service that became lagging inside a position that was cut restarts at that position, above
// the tail's place before it. Taken for caught up, it would lose its part.
func TestALaneJoinsBetweenPositions(t *testing.T) {
	tail := &LogCursor{UpTo: 27, Next: 33, part: 2, to: 33, first: 31}
	for _, c := range []struct {
		at      LogCursor
		reaches bool
	}{
		{LogCursor{UpTo: 27, Next: 31}, false},
		{LogCursor{UpTo: 32, Next: 31}, false},
		{LogCursor{UpTo: 27, Next: 33, part: 2, to: 33, first: 31}, false},
		{LogCursor{UpTo: 33, Next: 34}, true},
	} {
		require.Equal(t, c.reaches, c.at.reaches(tail), "%+v", c.at)
	}
	tail = &LogCursor{UpTo: 27, Next: 31}
	require.True(t, (&LogCursor{UpTo: 27, Next: 20}).reaches(tail))
	require.True(t, (&LogCursor{UpTo: 32, Next: 31}).reaches(tail), "nothing is between")
	require.False(t, (&LogCursor{UpTo: 26, Next: 31}).reaches(tail))
	require.False(t, (&LogCursor{UpTo: 27, Next: 31, part: 1, to: 33}).reaches(tail))
}

// A live lane that becomes lagging is at the tail, or at its own earlier place if that is farther:
// then it may have the whole position that the tail is in.
func TestALaneLagsFromItsFarthest(t *testing.T) {
	tail := LogCursor{UpTo: 27, Next: 33, part: 2, to: 33, first: 31}
	for upTo, want := range map[change.Version]LogCursor{
		26: tail,
		30: {UpTo: 30, Next: 33, part: 2, to: 33, first: 31},
		33: {UpTo: 33, Next: 33, first: 31},
	} {
		l := &Lane{Partition: &Partition{tail: tail}, live: true, cursor: LogCursor{UpTo: upTo}}
		at := l.end()
		require.Equal(t, want, at)
		require.Equal(t, upTo == 33, at.reaches(&tail), "it waits for no part")
	}
}

// Another owner may publish the same parts again: the position does not begin again, or a frame
// that the first owner published behind its last part would be skipped.
func TestAPositionDoesNotBeginAgainWithTheSameFirstPart(t *testing.T) {
	part := func(n int, cut uint64) *change.Frame {
		return &change.Frame{Prev: 12, From: 12, To: 13, Part: n, Last: n == 2, Cut: cut}
	}
	f := LogCursor{UpTo: 12, Next: 5}
	f.Pass(part(0, 1), 5)
	f.Pass(part(1, 1), 6)
	require.Equal(t, Repeated, f.Judge(part(0, 1)))
	require.Equal(t, Follows, f.Judge(part(2, 1)))
	require.Equal(t, Follows, f.Judge(part(0, 2)), "decided again, it may be cut elsewhere")
	f.Pass(part(0, 2), 7)
	require.Equal(t, Repeated, f.Judge(part(1, 1)), "of the other cut")
	require.Equal(t, Repeated, f.Judge(part(2, 1)))
	require.Equal(t, Follows, f.Judge(part(1, 2)))
}

// A restored outbox may hold a frame that was published long ago, into a log that was re-created
// since. Its predecessors are gone: without the position to reach first, it never follows.
func TestAnOutboxBehindAGap(t *testing.T) {
	row := func(prev change.Version, part int, last bool) *change.Frame {
		return &change.Frame{Prev: prev, From: prev, To: prev + 1, Part: part, Last: last}
	}
	for name, c := range map[string]struct {
		at      LogCursor
		outbox  []*change.Frame
		follow  int
		missing change.Version
	}{
		"nothing":                     {at: LogCursor{UpTo: 3}},
		"it has it":                   {at: LogCursor{UpTo: 3}, outbox: []*change.Frame{row(2, 0, true)}},
		"it follows":                  {at: LogCursor{UpTo: 3}, outbox: []*change.Frame{row(2, 0, true), row(3, 0, true), row(4, 0, true)}, follow: 1},
		"parts follow":                {at: LogCursor{UpTo: 3}, outbox: []*change.Frame{row(3, 0, false), row(3, 1, true)}, follow: 2},
		"behind a gap":                {at: LogCursor{UpTo: 3}, outbox: []*change.Frame{row(5, 0, true), row(6, 0, true)}, missing: 5},
		"in parts":                    {at: LogCursor{UpTo: 3}, outbox: []*change.Frame{row(5, 0, false), row(5, 1, true)}, missing: 5},
		"the part that it lacks":      {at: LogCursor{UpTo: 5, part: 1, to: 6}, outbox: []*change.Frame{row(5, 1, true)}, follow: 1},
		"without parts that it lacks": {at: LogCursor{UpTo: 3}, outbox: []*change.Frame{row(5, 1, true)}, missing: 6},
	} {
		follow, missing := c.at.Continue(c.outbox)
		require.Len(t, follow, c.follow, name)
		require.Equal(t, c.missing, missing, name)
	}
}
