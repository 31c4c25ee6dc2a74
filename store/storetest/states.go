package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// withStates sets dam states of entities that were loaded.
func withStates(entities []store.Entity, rows ...store.Row) []store.Entity {
	for _, r := range rows {
		entities[slices.IndexFunc(entities, func(e store.Entity) bool { return e.ID == r.Entity })].States.Set(r)
	}
	return entities
}

// decideStates runs one decision of nothing but dam states on p0.
func (f *fixture) decideStates(s store.Store, revision, from int64, token store.Token, rows ...store.Row) error {
	d := store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: from, To: from + 1, Token: token}}, Entities: entitiesOf(rows)}
	return s.Decide(f.ctx(), d, func(loaded store.Loaded) (store.Outcome, error) {
		return store.Outcome{Entities: withStates(loaded.Entities, rows...), Frames: []store.Frame{frame(p0, from+1, "c")}}, nil
	})
}

func entitiesOf(rows []store.Row) (ids []string) {
	for _, r := range rows {
		ids = append(ids, r.Entity)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// many registers so many services that their states need further pages, and returns
// the numbers of the first and of the last.
func (f *fixture) many() (first, last int32) {
	f.Helper()
	names := make([]string, 2*store.PageServices+3)
	for i := range names {
		names[i] = fmt.Sprintf("s%03d", i)
	}
	numbers, err := f.a.Services(f.ctx(), names)
	require.NoError(f, err)
	first, last = numbers[names[0]], numbers[names[0]]
	for _, n := range numbers {
		first, last = min(first, n), max(last, n)
	}
	require.Zero(f, store.PageOf(first))
	require.Positive(f, store.PageOf(last))
	return first, last
}

var stateTests = []test{
	{"I4 a state goes from content to content, through unknown and retracted", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		first, last := f.many()
		for i, next := range []change.Content{content("A"), content("B"), content("A"), change.Retracted(), nil, content("A"), nil} {
			var rows []store.Row
			for _, n := range []int32{first, last} {
				rows = append(rows, store.Row{Key: store.Key{Service: n, Entity: "e"}, Found: true, Content: next, Version: version(int64(i)), Entered: change.Entered(i)})
			}
			require.NoError(t, f.decideStates(f.a, revision, int64(i), token, rows...))
			for _, r := range rows {
				assert.Equal(t, r, f.row(f.b, r.Key))
			}
		}
	}},
	{"I9 a state remembers that its content was refused, wherever it is read", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		first, last := f.many()
		rows := make([]store.Row, 2)
		for i, n := range []int32{first, last} {
			rows[i] = store.Row{Key: store.Key{Service: n, Entity: "e"}, Found: true, Content: content("A"), Refused: true, Version: version(1)}
		}
		for round, refused := range []bool{true, false, true} {
			rows[0].Refused, rows[1].Refused = refused, !refused
			require.NoError(t, f.decideStates(f.a, revision, int64(round), token, rows...))
			for _, r := range rows {
				assert.Equal(t, r, f.row(f.b, r.Key))
			}
			moved, _, err := f.b.Moved(t.Context(), 0, version(9), "", 10)
			require.NoError(t, err)
			assert.Equal(t, rows, moved)
			entity, err := f.b.Entity(t.Context(), "e")
			require.NoError(t, err)
			page, err := f.b.Entities(t.Context(), "", 10)
			require.NoError(t, err)
			require.Len(t, page, 1)
			err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Entities: []string{"e"}}, func(loaded store.Loaded) (store.Outcome, error) {
				for _, e := range []store.Entity{loaded.Entities[0], entity, page[0]} {
					assert.Equal(t, rows, e.States.All("e"))
				}
				return store.Outcome{}, nil
			})
			require.NoError(t, err)
		}
	}},
	{"a page in which nothing was set stays as it is stored", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		first, last := f.many()
		row := func(service int32, text string, v int64) store.Row {
			return store.Row{Key: store.Key{Service: service, Entity: "e"}, Found: true, Content: content(text), Version: version(v)}
		}
		require.NoError(t, f.decideStates(f.a, revision, 0, token, row(first, "A", 1), row(first+1, "A", 1), row(last, "A", 1)))
		require.NoError(t, f.decideStates(f.b, revision, 1, token, row(last, "B", 2), row(last-1, "B", 2)))
		require.NoError(t, f.decideStates(f.a, revision, 2, token, row(first, "C", 3)))
		got, err := f.b.Entity(t.Context(), "e")
		require.NoError(t, err)
		assert.Equal(t, []store.Row{row(first, "C", 3), row(first+1, "A", 1), row(last-1, "B", 2), row(last, "B", 2)}, got.States.All("e"))
		assert.EqualValues(t, 3, got.Writes)

		// Also where the states are not known: nothing is set, and nothing is lost.
		got.States, got.Fence = store.States{}, []byte("fence")
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Entities: []store.Entity{got}}))
		require.NoError(t, err)
		assert.Equal(t, row(first, "C", 3), f.row(f.b, row(first, "", 0).Key))
		assert.Equal(t, row(last, "B", 2), f.row(f.b, row(last, "", 0).Key))
	}},
	{"I3 an entity that is not as it was found rolls the whole transaction back", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		state := func(e, text string, v int64) store.Row {
			return store.Row{Key: store.Key{Service: service, Entity: e}, Content: content(text), Version: version(v)}
		}
		require.NoError(t, f.decideStates(f.a, revision, 0, token, state("e", "A", 1), state("u", "A", 1)))
		require.NoError(t, f.decideStates(f.a, revision, 1, token, state("u", "B", 2)))
		before := f.state(f.b)
		entity := func(id string, writes int64) store.Entity {
			return store.Entity{ID: id, Writes: writes, States: StatesOf(state(id, "C", 3))}
		}
		good := []store.Entity{entity("e", 1), entity("new", 0)}
		decide := func(entities ...store.Entity) error {
			return f.a.Decide(f.ctx(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 2, To: 3, Token: token}}}, writes(store.Outcome{Entities: entities}))
		}
		for name, bad := range map[string]store.Entity{
			"written since": entity("u", 1), "to be written yet": entity("u", 3), "there, not missing": entity("u", 0), "missing": entity("m", 1),
		} {
			for _, entities := range [][]store.Entity{{bad}, append(good[:2:2], bad), {bad, good[0], good[1]}} {
				require.ErrorIs(t, decide(entities...), store.ErrFenced, name)
				assert.Equal(t, before, f.state(f.b), name)
				assert.False(t, f.row(f.b, state("new", "", 0).Key).Found, name)
			}
		}
		require.NoError(t, decide(good...), "and the owner may go on")
	}},
	{"an entity twice is a bug", func(t *testing.T, f *fixture) {
		revision := f.revision()
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Entities: []store.Entity{{ID: "e"}, {ID: "e"}}}))
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
	}},
	{"many states at once, read back in the order of keys", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		first, last := f.many()
		var rows []store.Row
		var keys []store.Key
		for i := range 700 {
			for _, n := range []int32{first, first + 1, last} {
				k := store.Key{Service: n, Entity: fmt.Sprint("banana-", (i*7919)%10007)}
				rows = append(rows, store.Row{Key: k, Content: content(fmt.Sprint(k)), Version: version(1)})
				keys = append(keys, k, store.Key{Service: n, Entity: fmt.Sprint("missing-", i)}, store.Key{Service: first + store.PageServices, Entity: k.Entity})
			}
		}
		require.NoError(t, f.decideStates(f.a, revision, 0, token, rows...))
		found, err := f.b.Rows(t.Context(), keys)
		require.NoError(t, err)
		require.Len(t, found, len(keys))
		for i, r := range found {
			require.Equal(t, keys[i], r.Key)
			require.Equal(t, i%3 == 0, r.Found)
			if r.Found {
				require.Equal(t, content(fmt.Sprint(r.Key)), r.Content)
			}
		}
	}},
}
