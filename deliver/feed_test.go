package deliver

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// A feed takes each position once, after the one before it, and the parts of one
// position all or none, in their order.
func TestAFeedFollowsItsFrames(t *testing.T) {
	f := feed{fed: 10, next: 5}
	whole := func(prev, from, to change.Version) *change.Frame {
		return &change.Frame{Prev: prev, From: from, To: to, Last: true}
	}
	part := func(n int, to change.Version, last bool) *change.Frame {
		return &change.Frame{Prev: 12, From: 12, To: to, Part: n, Last: last}
	}
	require.Equal(t, repeated, f.judge(whole(8, 8, 10)))
	require.Equal(t, gap, f.judge(whole(11, 11, 12)), "what it links to was not handed on")
	require.Equal(t, follows, f.judge(whole(10, 10, 12)))
	require.Equal(t, follows, f.judge(whole(9, 9, 12)), "other borders: it overlaps")
	require.Equal(t, repeated, f.judge(part(1, 13, true)), "its first part was not seen")

	start, fed := f.pass(whole(10, 10, 12), 5)
	require.Equal(t, []any{int64(5), change.Version(10)}, []any{start, fed})
	require.Equal(t, []any{change.Version(12), int64(6)}, []any{f.fed, f.offset()})

	start, fed = f.pass(part(0, 13, false), 6)
	require.Equal(t, []any{int64(6), change.Version(12)}, []any{start, fed})
	require.Equal(t, change.Version(12), f.fed, "the position moves with the last part")
	require.Equal(t, int64(6), f.offset(), "and until then begins again at the first")
	require.Equal(t, repeated, f.judge(part(2, 13, true)), "not in its turn")
	require.Equal(t, repeated, f.judge(part(1, 14, true)), "of another decision")
	require.Equal(t, follows, f.judge(part(1, 13, true)))
	start, _ = f.pass(part(1, 13, true), 7)
	require.Equal(t, int64(6), start)
	require.Equal(t, []any{change.Version(13), int64(8)}, []any{f.fed, f.offset()})
}

// Who asks for a look while one is under way gets the next: the one that is under
// way may have begun before the frame was read.
func TestALookBeginsAfterItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, release := int64(0), make(chan struct{})
		l := looks{sem: make(chan struct{}, 1), read: func(context.Context) (store.HistorySnapshot, error) {
			begun++
			look := store.HistorySnapshot{Active: begun}
			<-release
			return look, nil
		}}
		got := make([]int64, 3)
		var callers sync.WaitGroup
		for i := range got {
			callers.Go(func() {
				look, err := l.look(t.Context())
				if err == nil {
					got[i] = look.Active
				}
			})
			synctest.Wait()
		}
		release <- struct{}{}
		release <- struct{}{}
		callers.Wait()
		require.Equal(t, []int64{1, 2, 2}, got)
	})
}

// A look ends with who asked for it: it is over when Run is.
func TestALookEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		l := looks{sem: make(chan struct{}, 1), read: func(ctx context.Context) (store.HistorySnapshot, error) {
			defer func() { ended = true }()
			<-ctx.Done()
			return store.HistorySnapshot{}, context.Cause(ctx)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := l.look(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.True(t, ended)
	})
}

// The mistake that this catches: what falls behind inside a position whose changes were
// cut into parts begins again at the position itself, which is above where the tail
// was before it. It was taken for one that had caught up, and its part was lost.
func TestWhoIsBehindJoinsBetweenPositions(t *testing.T) {
	tail := &feed{fed: 27, next: 33, part: 2, to: 33, first: 31}
	for _, c := range []struct {
		f       feed
		reaches bool
	}{
		{feed{fed: 27, next: 31}, false},
		{feed{fed: 32, next: 31}, false},
		{feed{fed: 27, next: 33, part: 2, to: 33, first: 31}, false},
		{feed{fed: 33, next: 34}, true},
	} {
		require.Equal(t, c.reaches, c.f.reaches(tail), "%+v", c.f)
	}
	tail = &feed{fed: 27, next: 31}
	require.True(t, (&feed{fed: 27, next: 20}).reaches(tail))
	require.True(t, (&feed{fed: 32, next: 31}).reaches(tail), "nothing is between")
	require.False(t, (&feed{fed: 26, next: 31}).reaches(tail))
	require.False(t, (&feed{fed: 27, next: 31, part: 1, to: 33}).reaches(tail))
}

// Who falls behind is where the tail is, or where it was before, if that is farther:
// then it may have the whole position that the tail is in the middle of.
func TestWhoFallsBehindIsAtItsFarthest(t *testing.T) {
	tail := feed{fed: 27, next: 33, part: 2, to: 33, first: 31}
	for fed, want := range map[change.Version]feed{
		26: tail,
		30: {fed: 30, next: 33, part: 2, to: 33, first: 31},
		33: {fed: 33, next: 33, first: 31},
	} {
		f := tail
		f.reach(fed)
		require.Equal(t, want, f)
		require.Equal(t, fed == 33, f.reaches(&tail), "it waits for no part")
	}
}

// The mistake that this catches: another owner published the same parts again, and the
// position was begun anew with its first. What the first owner had published behind its
// last part was passed over until the other had published all, and stood behind then: a
// log sink never got it.
func TestAPositionIsNotBegunAgainWithTheSameFirstPart(t *testing.T) {
	part := func(n int, cut uint64) *change.Frame {
		return &change.Frame{Prev: 12, From: 12, To: 13, Part: n, Last: n == 2, Cut: cut}
	}
	f := feed{fed: 12, next: 5}
	f.pass(part(0, 1), 5)
	f.pass(part(1, 1), 6)
	require.Equal(t, repeated, f.judge(part(0, 1)))
	require.Equal(t, follows, f.judge(part(2, 1)))
	require.Equal(t, follows, f.judge(part(0, 2)), "decided anew, it may be cut in other places")
	f.pass(part(0, 2), 7)
	require.Equal(t, repeated, f.judge(part(2, 1)))
	require.Equal(t, follows, f.judge(part(1, 2)))
}

// The mistake that this catches: a store that was put back had a frame in its outbox that
// its owner had published long ago, into a log that was made anew since. What lay before
// it was gone, so it never followed, and the partition stood still.
func TestAnOutboxBehindAGap(t *testing.T) {
	const base = change.Version(1) << 48 // an inbox has a generation
	row := func(prev change.Version, part int, last bool) []byte {
		prev += base
		var b change.FrameBuilder
		b.Add(int32(part+1), &change.Change{Entity: "e", Key: "k", Version: prev})
		return b.AppendTo(nil, change.Frame{Prev: prev, From: prev, To: prev + 1, Part: part, Last: last})
	}
	for name, c := range map[string]struct {
		at     feed
		outbox [][]byte
		want   change.Version
	}{
		"nothing":                     {feed{fed: 3}, nil, 0},
		"it has it":                   {feed{fed: 3}, [][]byte{row(2, 0, true)}, 0},
		"it follows":                  {feed{fed: 3}, [][]byte{row(2, 0, true), row(3, 0, true)}, 3},
		"behind a gap":                {feed{fed: 3}, [][]byte{row(5, 0, true), row(6, 0, true)}, 5},
		"in parts":                    {feed{fed: 3}, [][]byte{row(5, 0, false), row(5, 1, true)}, 5},
		"the part that it lacks":      {feed{fed: 5, part: 1, to: 6}, [][]byte{row(5, 1, true)}, 5},
		"without parts that it lacks": {feed{fed: 3}, [][]byte{row(5, 1, true)}, 6},
	} {
		c.at.fed += base
		c.at.to += base
		to, err := c.at.before(c.outbox)
		require.NoError(t, err, name)
		if c.want > 0 {
			c.want += base
		}
		require.Equal(t, c.want, to, name)
	}
}

// emptied is an outbox whose last frame went into the log, which ends at 8 now.
type emptied struct {
	Store
	Log
}

func (emptied) Outbox(context.Context, int32) ([][]byte, error) { return nil, nil }

func (emptied) Offsets(context.Context, int32) (start, end int64, err error) { return 0, 8, nil }

// The log ended at 7 before the outbox was looked at, which is empty: what it held may be
// in the log by now, so nothing is decided again yet.
func TestABridgeAtTheEndLooksWhereThatIs(t *testing.T) {
	s := New(Options{Store: emptied{}, Log: emptied{}, Logger: slog.New(slog.DiscardHandler)})
	p := newPartition(s, &store.Progress{}, store.Token{}, 0)
	require.NoError(t, s.bridgeEnd(t.Context(), follower{s: s, p: p}, p.feed, 9, 7))
}
