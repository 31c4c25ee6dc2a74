package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlLookup = `
SELECT k.n, d.content, d.refused, d.version
FROM unnest($1::text[], $2::int4[]) WITH ORDINALITY AS k(entity, service, n)
JOIN dam d ON d.entity = k.entity AND d.service = k.service`

	// The guard is checked again on the newest version of a row that another
	// transaction was just writing, so it is a true compare-and-swap.
	sqlSwap = `
WITH done AS (
  UPDATE dam d SET content = s.new, refused = s.refused, version = greatest(d.version, s.version)
  FROM unnest($1::text[], $2::int4[], $3::bytea[], $4::bool[], $5::bytea[], $6::bool[], $7::int8[])
    AS s(entity, service, old, old_refused, new, refused, version)
  WHERE d.entity = s.entity AND d.service = s.service AND d.content IS NOT DISTINCT FROM s.old AND d.refused = s.old_refused
  RETURNING 1)
SELECT weir_expect((SELECT count(*) FROM done), $8::int8)`

	sqlInsert = `
WITH done AS (
  INSERT INTO dam (entity, service, content, refused, version)
  SELECT entity, service, new, refused, version
  FROM unnest($1::text[], $2::int4[], $3::bytea[], $4::bool[], $5::int8[]) AS s(entity, service, new, refused, version)
  ON CONFLICT (entity, service) DO NOTHING
  RETURNING 1)
SELECT weir_expect((SELECT count(*) FROM done), $6::int8)`

	sqlPurgeEntities = `DELETE FROM entities WHERE id = ANY($1::text[])`

	sqlPurgeRows = `DELETE FROM dam WHERE entity = ANY($1::text[])`
)

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// lookup reads dam rows in the order of keys.
func lookup(ctx context.Context, q querier, keys []store.Key) ([]store.Row, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found, entities, services := lookedUp(keys)
	rows, err := q.Query(ctx, sqlLookup, entities, services)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return found, scanRows(rows, found)
}

// queueLookup is lookup as a part of a pipeline.
func queueLookup(b *pgx.Batch, keys []store.Key) []store.Row {
	if len(keys) == 0 {
		return nil
	}
	found, entities, services := lookedUp(keys)
	b.Queue(sqlLookup, entities, services).Query(func(rows pgx.Rows) error { return scanRows(rows, found) })
	return found
}

func lookedUp(keys []store.Key) (found []store.Row, entities []string, services []int32) {
	found = make([]store.Row, len(keys))
	entities, services = make([]string, len(keys)), make([]int32, len(keys))
	for i, k := range keys {
		found[i].Key, entities[i], services[i] = k, k.Entity, k.Service
	}
	return found, entities, services
}

func scanRows(rows pgx.Rows, found []store.Row) error {
	var n, version int64
	for rows.Next() {
		var content []byte
		var refused bool
		if err := rows.Scan(&n, &content, &refused, &version); err != nil {
			return err
		}
		r := &found[n-1]
		r.Found, r.Content, r.Refused, r.Version = true, content, refused, change.Version(version)
	}
	return rows.Err()
}

// Rows implements store.Deliveries.
func (s *Store) Rows(ctx context.Context, keys []store.Key) ([]store.Row, error) {
	rows, err := lookup(ctx, s.pool, keys)
	return rows, failed("read dam rows", err)
}

// queueSwaps queues all swaps; one that does not match ends the transaction
// with ErrFenced.
func queueSwaps(b *pgx.Batch, swaps []store.Swap) error {
	swaps, distinct := store.SortSwaps(swaps)
	if !distinct {
		return bug("a dam row is swapped twice in one transaction")
	}
	inserts := 0
	for _, s := range swaps {
		if s.Insert {
			inserts++
		}
	}
	insert, update := newColumns(inserts), newColumns(len(swaps)-inserts)
	for _, s := range swaps {
		if s.Insert {
			insert.add(s)
		} else {
			update.add(s)
		}
	}
	if n := int64(len(update.entities)); n > 0 {
		b.Queue(sqlSwap, update.entities, update.services, update.old, update.oldRefused, update.new, update.refused, update.versions, n)
	}
	if n := int64(len(insert.entities)); n > 0 {
		b.Queue(sqlInsert, insert.entities, insert.services, insert.new, insert.refused, insert.versions, n)
	}
	return nil
}

// columns are swaps as array parameters.
type columns struct {
	entities            []string
	services            []int32
	old, new            [][]byte
	oldRefused, refused []bool
	versions            []int64
}

func newColumns(n int) columns {
	return columns{
		entities: make([]string, 0, n), services: make([]int32, 0, n),
		old: make([][]byte, 0, n), new: make([][]byte, 0, n),
		oldRefused: make([]bool, 0, n), refused: make([]bool, 0, n), versions: make([]int64, 0, n),
	}
}

func (c *columns) add(s store.Swap) {
	c.entities = append(c.entities, s.Entity)
	c.services = append(c.services, s.Service)
	c.old = append(c.old, s.Old)
	c.new = append(c.new, s.New)
	c.oldRefused = append(c.oldRefused, s.OldRefused)
	c.refused = append(c.refused, s.Refused)
	c.versions = append(c.versions, int64(s.Version))
}
