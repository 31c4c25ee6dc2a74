package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// fill makes dam rows with one content and version.
func (f *fixture) fill(service int32, v change.Version, entities ...string) {
	f.Helper()
	keys := make([]store.Key, len(entities))
	for i, e := range entities {
		keys[i] = store.Key{Service: service, Entity: e}
	}
	f.set(content("new"), v, keys...)
}

// set makes dam rows, or changes them, by a decision that moves nothing.
func (f *fixture) set(c change.Content, v change.Version, keys ...store.Key) {
	f.Helper()
	rows := make([]store.Row, len(keys))
	for i, k := range keys {
		rows[i] = store.Row{Key: k, Content: c, Version: v}
	}
	f.put(rows...)
}

// put writes dam states by a decision that moves nothing.
func (f *fixture) put(rows ...store.Row) {
	f.Helper()
	err := f.a.Decide(f.ctx(), store.Decision{Revision: f.revision(), Entities: entitiesOf(rows)}, func(loaded store.Loaded) (store.Outcome, error) {
		return store.Outcome{Entities: withStates(loaded.Entities, rows...)}, nil
	})
	require.NoError(f, err)
}

var purgeTests = []test{
	{"I7 tombstones page by the time of deletion, then by the bytes of their ids", func(t *testing.T, f *fixture) {
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		err := f.a.Decide(t.Context(), store.Decision{Revision: f.revision()}, writes(store.Outcome{Entities: []store.Entity{
			{ID: "alive"}, {ID: "fresh", Deleted: now}, {ID: "z", Deleted: now.Add(-time.Hour), Version: version(7)},
			{ID: "Z", Deleted: now.Add(-time.Microsecond), Version: version(3)}, {ID: "é", Deleted: now.Add(-time.Hour)}, {ID: "last", Deleted: now.Add(-3 * time.Hour)},
		}}))
		require.NoError(t, err)
		want := []store.Tombstone{{Entity: "last", Deleted: now.Add(-3 * time.Hour)}, {Entity: "z", Version: version(7), Deleted: now.Add(-time.Hour)},
			{Entity: "é", Deleted: now.Add(-time.Hour)}, {Entity: "Z", Version: version(3), Deleted: now.Add(-time.Microsecond)}}
		for _, limit := range []int{1, 2, 3, 10} {
			var got []store.Tombstone
			for after := (store.Tombstone{}); len(got) <= len(want); after = got[len(got)-1] {
				page, err := f.b.Tombstones(t.Context(), now, after, limit)
				require.NoError(t, err)
				if got = append(got, page...); len(page) < limit {
					break
				}
			}
			assert.Equal(t, want, got, limit)
		}
		none, err := f.b.Tombstones(t.Context(), now, store.Tombstone{}, 0)
		require.NoError(t, err)
		assert.Empty(t, none)
	}},
	{"I7 a decision removes entities with all their rows, and may make them again", func(t *testing.T, f *fixture) {
		revision := f.revision()
		service, removed := f.many()
		_, token := f.own(f.a, 'a', p0)
		f.fill(service, version(1), "again", "gone", "stays")
		f.fill(removed, version(1), "again", "gone", "stays")
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Entities: []store.Entity{
			{ID: "again", Fence: []byte("old"), Deleted: time.Unix(1, 0), Writes: 2}, {ID: "gone", Deleted: time.Unix(1, 0), Writes: 2}, {ID: "stays", Writes: 2}}}))
		require.NoError(t, err)
		state := store.Row{Key: store.Key{Service: service, Entity: "again"}, Content: content("A"), Version: version(4)}
		out := store.Outcome{
			Purged:   []string{"again", "gone", "never was"},
			Entities: []store.Entity{{ID: "again", Version: version(4), States: StatesOf(state)}},
		}
		before := f.state(f.b)
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 1, To: 5, Token: token}}}, writes(out))
		require.ErrorIs(t, err, store.ErrFenced)
		assert.Equal(t, before, f.state(f.b), "as a part of the decision")
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}}, writes(out))
		require.NoError(t, err)
		got := f.state(f.b)
		require.Len(t, got.Entities, 2)
		assert.Equal(t, "again", got.Entities[0].ID)
		assert.Equal(t, []byte("{}"), got.Entities[0].Docs)
		assert.Empty(t, got.Entities[0].Fence)
		assert.EqualValues(t, 1, got.Entities[0].Writes)
		assert.Equal(t, "stays", got.Entities[1].ID)
		for _, n := range []int32{service, removed} {
			assert.Equal(t, n == service, f.row(f.b, store.Key{Service: n, Entity: "again"}).Found)
			assert.False(t, f.row(f.b, store.Key{Service: n, Entity: "gone"}).Found)
			assert.True(t, f.row(f.b, store.Key{Service: n, Entity: "stays"}).Found)
		}
	}},
}
