package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Entity implements store.Reader.
func (s *Store) Entity(ctx context.Context, id string) (store.Entity, error) {
	e, err := scanEntity(s.readers.QueryRowContext(ctx, sqlEntity, id))
	if err != nil {
		return store.Entity{}, failed("read entity", err)
	}
	return e, nil
}

// EntityRows implements store.Reader.
func (s *Store) EntityRows(ctx context.Context, id string) ([]store.NamedRow, error) {
	var named []store.NamedRow
	rows, err := s.readers.QueryContext(ctx, `
SELECT s.name, d.service, d.content, d.refused, d.version
FROM dam d JOIN services s ON s.number = d.service WHERE d.entity = ? ORDER BY s.name`, id)
	err = collect(rows, err, func() error {
		r := store.NamedRow{Row: store.Row{Key: store.Key{Entity: id}, Found: true}}
		var version int64
		err := rows.Scan(&r.Service, &r.Key.Service, (*[]byte)(&r.Content), &r.Refused, &version)
		r.Version = change.Version(version)
		named = append(named, r)
		return err
	})
	if err != nil {
		return nil, failed("read dam rows", err)
	}
	return named, nil
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
func (s *Store) Entities(ctx context.Context, after string, limit int) ([]store.Entity, error) {
	var entities []store.Entity
	rows, err := s.readers.QueryContext(ctx, `
SELECT id, docs, fence, version, fingerprint, deleted_at FROM entities WHERE id > ? ORDER BY id LIMIT ?`, after, max(limit, 0))
	err = collect(rows, err, func() error {
		e, err := scanEntity(rows)
		entities = append(entities, e)
		return err
	})
	if err != nil {
		return nil, failed("page entities", err)
	}
	return entities, nil
}

// Tombstones implements store.Reader.
func (s *Store) Tombstones(ctx context.Context, before time.Time, after string, limit int) ([]store.Tombstone, error) {
	var stones []store.Tombstone
	rows, err := s.readers.QueryContext(ctx, `
SELECT id, version FROM entities WHERE deleted_at < ? AND id > ? ORDER BY id LIMIT ?`, micros(before), after, max(limit, 0))
	err = collect(rows, err, func() error {
		var t store.Tombstone
		var version int64
		err := rows.Scan(&t.Entity, &version)
		t.Version = change.Version(version)
		stones = append(stones, t)
		return err
	})
	if err != nil {
		return nil, failed("page tombstones", err)
	}
	return stones, nil
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

// Position implements store.Positions.
func (s *Store) Position(ctx context.Context, source, identity string) (store.SourcePosition, error) {
	p := store.SourcePosition{Source: source, Identity: identity}
	row := s.readers.QueryRowContext(ctx, `SELECT next_offset, state FROM source_positions WHERE source = ? AND identity = ?`, source, identity)
	if err := row.Scan(&p.Offset, &p.State); err != nil {
		return store.SourcePosition{}, failed("read source position", err)
	}
	return p, nil
}

// SetPosition implements store.Positions.
func (s *Store) SetPosition(ctx context.Context, p store.SourcePosition) error {
	return s.write(ctx, "set source position", func(t tx) error {
		return failed("set source position", each(t.ctx, t.conn, `
INSERT INTO source_positions (source, identity, next_offset, state) VALUES (?, ?, ?, ?)
ON CONFLICT (source, identity) DO UPDATE SET next_offset = excluded.next_offset, state = excluded.state
WHERE source_positions.next_offset <= excluded.next_offset`, 1, func(_ int, statement *sql.Stmt) error {
			_, err := t.exec(statement, p.Source, p.Identity, p.Offset, p.State)
			return err
		}))
	})
}
