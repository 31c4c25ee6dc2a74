package storetest

import (
	"fmt"
	"sync"
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

var deliveryTests = []test{
	{"I5 Confirm never goes backwards", func(t *testing.T, f *fixture) {
		k := f.fill(f.service("s"), version(5), "e")[0]
		for _, step := range []struct {
			version, want int64
			content       string
			wantContent   string
		}{{3, 3, "3", "3"}, {5, 5, "5", "5"}, {4, 5, "4", "5"}, {5, 5, "again", "5"}, {9, 9, "9", "9"}} {
			require.NoError(t, f.b.Confirm(t.Context(), []store.Confirmation{{Key: k, Version: version(step.version), Content: content(step.content)}}))
			got := f.row(f.a, k)
			assert.Equal(t, version(step.want), got.DeliveredVersion)
			assert.Equal(t, content(step.wantContent), got.Delivered)
			assert.Equal(t, content("new"), got.Content, "decide's columns are not touched")
			assert.Equal(t, version(5), got.Version)
		}
	}},
	{"Confirm takes repeated keys, any order, missing rows and nothing", func(t *testing.T, f *fixture) {
		keys := f.fill(f.service("s"), version(9), "a", "b")
		require.NoError(t, f.a.Confirm(t.Context(), nil))
		missing := store.Key{Service: keys[0].Service, Entity: "missing"}
		require.NoError(t, f.a.Confirm(t.Context(), []store.Confirmation{
			{Key: keys[1], Version: version(2), Content: content("2")},
			{Key: keys[0], Version: version(7), Content: content("7")},
			{Key: missing, Version: version(1), Content: content("1")},
			{Key: keys[1], Version: version(3), Content: change.Retracted()},
			{Key: keys[0], Version: version(6), Content: content("6")},
		}))
		assert.Equal(t, content("7"), f.row(f.b, keys[0]).Delivered)
		assert.Equal(t, version(7), f.row(f.b, keys[0]).DeliveredVersion)
		assert.Equal(t, change.Retracted(), f.row(f.b, keys[1]).Delivered)
		assert.False(t, f.row(f.b, missing).Found, "a confirmation makes no row")
	}},
	{"Confirm beside Confirm and decisions on the same rows", func(t *testing.T, f *fixture) {
		var entities []string
		for i := range 200 {
			entities = append(entities, fmt.Sprint(i))
		}
		keys := f.fill(f.service("s"), version(0), entities...)
		const rounds = 10
		var callers sync.WaitGroup
		for n := range 4 {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			callers.Go(func() {
				for round := 1; round <= rounds; round++ {
					var done []store.Confirmation
					var checks []store.Check
					for i := range keys {
						k := keys[(i*7+n*31)%len(keys)]
						done = append(done, store.Confirmation{Key: k, Version: version(int64(round)), Content: content(fmt.Sprint(round))})
						checks = append(checks, store.Check{Key: k, Content: content(fmt.Sprint(n, round)), Version: version(int64(round))})
					}
					if n < 3 {
						assert.NoError(t, s.Confirm(t.Context(), done))
					} else {
						_, err := s.CompareAndSwap(t.Context(), checks)
						assert.NoError(t, err)
					}
				}
			})
		}
		callers.Wait()
		rows, err := f.a.Rows(t.Context(), keys)
		require.NoError(t, err)
		for _, r := range rows {
			assert.Equal(t, version(rounds), r.DeliveredVersion)
			assert.Equal(t, content(fmt.Sprint(rounds)), r.Delivered)
			assert.Equal(t, content(fmt.Sprint(3, rounds)), r.Content)
		}
	}},
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
