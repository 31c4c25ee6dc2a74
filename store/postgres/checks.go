package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlCheckRows = `
SELECT k.n, c.revision, c.content, c.version, c.delivered_version, c.delivered, c.memory
FROM unnest($1::text[], $2::int4[]) WITH ORDINALITY AS k(entity, service, n)
JOIN checks c ON c.entity = k.entity AND c.service = k.service`

	// Like sqlSwap, the guard is checked again on the newest version of a row
	// that another transaction was just writing.
	sqlSwapChecks = `
UPDATE checks c SET revision = c.revision + 1, content = s.content, version = s.version,
  delivered_version = s.delivered_version, delivered = s.delivered, memory = s.memory
FROM unnest($1::text[], $2::int4[], $3::int8[], $4::bytea[], $5::int8[], $6::int8[], $7::bytea[], $8::bytea[])
  AS s(entity, service, revision, content, version, delivered_version, delivered, memory)
WHERE c.entity = s.entity AND c.service = s.service AND c.revision = s.revision
RETURNING c.entity, c.service`

	sqlCheckPatience = `SELECT set_config('lock_timeout', $1, true)`

	sqlInsertChecks = `
INSERT INTO checks (entity, service, revision, content, version, delivered_version, delivered, memory)
SELECT entity, service, revision + 1, content, version, delivered_version, delivered, memory
FROM unnest($1::text[], $2::int4[], $3::int8[], $4::bytea[], $5::int8[], $6::int8[], $7::bytea[], $8::bytea[])
  AS s(entity, service, revision, content, version, delivered_version, delivered, memory)
ON CONFLICT (entity, service) DO NOTHING
RETURNING entity, service`
)

// checkPatience bounds the wait for a row's lock. Callers wait for an answer, and
// one batch holds many of them: a session that hangs in its transaction must not
// hold them all.
const checkPatience = "2s"

// CheckRows implements store.CheckRows.
func (s *Store) CheckRows(ctx context.Context, keys []store.Key) ([]store.CheckRow, error) {
	found := make([]store.CheckRow, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	entities, services := make([]string, len(keys)), make([]int32, len(keys))
	for i, k := range keys {
		found[i].Key, entities[i], services[i] = k, k.Entity, k.Service
	}
	var n, revision, version, deliveredVersion int64
	var content, delivered, memory []byte
	err := each(ctx, s.pool, []any{&n, &revision, &content, &version, &deliveredVersion, &delivered, &memory}, func() {
		found[n-1] = store.CheckRow{Key: keys[n-1], Found: true, Revision: revision,
			Content: content, Version: change.Version(version),
			DeliveredVersion: change.Version(deliveredVersion), Delivered: delivered, Memory: memory}
	}, sqlCheckRows, entities, services)
	if err != nil {
		return nil, failed("read check rows", err)
	}
	return found, nil
}

// SwapCheckRows implements store.CheckRows.
//
// Inserts come before updates, each in the order of keys, so that no two calls
// wait for each other: ON CONFLICT DO NOTHING waits for the writer of the
// row, also by an update; an update never waits for an insert, which it does
// not see. A row that stays locked ends the call with Retry.
func (s *Store) SwapCheckRows(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	if len(rows) == 0 {
		return []bool{}, nil
	}
	sorted, distinct := store.SortCheckRows(rows)
	if !distinct {
		return nil, bug("a check row is swapped twice in one call")
	}
	var insert, update checkColumns
	for _, i := range sorted {
		if rows[i].Revision == 0 {
			insert.add(i, &rows[i])
		} else {
			update.add(i, &rows[i])
		}
	}
	swapped := make([]bool, len(rows))
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, failed("swap check rows", err)
	}
	defer release(conn)
	b := new(pgx.Batch)
	s.queueBegin(b)
	b.Queue(sqlCheckPatience, s.checkPatience)
	insert.queue(b, sqlInsertChecks, swapped)
	update.queue(b, sqlSwapChecks, swapped)
	queueCommit(b)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, failedCommit("swap check rows", err)
	}
	return swapped, nil
}

// checkColumns are check rows as array parameters.
type checkColumns struct {
	at                          map[store.Key]int // place in the caller's rows
	entities                    []string
	services                    []int32
	revisions                   []int64
	contents, delivered, memory [][]byte
	versions, confirmed         []int64
}

func (c *checkColumns) add(i int, r *store.CheckRow) {
	if c.at == nil {
		c.at = map[store.Key]int{}
	}
	c.at[r.Key] = i
	c.entities, c.services = append(c.entities, r.Entity), append(c.services, r.Service)
	c.revisions = append(c.revisions, r.Revision)
	c.contents, c.versions = append(c.contents, r.Content), append(c.versions, int64(r.Version))
	c.delivered, c.confirmed = append(c.delivered, r.Delivered), append(c.confirmed, int64(r.DeliveredVersion))
	c.memory = append(c.memory, r.Memory)
}

// queue queues the statement, unless there are no rows, and marks the rows that
// it wrote.
func (c *checkColumns) queue(b *pgx.Batch, sql string, swapped []bool) {
	if len(c.entities) == 0 {
		return
	}
	b.Queue(sql, c.entities, c.services, c.revisions, c.contents, c.versions, c.confirmed, c.delivered, c.memory).
		Query(func(rows pgx.Rows) error {
			var k store.Key
			_, err := pgx.ForEachRow(rows, []any{&k.Entity, &k.Service}, func() error {
				swapped[c.at[k]] = true
				return nil
			})
			return err
		})
}
