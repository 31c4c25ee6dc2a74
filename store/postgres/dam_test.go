package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
)

// I1: a page of entities has all states of each, beside any writes. The mistake
// that this catches: entities and dam pages are read in two snapshots, and an entity
// that comes between moves the second page away from the last ones of the first.
func TestAPageOfEntitiesHasAllTheirStates(t *testing.T) {
	for name, read := range map[string]func(s *Store, ctx context.Context, after string, n int) ([]store.Entity, error){
		"entities": (*Store).Entities, "states": (*Store).States,
	} {
		t.Run(name, func(t *testing.T) {
			s, url := migrated(t)
			ctx := t.Context()
			revision, err := s.Activate(ctx, []byte("c"), false, store.Inbox{}, nil)
			require.NoError(t, err)
			var all []store.Entity
			for i := range 3 {
				states := storetest.StatesOf(store.Row{Key: store.Key{Service: 1}}, store.Row{Key: store.Key{Service: store.PageServices}}, store.Row{Key: store.Key{Service: 3 * store.PageServices}})
				all = append(all, store.Entity{ID: fmt.Sprint("b", i), States: states})
			}
			err = s.Decide(ctx, store.Decision{Revision: revision.Number}, func(store.Loaded) (store.Outcome, error) { return store.Outcome{Entities: all}, nil })
			require.NoError(t, err)
			reader := handle(t, url)
			_, err = read(reader, ctx, "", 3) // prepares, so that only the dam is waited for
			require.NoError(t, err)

			between, err := s.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = between.Rollback(ctx) }()
			var pid int32
			require.NoError(t, between.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid))
			_, err = between.Exec(ctx, `LOCK TABLE dam IN ACCESS EXCLUSIVE MODE`)
			require.NoError(t, err)
			var page []store.Entity
			done := make(chan error, 1)
			go func() {
				var err error
				page, err = read(reader, ctx, "", 3)
				done <- err
			}()
			behind(t, s, pid)
			_, err = between.Exec(ctx, `INSERT INTO entities (id, docs, version, writes, states) VALUES ('a', '{}', 1, 1, '')`)
			require.NoError(t, err)
			require.NoError(t, between.Commit(ctx))
			require.NoError(t, <-done)
			require.Len(t, page, 3)
			for _, e := range page {
				if e.ID != "a" {
					assert.Len(t, e.States.All(e.ID), 3, e.ID)
				}
			}
		})
	}
}
