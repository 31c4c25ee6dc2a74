package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
)

// Entity implements store.Reader.
func (s *Store) Entity(ctx context.Context, id string) (store.Entity, error) {
	found := []store.Entity{{ID: id}}
	b := new(pgx.Batch)
	queueLoad(b, []string{id}, found)
	if err := s.sendBatch(ctx, b); err != nil {
		return store.Entity{}, failed("read entity", err)
	}
	if !found[0].Found {
		return store.Entity{}, failed("read entity", store.ErrNotFound)
	}
	return found[0], nil
}

// Entities implements store.Reader.
func (s *Store) Entities(ctx context.Context, after string, limit int) ([]store.Entity, error) {
	entities, err := s.page(ctx, sqlPageEntities, after, max(limit, 0), scanEntity)
	return entities, failed("page entities", err)
}
