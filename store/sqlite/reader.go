package sqlite

import (
	"context"
	"database/sql"

	"github.com/seed-86dfc502/weir/store"
)

// Entity implements store.Reader.
func (s *Store) Entity(ctx context.Context, id string) (e store.Entity, err error) {
	return e, s.read(ctx, "read entity", func(t *sql.Tx) error {
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

// Watermarks implements store.Reader.
func (s *Store) Watermarks(ctx context.Context) (map[store.Partition]int64, error) {
	return s.byPartition(ctx, "read watermarks", `SELECT generation, partition, next_offset FROM watermarks`)
}

// Outboxes implements store.Reader.
func (s *Store) Outboxes(ctx context.Context) (map[store.Partition]int64, error) {
	return s.byPartition(ctx, "count outbox rows", `SELECT generation, partition, count(*) FROM outbox GROUP BY generation, partition`)
}

// byPartition reads a number for each partition.
func (s *Store) byPartition(ctx context.Context, what, query string) (map[store.Partition]int64, error) {
	numbers := make(map[store.Partition]int64)
	rows, err := s.readers.QueryContext(ctx, query)
	err = collect(rows, err, func() error {
		var p store.Partition
		var n int64
		err := rows.Scan(&p.Generation, &p.Number, &n)
		numbers[p] = n
		return err
	})
	if err != nil {
		return nil, failed(what, err)
	}
	return numbers, nil
}

// Entities implements store.Reader.
func (s *Store) Entities(ctx context.Context, after string, limit int) (entities []store.Entity, err error) {
	return entities, s.read(ctx, "page entities", func(t *sql.Tx) error {
		entities, err = list(ctx, t, scanEntity, `
SELECT id, docs, fence, version, fingerprint, deleted_at, writes, states FROM entities WHERE id > ? ORDER BY id LIMIT ?`, after, max(limit, 0))
		if err != nil {
			return err
		}
		return loadPages(ctx, t, entities)
	})
}

// CountEntities implements store.Reader.
func (s *Store) CountEntities(ctx context.Context) (n int64, err error) {
	err = s.readers.QueryRowContext(ctx, `SELECT count(*) FROM entities`).Scan(&n)
	return n, failed("count entities", err)
}

// KnownServices implements store.Reader.
func (s *Store) KnownServices(ctx context.Context) (map[string]int32, error) {
	numbers := map[string]int32{}
	rows, err := s.readers.QueryContext(ctx, `SELECT name, number FROM services`)
	err = collect(rows, err, func() error {
		var name string
		var number int32
		err := rows.Scan(&name, &number)
		numbers[name] = number
		return err
	})
	if err != nil {
		return nil, failed("read services", err)
	}
	return numbers, nil
}

// Position implements store.SourcePositions.
func (s *Store) Position(ctx context.Context, source, identity string) (store.SourcePosition, error) {
	p := store.SourcePosition{Source: source, Identity: identity}
	row := s.readers.QueryRowContext(ctx, `SELECT next_offset, state FROM source_positions WHERE source = ? AND identity = ?`, source, identity)
	if err := row.Scan(&p.Offset, &p.State); err != nil {
		return store.SourcePosition{}, failed("read source position", err)
	}
	return p, nil
}

// SetPosition implements store.SourcePositions.
func (s *Store) SetPosition(ctx context.Context, p store.SourcePosition) error {
	return s.write(ctx, "set source position", func(t tx) error {
		_, err := t.once(`
INSERT INTO source_positions (source, identity, next_offset, state) VALUES (?, ?, ?, ?)
ON CONFLICT (source, identity) DO UPDATE SET next_offset = excluded.next_offset, state = excluded.state
WHERE source_positions.next_offset <= excluded.next_offset`, p.Source, p.Identity, p.Offset, p.State)
		return err
	})
}
