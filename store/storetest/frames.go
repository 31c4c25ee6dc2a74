package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// written decides partition 0 up to an offset, a frame per offset.
func (f *fixture) written(revision int64, token store.Token, from, to int64) {
	f.Helper()
	var out store.Outcome
	for next := from + 1; next <= to; next++ {
		out.Frames = append(out.Frames, frame(p0, next, "0123456789"))
	}
	require.NoError(f, f.a.Decide(f.ctx(), store.Decision{Revision: revision, Moves: step(p0, from, to, token)}, writes(out)))
}

var frameTests = []test{
	{"marks are those of the newest generations", func(t *testing.T, f *fixture) {
		marks := func(s store.Store) map[int32]store.Mark {
			all, err := s.Marks(t.Context())
			require.NoError(t, err)
			return all
		}
		assert.Equal(t, map[int32]store.Mark{}, marks(f.a))
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: step(p0, 0, 9, token)}, writes(store.Outcome{Frames: []store.Frame{frame(p0, 7, "x")}}))
		require.NoError(t, err)
		assert.Equal(t, map[int32]store.Mark{0: {Watermark: version(9), LastTo: version(7), Begins: version(7)}, 1: {Watermark: version(0)}}, marks(f.b))
		f.own(f.a, 'b', store.Partition{Generation: 4, Number: 0}, store.Partition{Generation: 4, Number: 2})
		assert.Equal(t, map[int32]store.Mark{0: {Watermark: change.NewVersion(4, 0), LastTo: version(7), Begins: version(7)}, 1: {Watermark: version(0)}, 2: {Watermark: change.NewVersion(4, 0)}}, marks(f.b))
	}},
	{"I1 those above a position, of one partition, the oldest first", func(t *testing.T, f *fixture) {
		assert.Equal(t, store.Tail{}, f.tail(f.a, 0, 0), "there is no partition")
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: append(step(p0, 0, 9, token), step(p1, 0, 9, token)...)},
			writes(store.Outcome{Frames: []store.Frame{frame(p1, 2, "b"), frame(p0, 3, "c"), frame(p0, 5, ""), frame(p0, 8, "h"), frame(p1, 4, "d")}}))
		require.NoError(t, err)
		all := []store.Frame{{To: version(3), Body: []byte("c")}, {To: version(5), Body: []byte{}}, {To: version(8), Body: []byte("h")}}
		for after, want := range map[change.Version][]store.Frame{0: all, version(2): all, version(3): all[1:], version(4): all[1:], version(7): all[2:], version(8): nil, version(9): nil} {
			assert.Equal(t, store.Tail{Frames: want, LastTo: version(8)}, f.tail(f.b, 0, after), after)
		}
		assert.Equal(t, store.Tail{Frames: []store.Frame{{To: version(2), Body: []byte("b")}, {To: version(4), Body: []byte("d")}}, LastTo: version(4)}, f.tail(f.b, 1, 0))
	}},
	{"I7 a page has one, and more up to so many bytes", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		f.written(revision, token, 0, 5)
		for bytes, want := range map[int]int{0: 1, 1: 1, 19: 1, 20: 2, 49: 4, 50: 5, 1 << 40: 5} {
			tail, err := f.b.Frames(t.Context(), 0, 0, bytes)
			require.NoError(t, err)
			assert.Len(t, tail.Frames, want, bytes)
			assert.Equal(t, version(1), tail.Frames[0].To)
			assert.Equal(t, version(5), tail.LastTo, "also when the page ends before")
		}
	}},
	{"I5 with the token of the row of progress", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		f.written(revision, token, 0, 2)
		assert.Zero(t, f.tail(f.b, 0, 0).Owner, "nobody's")
		_, token = f.take(f.a, 'p', 0, 1)
		for _, after := range []change.Version{0, version(2)} {
			assert.Equal(t, token, f.tail(f.b, 0, after).Owner)
		}
		assert.Equal(t, store.Tail{Owner: token}, f.tail(f.b, 1, 0), "without a watermark")
		require.True(t, f.swap(f.a, revision, to(0, token, store.Token{'q'})))
		assert.Equal(t, store.Token{'q'}, f.tail(f.b, 0, 0).Owner)
	}},
	{"I1 frames and the end of the log are one snapshot beside decisions", func(t *testing.T, f *fixture) {
		// The mistake that this catches: the end is read after the frames, and frames of the time
		// between are reported as lost.
		const decisions = 150
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		done := make(chan error, 1)
		go func() {
			var err error
			for next := int64(0); next < decisions && err == nil; next++ {
				err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: append(step(p0, next, next+1, token), step(p1, next, next+1, token)...)},
					writes(store.Outcome{Frames: []store.Frame{frame(p0, next+1, "x"), frame(p1, next+1, "x")}}))
			}
			done <- err
		}()
		var after change.Version
		for deciding := true; deciding; {
			select {
			case err := <-done:
				require.NoError(t, err)
				deciding = false
			default:
			}
			tail, last := f.tail(f.b, 0, after), after
			for _, frame := range tail.Frames {
				require.Equal(t, max(last, version(0))+1, frame.To, "none is left out")
				last = frame.To
			}
			require.Equal(t, tail.LastTo, last)
			after = last
			marks, err := f.b.Marks(t.Context())
			require.NoError(t, err)
			require.Equal(t, marks[0], marks[1])
			require.GreaterOrEqual(t, marks[0].Watermark, last)
		}
		assert.Equal(t, version(decisions), after)
	}},
}

var retentionTests = []test{
	{"I7 frames written before a time are dropped, and the end of the log stays", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		f.written(revision, token, 0, 450) // more than a page
		now := time.Now()
		f.written(revision, token, 450, 453)
		drop := func(s store.Store, before time.Time) int64 {
			n, err := s.DropFrames(t.Context(), before, 0)
			require.NoError(t, err)
			return n
		}
		assert.Zero(t, drop(f.a, now.Add(-time.Hour)))
		assert.EqualValues(t, 450, drop(f.b, now))
		tail := f.tail(f.a, 0, version(3))
		assert.Equal(t, []change.Version{version(451), version(453)}, []change.Version{tail.Frames[0].To, tail.LastTo})
		assert.Len(t, tail.Frames, 3)
		marks, err := f.b.Marks(t.Context())
		require.NoError(t, err)
		assert.Equal(t, version(451), marks[0].Begins)
		assert.EqualValues(t, 3, drop(f.a, now.Add(time.Hour)))
		assert.Equal(t, store.Tail{LastTo: version(453)}, f.tail(f.b, 0, 0))
		taken, _ := f.own(f.b, 'b', p0)
		assert.Equal(t, version(453), taken[0].LastTo)
	}},
	{"I7 the oldest frames of all partitions are dropped until the log has its size", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		put := func(p store.Partition, from int64, bodies ...string) {
			var out store.Outcome
			for i, body := range bodies {
				out.Frames = append(out.Frames, frame(p, from+int64(i)+1, body))
			}
			to := from + int64(len(bodies))
			require.NoError(t, f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: step(p, from, to, token)}, writes(out)))
		}
		size := func(bytes, dropped int64, left ...int) {
			n, err := f.b.DropFrames(t.Context(), time.Time{}, bytes)
			require.NoError(t, err)
			assert.Equal(t, dropped, n)
			assert.Equal(t, left, []int{len(f.tail(f.a, 0, 0).Frames), len(f.tail(f.a, 1, 0).Frames)})
		}
		put(p0, 0, "1234567890", "1234567890")
		put(p1, 0, "12345")
		put(p0, 2, "1234567890")
		size(35, 0, 3, 1)
		size(34, 1, 2, 1)
		put(p1, 1, "1", "1234")
		size(30, 0, 2, 3)
		size(20, 1, 1, 3)
		size(15, 1, 1, 2)
		size(4, 2, 0, 1)
		size(3, 1, 0, 0)
		put(p0, 3, "12") // the log was empty
		size(7, 0, 1, 0)
		many := slices.Repeat([]string{"123"}, 450) // more than a page
		put(p1, 3, many...)
		size(30, 441, 0, 10)
	}},
}
