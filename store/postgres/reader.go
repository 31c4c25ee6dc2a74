package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlWatermarks = `SELECT generation, partition, next_offset FROM watermarks`

	sqlOutboxes = `SELECT generation, partition, count(*) FROM outbox GROUP BY generation, partition`

	sqlCountEntities = `SELECT count(*) FROM entities`

	sqlKnownServices = `SELECT name, number FROM services`

	sqlPosition = `SELECT next_offset, state FROM source_positions WHERE source = $1 AND identity = $2`

	sqlSetPosition = `
INSERT INTO source_positions (source, identity, next_offset, state) VALUES ($1, $2, $3, $4)
ON CONFLICT (source, identity) DO UPDATE SET next_offset = excluded.next_offset, state = excluded.state
WHERE source_positions.next_offset <= excluded.next_offset`
)

// Entity implements store.Reader.
func (s *Store) Entity(ctx context.Context, id string) (store.Entity, error) {
	found := []store.Entity{{ID: id}}
	b := new(pgx.Batch)
	queueLoad(b, []string{id}, found)
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return store.Entity{}, failed("read entity", err)
	}
	if !found[0].Found {
		return store.Entity{}, failed("read entity", store.ErrNotFound)
	}
	return found[0], nil
}

// Watermarks implements store.Reader.
func (s *Store) Watermarks(ctx context.Context) (map[store.Partition]int64, error) {
	return s.byPartition(ctx, "read watermarks", sqlWatermarks)
}

// Outboxes implements store.Reader.
func (s *Store) Outboxes(ctx context.Context) (map[store.Partition]int64, error) {
	return s.byPartition(ctx, "count outbox rows", sqlOutboxes)
}

// byPartition reads a number for each partition.
func (s *Store) byPartition(ctx context.Context, what, query string) (map[store.Partition]int64, error) {
	numbers := make(map[store.Partition]int64)
	var p store.Partition
	var n int64
	if err := each(ctx, s.pool, []any{&p.Generation, &p.Number, &n}, func() { numbers[p] = n }, query); err != nil {
		return nil, failed(what, err)
	}
	return numbers, nil
}

// Entities implements store.Reader.
func (s *Store) Entities(ctx context.Context, after string, limit int) ([]store.Entity, error) {
	entities, err := s.page(ctx, sqlPageEntities, after, max(limit, 0), scanEntity)
	return entities, failed("page entities", err)
}

// CountEntities implements store.Reader.
func (s *Store) CountEntities(ctx context.Context) (n int64, err error) {
	err = s.pool.QueryRow(ctx, sqlCountEntities).Scan(&n)
	return n, failed("count entities", err)
}

// KnownServices implements store.Reader.
func (s *Store) KnownServices(ctx context.Context) (map[string]int32, error) {
	numbers := map[string]int32{}
	var name string
	var number int32
	err := each(ctx, s.pool, []any{&name, &number}, func() { numbers[name] = number }, sqlKnownServices)
	return numbers, failed("read services", err)
}

// Position implements store.SourcePositions.
func (s *Store) Position(ctx context.Context, source, identity string) (store.SourcePosition, error) {
	p := store.SourcePosition{Source: source, Identity: identity}
	if err := s.pool.QueryRow(ctx, sqlPosition, source, identity).Scan(&p.Offset, &p.State); err != nil {
		return store.SourcePosition{}, failed("read source position", err)
	}
	return p, nil
}

// SetPosition implements store.SourcePositions.
func (s *Store) SetPosition(ctx context.Context, p store.SourcePosition) error {
	_, err := s.pool.Exec(ctx, sqlSetPosition, p.Source, p.Identity, p.Offset, p.State)
	return failed("set source position", err)
}
