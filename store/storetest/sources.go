package storetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// session is one of the log of the tests.
func session(number int64, name string) change.Session {
	return change.Session{Log: "shop", Number: number, Name: name}
}

var sourceLogTests = []test{
	{"I5 the row of a log is swapped by the session that wrote it", func(t *testing.T, f *fixture) {
		_, err := f.a.SourceLog(t.Context(), "shop")
		require.ErrorIs(t, err, store.ErrNotFound)
		mark := func(offset int64) store.SourcePosition {
			return store.SourcePosition{Source: "shop", Identity: "table", Offset: offset, State: []byte{1}}
		}
		at := func() int64 {
			p, err := f.b.Position(t.Context(), "shop", "table")
			require.NoError(t, err)
			return p.Offset
		}
		first := store.SourceLog{Session: session(1, "one"), State: []byte("a")}
		first.Version, err = f.a.SwapSourceLog(t.Context(), store.SourceLog{}, first, mark(1))
		require.NoError(t, err)
		stored, err := f.b.SourceLog(t.Context(), "shop")
		require.NoError(t, err)
		require.Equal(t, first, stored)

		second := store.SourceLog{Session: session(2, "two"), Torn: true}
		second.Version, err = f.b.SwapSourceLog(t.Context(), first, second)
		require.NoError(t, err)
		for name, old := range map[string]store.SourceLog{
			"no row": {}, "an earlier session": first, "another version": {Session: second.Session, Version: 1},
			"another name": {Session: session(2, "other"), Version: 2}, "another number": {Session: session(1, "two"), Version: 2},
		} {
			_, err = f.a.SwapSourceLog(t.Context(), old, store.SourceLog{Session: session(3, "three")}, mark(9))
			require.ErrorIs(t, err, store.ErrFenced, name)
			assert.Equal(t, store.Fenced, store.ClassOf(err), name)
		}
		stored, err = f.a.SourceLog(t.Context(), "shop")
		require.NoError(t, err)
		require.Equal(t, second, stored, "a lost swap writes nothing")
		require.Equal(t, int64(1), at(), "nor positions")
		_, err = f.a.SwapSourceLog(t.Context(), second, second, mark(2))
		require.NoError(t, err)
		require.Equal(t, int64(2), at())
	}},
	{"I5 of two sessions that swap at once one does", func(t *testing.T, f *fixture) {
		errs := make(chan error, 8)
		for i := range cap(errs) {
			go func() {
				_, err := turn(i, f.a, f.b).SwapSourceLog(t.Context(), store.SourceLog{}, store.SourceLog{Session: session(1, string(rune('a'+i)))})
				errs <- err
			}()
		}
		swapped := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				swapped++
			} else {
				require.ErrorIs(t, err, store.ErrFenced)
			}
		}
		require.Equal(t, 1, swapped)
	}},
	{"I5 floors are written with the decision, and read by the next owner", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		move := func(token store.Token, from int64) []store.WatermarkStep {
			return []store.WatermarkStep{{Partition: p0, From: from, To: from + 1, Token: token}}
		}
		floor := store.Floor{Partition: p0, Session: session(3, "three"), Sequence: "t1", Offset: 70}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: move(token, 0)}, writes(store.Outcome{Floors: []store.Floor{floor}}))
		require.NoError(t, err)
		taken, token2 := f.own(f.b, 'b', p0, p1)
		require.Equal(t, []store.Floor{floor}, taken[0].Floors)
		require.Empty(t, taken[1].Floors, "of another partition")

		floor.Offset = 80
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: move(token, 1)}, writes(store.Outcome{Floors: []store.Floor{floor}}))
		require.ErrorIs(t, err, store.ErrFenced)
		all, err := f.a.Floors(t.Context(), "shop")
		require.NoError(t, err)
		require.Equal(t, int64(70), all[0].Offset, "a decision that is fenced raises nothing")
		err = f.b.Decide(t.Context(), store.Decision{Revision: revision, Moves: move(token2, 1)}, writes(store.Outcome{Floors: []store.Floor{floor}}))
		require.NoError(t, err)
		all, err = f.a.Floors(t.Context(), "shop")
		require.NoError(t, err)
		require.Equal(t, []store.Floor{floor}, all)
		all, err = f.a.Floors(t.Context(), "other")
		require.NoError(t, err)
		require.Empty(t, all)
		all, err = f.a.Floors(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, []store.Floor{floor}, all)
		err = f.b.Decide(t.Context(), store.Decision{Revision: revision, Moves: move(token2, 2)}, writes(store.Outcome{Floors: []store.Floor{{Partition: p1, Session: session(4, "four")}}}))
		require.Error(t, err, "of a partition that the decision does not hold")
	}},
	{"I5 a new inbox begins with the highest floors of the one before", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, To: 1, Token: token}, {Partition: p1, To: 1, Token: token}}},
			writes(store.Outcome{Floors: []store.Floor{
				{Partition: p0, Session: session(3, "three"), Sequence: "t1", Offset: 70},
				{Partition: p1, Session: session(2, "two"), Sequence: "t1", Offset: 90},
			}}))
		require.NoError(t, err)
		next := store.Partition{Generation: 2, Number: 5}
		taken, _ := f.own(f.b, 'b', next)
		require.Equal(t, []store.Floor{{Partition: next, Session: session(3, "three"), Sequence: "t1", Offset: 90}}, taken[0].Floors)
	}},
	{"I5 a barrier that the row of its log lacks tears it", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		at := int64(0)
		barrier := func(sessions ...change.Session) store.SourceLog {
			t.Helper()
			err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: at, To: at + 1, Token: token}}}, writes(store.Outcome{Barriers: sessions}))
			require.NoError(t, err)
			at++
			stored, err := f.b.SourceLog(t.Context(), "shop")
			require.NoError(t, err)
			return stored
		}
		_, err := f.a.SwapSourceLog(t.Context(), store.SourceLog{}, store.SourceLog{Session: session(5, "mine"), State: []byte("kept")})
		require.NoError(t, err)
		mine := store.SourceLog{Session: session(5, "mine"), Version: 1, State: []byte("kept")}
		require.Equal(t, mine, barrier(session(5, "mine")))
		require.Equal(t, mine, barrier(session(4, "older")))
		require.Equal(t, store.SourceLog{Session: session(5, "another"), Version: 2, Torn: true, State: []byte("kept")}, barrier(session(5, "another")))
		require.Equal(t, store.SourceLog{Session: session(7, "newer"), Version: 4, Torn: true, State: []byte("kept")}, barrier(session(6, "new"), session(7, "newer")))
		_, err = f.a.SwapSourceLog(t.Context(), mine, mine)
		require.ErrorIs(t, err, store.ErrFenced)

		err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: at, To: at + 1, Token: token}}},
			writes(store.Outcome{Barriers: []change.Session{{Log: "forgotten", Number: 3, Name: "x"}}}))
		require.NoError(t, err)
		stored, err := f.b.SourceLog(t.Context(), "forgotten")
		require.NoError(t, err)
		require.Equal(t, store.SourceLog{Session: change.Session{Log: "forgotten", Number: 3, Name: "x"}, Version: 1, Torn: true}, stored)
	}},
}
