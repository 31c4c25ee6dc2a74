package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// fill makes dam rows by CompareAndSwap.
func (f *fixture) fill(service int32, v change.Version, entities ...string) []store.Key {
	f.Helper()
	var checks []store.Check
	var keys []store.Key
	for _, e := range entities {
		k := store.Key{Service: service, Entity: e}
		checks, keys = append(checks, store.Check{Key: k, Content: content("new"), Version: v}), append(keys, k)
	}
	_, err := f.a.CompareAndSwap(f.ctx(), checks)
	require.NoError(f, err)
	return keys
}

var purgeTests = []test{
	{"I7 only entities deleted before, with their rows, up to the limit", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		entities := []store.Entity{
			{ID: "alive"}, {ID: "fresh", Deleted: now},
			{ID: "old-1", Deleted: now.Add(-time.Hour)}, {ID: "old-2", Deleted: now.Add(-2 * time.Hour)}, {ID: "old-3", Deleted: now.Add(-3 * time.Hour)},
		}
		_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{{Partition: p0, From: 0, To: 5, Token: token}}},
			writes(store.Outcome{Entities: entities}))
		require.NoError(t, err)
		f.fill(service, version(1), "alive", "fresh", "old-1", "old-2", "old-3")
		purge := func(limit int) int {
			n, err := f.b.PurgeEntities(t.Context(), now, limit)
			require.NoError(t, err)
			return n
		}
		assert.Equal(t, 0, purge(0))
		assert.Equal(t, 2, purge(2))
		assert.False(t, f.row(f.a, store.Key{Service: service, Entity: "old-3"}).Found)
		assert.True(t, f.row(f.a, store.Key{Service: service, Entity: "old-1"}).Found, "the oldest go first")
		assert.Equal(t, 1, purge(10))
		assert.Equal(t, 0, purge(10))
		got := f.state(f.a)
		require.Len(t, got.Entities, 2)
		assert.Equal(t, []string{"alive", "fresh"}, []string{got.Entities[0].ID, got.Entities[1].ID})
		assert.Len(t, got.Rows, 2)
	}},
	{"a decision on a purged entity is fenced, not lost", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		k := store.Key{Service: service, Entity: "e"}
		_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{{Partition: p0, From: 0, To: 1, Token: token}}},
			writes(store.Outcome{Entities: []store.Entity{{ID: "e", Deleted: time.Unix(1, 0)}}, Swaps: []store.Swap{{Key: k, Insert: true, New: change.Retracted(), Version: version(0)}}}))
		require.NoError(t, err)
		var purged error
		_, err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{{Partition: p0, From: 1, To: 2, Token: token}}, Entities: []string{"e"}},
			func(store.Loaded, store.Lookup) (store.Outcome, error) {
				ctx, cancel := boundedContext(t)
				defer cancel()
				_, purged = f.b.PurgeEntities(ctx, time.Unix(2, 0), 10)
				return store.Outcome{Entities: []store.Entity{{ID: "e"}}, Swaps: []store.Swap{{Key: k, Old: change.Retracted(), New: content("A"), Version: version(1)}}}, nil
			})
		_, gone := f.b.Entity(t.Context(), "e")
		if err == nil { // an implementation with one writer keeps the purge out
			require.Error(t, purged)
			require.NoError(t, gone)
			return
		}
		// The purge is committed, whether or not its caller waited for that.
		require.ErrorIs(t, err, store.ErrFenced)
		require.ErrorIs(t, gone, store.ErrNotFound)
	}},
}
