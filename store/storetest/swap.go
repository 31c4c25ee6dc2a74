package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// decideSwaps runs one decision of nothing but swaps on p0.
func (f *fixture) decideSwaps(s store.Store, revision, from int64, token store.Token, swaps ...store.Swap) error {
	_, err := s.Decide(f.ctx(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: from, To: from + 1, Token: token}}},
		writes(store.Outcome{Swaps: swaps, Outbox: []store.OutboxFrame{{Partition: p0, Frame: []byte("c")}},
			Entities: []store.Entity{{ID: "e", Docs: []byte(`{}`), Version: version(from)}}}))
	return err
}

var swapTests = []test{
	{"I4 a row goes from content to content, through unknown and retracted", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		k := store.Key{Service: f.service("s"), Entity: "e"}
		var old change.Content
		for i, next := range []change.Content{content("A"), content("B"), content("A"), change.Retracted(), nil, content("A"), nil} {
			swap := store.Swap{Key: k, Insert: i == 0, Old: old, New: next, Version: version(int64(i))}
			require.NoError(t, f.decideSwaps(f.a, revision, int64(i), token, swap))
			assert.Equal(t, store.Row{Key: k, Found: true, Content: next, Version: version(int64(i))}, f.row(f.b, k))
			old = next
		}
	}},
	{"I9 a row remembers that its content was refused, wherever it is read", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		k := store.Key{Service: f.service("s"), Entity: "e"}
		row := store.Row{Key: k, Found: true, Content: content("A"), Refused: true, Version: version(1)}
		reads := func() {
			t.Helper()
			assert.Equal(t, row, f.row(f.b, k))
			named, err := f.b.EntityRows(t.Context(), "e")
			require.NoError(t, err)
			assert.Equal(t, []store.NamedRow{{Service: "s", Row: row}}, named)
			moved, err := f.b.Moved(t.Context(), 0, version(9), "", 10)
			require.NoError(t, err)
			assert.Equal(t, []store.Row{row}, moved)
			_, err = f.a.Decide(t.Context(), store.Decision{Revision: revision}, func(_ store.Loaded, lookup store.Lookup) (store.Outcome, error) {
				// Several rows of one entity, and one: both ways in which they are read.
				for _, keys := range [][]store.Key{{k}, {k, {Service: k.Service + 1, Entity: "e"}}} {
					rows, err := lookup(keys)
					if err != nil {
						return store.Outcome{}, err
					}
					assert.Equal(t, row, rows[0])
				}
				return store.Outcome{}, nil
			})
			require.NoError(t, err)
		}
		require.NoError(t, f.decideSwaps(f.a, revision, 0, token, store.Swap{Key: k, Insert: true, New: content("A"), Refused: true, Version: version(1)}))
		reads()
		require.ErrorIs(t, f.decideSwaps(f.a, revision, 1, token, store.Swap{Key: k, Old: content("A"), New: content("B"), Version: version(2)}), store.ErrFenced)
		require.NoError(t, f.decideSwaps(f.a, revision, 1, token, store.Swap{Key: k, Old: content("A"), OldRefused: true, New: content("A"), Version: version(2)}))
		row.Refused, row.Version = false, version(2)
		reads()
		require.NoError(t, f.decideSwaps(f.a, revision, 2, token, store.Swap{Key: k, Old: content("A"), New: content("A"), Refused: true, Version: version(2)}))
		row.Refused = true
		reads()
	}},
	{"I3 a lost race rolls the whole transaction back", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		service := f.service("s")
		key := func(e string) store.Key { return store.Key{Service: service, Entity: e} }
		require.NoError(t, f.decideSwaps(f.a, revision, 0, token,
			store.Swap{Key: key("e"), Insert: true, New: content("A"), Version: version(1)},
			store.Swap{Key: key("u"), Insert: true, New: nil, Version: version(1)}))
		before := f.state(f.b)
		good := []store.Swap{
			{Key: key("e"), Old: content("A"), New: content("B"), Version: version(2)},
			{Key: key("new"), Insert: true, New: content("B"), Version: version(2)},
		}
		for name, bad := range map[string]store.Swap{
			"other content":        {Key: key("u"), Old: content("X"), New: content("B"), Version: version(2)},
			"unknown, not missing": {Key: key("u"), Insert: true, New: content("B"), Version: version(2)},
			"missing, not unknown": {Key: key("m"), Old: nil, New: content("B"), Version: version(2)},
			"missing":              {Key: key("m"), Old: content("A"), New: content("B"), Version: version(2)},
		} {
			for _, swaps := range [][]store.Swap{{bad}, append(good[:2:2], bad), {bad, good[0], good[1]}} {
				err := f.decideSwaps(f.a, revision, 1, token, swaps...)
				require.ErrorIs(t, err, store.ErrFenced, name)
				assert.Equal(t, before, f.state(f.b), name)
				assert.False(t, f.row(f.b, key("new")).Found, name)
			}
		}
		require.NoError(t, f.decideSwaps(f.a, revision, 1, token, good...), "and the owner may go on")
	}},
	{"the version of a row never goes backwards", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		k := store.Key{Service: f.service("s"), Entity: "e"}
		require.NoError(t, f.decideSwaps(f.a, revision, 0, token, store.Swap{Key: k, Insert: true, New: content("A"), Version: version(9)}))
		require.NoError(t, f.decideSwaps(f.a, revision, 1, token, store.Swap{Key: k, Old: content("A"), New: content("B"), Version: version(8)}))
		assert.Equal(t, version(9), f.row(f.b, k).Version)
	}},
	{"a key twice is a bug", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		swap := store.Swap{Key: store.Key{Service: f.service("s"), Entity: "e"}, Insert: true, New: content("A"), Version: version(9)}
		err := f.decideSwaps(f.a, revision, 0, token, swap, swap)
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
	}},
	{"many rows at once, read back in the order of keys", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		services, err := f.a.Services(t.Context(), []string{"s", "t", "u"})
		require.NoError(t, err)
		var swaps []store.Swap
		var keys []store.Key
		for i := range 700 {
			for _, n := range services {
				k := store.Key{Service: n, Entity: fmt.Sprint("banana-", (i*7919)%10007)}
				swaps = append(swaps, store.Swap{Key: k, Insert: true, New: content(fmt.Sprint(k)), Version: version(1)})
				keys = append(keys, k, store.Key{Service: n, Entity: fmt.Sprint("missing-", i)})
			}
		}
		require.NoError(t, f.decideSwaps(f.a, revision, 0, token, swaps...))
		rows, err := f.b.Rows(t.Context(), keys)
		require.NoError(t, err)
		require.Len(t, rows, len(keys))
		for i, r := range rows {
			require.Equal(t, keys[i], r.Key)
			require.Equal(t, i%2 == 0, r.Found)
			if r.Found {
				require.Equal(t, content(fmt.Sprint(r.Key)), r.Content)
			}
		}
	}},
}
