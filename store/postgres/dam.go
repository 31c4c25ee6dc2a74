package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlLookup = `
SELECT k.n, d.content, d.refused, d.version
FROM unnest($1::text[], $2::int4[]) WITH ORDINALITY AS k(entity, service, n)
JOIN dam d ON d.entity = k.entity AND d.service = k.service`

	sqlLookupLocked = sqlLookup + ` ORDER BY d.entity, d.service FOR UPDATE OF d`

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

	// A decision that holds one of these entities is about to bring it back.
	sqlPurgeEntities = `
DELETE FROM entities WHERE id = ANY(ARRAY(
  SELECT id FROM entities WHERE deleted_at < $1 ORDER BY deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING id`

	sqlPurgeRows = `DELETE FROM dam WHERE entity = ANY($1::text[])`
)

// optimistic is how many times CompareAndSwap tries without locking rows
// before it compares them.
const optimistic = 2

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// lookup reads dam rows in the order of keys, by sqlLookup or sqlLookupLocked.
func lookup(ctx context.Context, q querier, sql string, keys []store.Key) ([]store.Row, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found := make([]store.Row, len(keys))
	entities, services := make([]string, len(keys)), make([]int32, len(keys))
	for i, k := range keys {
		found[i].Key, entities[i], services[i] = k, k.Entity, k.Service
	}
	rows, err := q.Query(ctx, sql, entities, services)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var n, version int64
	for rows.Next() {
		var content []byte
		var refused bool
		if err := rows.Scan(&n, &content, &refused, &version); err != nil {
			return nil, err
		}
		r := &found[n-1]
		r.Found, r.Content, r.Refused, r.Version = true, content, refused, change.Version(version)
	}
	return found, rows.Err()
}

// Rows implements store.Deliveries.
func (s *Store) Rows(ctx context.Context, keys []store.Key) ([]store.Row, error) {
	rows, err := lookup(ctx, s.pool, sqlLookup, keys)
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

// CompareAndSwap implements store.Decisions.
//
// It reads the rows without locking them. Those that hold the content are held
// back; the read is the moment of their decision. All others are swapped from
// what was read, in one transaction; when one of them lost a race, nothing was
// written, and all that differed are read and swapped again. After two such
// losses the rows are locked while they are compared, so that it ends whatever
// the contention.
func (s *Store) CompareAndSwap(ctx context.Context, checks []store.Check) ([]bool, error) {
	passed := make([]bool, len(checks))
	open := make([]int, len(checks))
	for i := range open {
		open[i] = i
	}
	slices.SortFunc(open, func(a, b int) int { return checks[a].Key.Compare(checks[b].Key) })
	for i := 1; i < len(open); i++ {
		if checks[open[i]].Key == checks[open[i-1]].Key {
			return nil, bug("compare and swap: a key twice in one call")
		}
	}
	for attempt := 0; len(open) > 0; attempt++ {
		differ, err := s.trySwap(ctx, checks, open, attempt >= optimistic)
		switch {
		case err == nil:
			for _, i := range differ {
				passed[i] = true
			}
			return passed, nil
		case differ == nil || !lostRace(err):
			return nil, err
		}
		open = differ // the others were equal to what they were compared with
	}
	return passed, nil
}

// lostRace tells whether a swap may simply be tried again at once.
func lostRace(err error) bool {
	pg := pgError(err)
	return errors.Is(err, store.ErrFenced) || pg != nil && pg.Code == codeDeadlock
}

// trySwap compares the open checks with their rows and swaps those that
// differ. It gives these even when swapping them failed.
func (s *Store) trySwap(ctx context.Context, checks []store.Check, open []int, lock bool) (differ []int, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, failed("compare and swap", err)
	}
	defer release(conn)
	keys := make([]store.Key, len(open))
	for n, i := range open {
		keys[n] = checks[i].Key
	}
	b, sql := new(pgx.Batch), sqlLookup
	if lock {
		if _, err := conn.Exec(ctx, begin); err != nil {
			return nil, failed("compare and swap", err)
		}
		sql = sqlLookupLocked
	} else {
		b.Queue(begin)
	}
	rows, err := lookup(ctx, conn, sql, keys)
	if err != nil {
		return nil, failed("compare and swap", err)
	}
	var swaps []store.Swap
	for n, row := range rows {
		c := checks[open[n]]
		// The unknown state equals nothing, not even itself.
		if row.Found && c.Content != nil && row.Content != nil && bytes.Equal(row.Content, c.Content) {
			continue
		}
		swaps = append(swaps, store.Swap{Key: c.Key, Insert: !row.Found, Old: row.Content, OldRefused: row.Refused, New: c.Content, Version: c.Version})
		differ = append(differ, open[n])
	}
	if len(swaps) == 0 {
		return nil, nil
	}
	if err := queueSwaps(b, swaps); err != nil {
		return nil, err
	}
	queueCommit(b)
	return differ, failedCommit("compare and swap", conn.SendBatch(ctx, b).Close())
}

// PurgeEntities implements store.Decisions. A decision that has loaded one of
// these entities either holds its lock, then it is left alone, or finds its dam
// rows gone and is fenced.
func (s *Store) PurgeEntities(ctx context.Context, before time.Time, limit int) (int, error) {
	var ids []string
	err := s.inTx(ctx, "purge entities", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlPurgeEntities, before, limit)
		if err != nil {
			return err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(ids) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, sqlPurgeRows, ids)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(ids), nil
}
