package sqlite

import (
	"context"

	"github.com/seed-86dfc502/weir/store"
)

// Entity implements store.Reader.
func (s *Store) Entity(ctx context.Context, id string) (e store.Entity, err error) {
	return e, s.read(ctx, "read entity", func(t *keptConn) error {
		found, err := loadEntities(ctx, t, []string{id})
		if err == nil && !found[0].Found {
			err = store.ErrNotFound
		}
		if err == nil {
			e = found[0]
		}
		return err
	})
}

// Entities implements store.Reader.
func (s *Store) Entities(ctx context.Context, after string, limit int) (entities []store.Entity, err error) {
	return entities, s.read(ctx, "page entities", func(t *keptConn) error {
		entities, err = list(ctx, t, scanEntity, `
SELECT id, docs, fence, version, fingerprint, deleted_at, writes, states FROM entities WHERE id > ? ORDER BY id LIMIT ?`, after, max(limit, 0))
		if err != nil {
			return err
		}
		return loadPages(ctx, t, entities)
	})
}
