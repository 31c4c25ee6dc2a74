package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
)

const (
	importColumns = `id, tenant, source, format, options, name, fingerprint, bytes, chunks, next_chunk, rows_behind, cursor,
accepted, duplicate, invalid, conflicting, state, failure, actor, created_at, updated_at, attempt`

	// importOpen is where a worker may be needed; its index has it, too.
	importOpen = `state IN ('queued', 'running')`

	sqlCreateImport = `
INSERT INTO imports (id, tenant, source, format, options, name, actor)
VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ` + importColumns

	// The row is locked until the chunk is there, so chunks come one by one.
	sqlAddImportChunk = `
WITH i AS (
	UPDATE imports SET chunks = chunks + 1, bytes = bytes + $3, updated_at = now()
	WHERE id = $1 AND state = 'receiving' AND chunks = $2 RETURNING id)
INSERT INTO import_chunks (import, n, body) SELECT id, $2, $4 FROM i`

	sqlStoredOfTenant = `
SELECT coalesce(sum(o.bytes), 0)::bigint FROM imports i JOIN imports o ON o.tenant = i.tenant
WHERE i.id = $1 AND o.state IN ('receiving', 'queued', 'running')`

	sqlImportForUpdate = `SELECT ` + importColumns + ` FROM imports WHERE id = $1 FOR UPDATE`

	// Seals of one source come one after the other, each with a snapshot after
	// the one before: numbers are visible in their order, and of two seals of the
	// same file the second sees the first. The seed keeps the lock apart from
	// those of others.
	sqlLockSeals = `SELECT pg_advisory_xact_lock(hashtextextended($1, 86006))`

	sqlSameImport = `
SELECT ` + importColumns + ` FROM imports
WHERE tenant = $2 AND fingerprint = $3 AND source = $4 AND format = $5 AND options = $6 AND id <> $1
AND state IN ('queued', 'running', 'done')
AND coalesce(generation >= (SELECT max(generation) FROM inboxes), true) ORDER BY id LIMIT 1`

	sqlSealImport = `
UPDATE imports SET state = 'queued', fingerprint = $2, sealed = nextval('import_seals'), updated_at = now()
WHERE id = $1 RETURNING ` + importColumns

	// Of each tenant and source the one that was sealed first is looked at, and no other.
	// What was begun says when a tenant had its last turn, also when it has ended. A
	// row that another worker takes meanwhile is skipped, or no longer meets the
	// conditions, which the server checks again once it has the lock.
	sqlTakeImport = `
UPDATE imports SET state = 'running', attempt = attempt + 1,
	generation = coalesce(generation, (SELECT max(generation) FROM inboxes), 0), lease_until = clock_timestamp() + $1, updated_at = now()
WHERE id = (
	SELECT i.id FROM imports i
	WHERE i.state IN ('queued', 'running') AND (i.lease_until IS NULL OR i.lease_until <= clock_timestamp())
	AND NOT EXISTS (SELECT FROM imports o WHERE o.source = i.source AND o.tenant = i.tenant AND o.state IN ('queued', 'running') AND o.sealed < i.sealed)
	ORDER BY (SELECT max(t.updated_at) FROM imports t WHERE t.tenant = i.tenant AND t.attempt > 0) NULLS FIRST, i.updated_at, i.sealed LIMIT 1 FOR UPDATE OF i SKIP LOCKED)
RETURNING ` + importColumns

	sqlImportChunk = `SELECT body FROM import_chunks WHERE import = $1 AND n = $2`

	sqlStepImport = `
UPDATE imports SET next_chunk = $3, rows_behind = $4, cursor = $5, accepted = $6, duplicate = $7, invalid = $8, conflicting = $9,
	state = $10, failure = $11, lease_until = clock_timestamp() + $12, updated_at = now()
WHERE id = $1 AND attempt = $2 AND state = 'running' AND next_chunk <= $3`

	sqlAddImportResults = `
INSERT INTO import_results (import, last_row, tenant, body)
SELECT $1, $2, tenant, $3 FROM imports WHERE id = $1 ON CONFLICT DO NOTHING`

	sqlDropChunks  = `DELETE FROM import_chunks WHERE import = $1 AND n < $2`
	sqlDropPage    = `DELETE FROM import_chunks WHERE import = $1 AND n = ANY(ARRAY(SELECT n FROM import_chunks WHERE import = $1 ORDER BY n LIMIT $2))`
	sqlDropResults = `DELETE FROM import_results WHERE import = $1 AND last_row = ANY(ARRAY(SELECT last_row FROM import_results WHERE import = $1 ORDER BY last_row LIMIT $2))`

	sqlCancelImport = `
UPDATE imports SET state = 'cancelled', updated_at = now()
WHERE tenant = $1 AND id = $2 AND state IN ('receiving', 'queued', 'running') RETURNING ` + importColumns

	sqlImport      = `SELECT ` + importColumns + ` FROM imports WHERE tenant = $1 AND id = $2`
	sqlListImports = `
SELECT ` + importColumns + ` FROM imports
WHERE tenant = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3`

	sqlImportResults = `
SELECT body FROM import_results WHERE tenant = $1 AND import = $2 AND last_row > $3 ORDER BY last_row LIMIT $4`

	sqlDropStalled  = `DELETE FROM imports WHERE state = 'receiving' AND updated_at < $1`
	sqlEndedImports = `SELECT id FROM imports WHERE state IN ('done', 'cancelled', 'failed') AND updated_at < $1 LIMIT $2`
	sqlDropImport   = `DELETE FROM imports WHERE id = $1`
	// Few imports have chunks at a time: the next one is found by skipping.
	sqlOrphans = `
WITH RECURSIVE held AS (
	(SELECT import FROM import_chunks ORDER BY import, n LIMIT 1)
	UNION ALL
	SELECT (SELECT c.import FROM import_chunks c WHERE c.import > held.import ORDER BY c.import, c.n LIMIT 1)
	FROM held WHERE held.import IS NOT NULL)
SELECT import FROM held WHERE import IS NOT NULL
AND NOT EXISTS (SELECT FROM imports i WHERE i.id = held.import AND i.state IN ('receiving', 'queued', 'running'))`

	// Of two that are made at a time the second sees the first.
	sqlLockTenant   = `SELECT pg_advisory_xact_lock(hashtextextended($1, 86007))`
	sqlOpenOfTenant = `
SELECT count(*) FROM imports WHERE tenant = $1 AND (` + importOpen + ` OR state = 'receiving' AND updated_at > now() - $2::interval)`

	sqlOpenImports = `SELECT count(*) FROM imports WHERE ` + importOpen

	sqlAsTenant   = `SELECT set_config('weir.tenant', $1, true)`
	sqlAsPipeline = `SELECT set_config('weir.pipeline', 'on', true)`
)

// Pages bound one statement each: chunks are large, their rows have parts elsewhere.
const (
	chunkPage  = 200
	resultPage = 1000
)

// asTenant runs f in a transaction that sees the rows of one tenant.
func (s *Store) asTenant(ctx context.Context, operation, tenant string, f func(tx pgx.Tx) error) error {
	return s.inTx(ctx, operation, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlAsTenant, tenant); err != nil {
			return err
		}
		return f(tx)
	})
}

// asPipeline runs f in a transaction that sees the rows of all tenants.
func (s *Store) asPipeline(ctx context.Context, operation string, f func(tx pgx.Tx) error) error {
	return s.inTx(ctx, operation, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlAsPipeline); err != nil {
			return err
		}
		return f(tx)
	})
}

// CreateImport implements store.Imports.
func (s *Store) CreateImport(ctx context.Context, i store.Import, most int) (made store.Import, err error) {
	if i.Tenant == "" || i.Source == "" || i.Format == "" {
		return store.Import{}, bug("create import: tenant, source and format are needed")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Import{}, failed("create import", err)
	}
	err = s.asTenant(ctx, "create import", i.Tenant, func(tx pgx.Tx) (err error) {
		if most > 0 {
			if _, err := tx.Exec(ctx, sqlLockTenant, i.Tenant); err != nil {
				return err
			}
			var open int
			if err := tx.QueryRow(ctx, sqlOpenOfTenant, i.Tenant, store.StalledAfter).Scan(&open); err != nil {
				return err
			}
			if open >= most {
				return store.ErrTooMany
			}
		}
		made, err = scanImport(tx.QueryRow(ctx, sqlCreateImport, [16]byte(id), i.Tenant, i.Source, i.Format, objectOr(i.Options), store.SanitizeText(i.Name), store.SanitizeText(i.Actor)))
		return err
	})
	return made, err
}

// AddImportChunk implements store.Imports.
func (s *Store) AddImportChunk(ctx context.Context, id store.ClaimID, n, size int64, chunk []byte, most int64) error {
	body := store.Pack(chunk)
	return s.asPipeline(ctx, "add chunk of an import", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlAddImportChunk, [16]byte(id), n, size, body)
		if err != nil {
			return err
		}
		if tag.RowsAffected() > 0 {
			if most <= 0 {
				return nil
			}
			var stored int64
			if err := tx.QueryRow(ctx, sqlStoredOfTenant, [16]byte(id)).Scan(&stored); err != nil {
				return err
			}
			if stored > most {
				return store.ErrTooMany
			}
			return nil
		}
		i, err := scanImport(tx.QueryRow(ctx, sqlImportForUpdate, [16]byte(id)))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if i.State != store.ImportReceiving || n >= i.Chunks {
			return store.ErrFenced
		}
		return nil
	})
}

// SealImport implements store.Imports.
func (s *Store) SealImport(ctx context.Context, wanted store.Import, fingerprint []byte) (sealed store.Import, err error) {
	if len(fingerprint) == 0 {
		return store.Import{}, bug("seal import: no fingerprint")
	}
	id, removed := wanted.ID, false
	same := func(tx pgx.Tx, i store.Import) (store.Import, error) {
		return scanImport(tx.QueryRow(ctx, sqlSameImport, [16]byte(id), i.Tenant, fingerprint, i.Source, i.Format, string(i.Options)))
	}
	err = s.asPipeline(ctx, "seal import", func(tx pgx.Tx) error {
		i, err := scanImport(tx.QueryRow(ctx, sqlImportForUpdate, [16]byte(id)))
		if errors.Is(err, pgx.ErrNoRows) { // removed, perhaps by a call that was not told so
			if sealed, err = same(tx, wanted); errors.Is(err, pgx.ErrNoRows) {
				return store.ErrFenced
			}
			removed = true
			return err
		} else if err != nil {
			return err
		}
		if i.State != store.ImportReceiving {
			sealed = i
			return store.SealedAlready(i, fingerprint)
		}
		if _, err := tx.Exec(ctx, sqlLockSeals, i.Source); err != nil {
			return err
		}
		sealed, err = same(tx, i)
		if removed = err == nil; removed {
			_, err = tx.Exec(ctx, sqlDropImport, [16]byte(id))
			return err
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		sealed, err = scanImport(tx.QueryRow(ctx, sqlSealImport, [16]byte(id), fingerprint))
		return err
	})
	if err == nil && removed {
		err = s.dropAll(ctx, "seal import", sqlDropPage, chunkPage, id)
	}
	if err != nil {
		return store.Import{}, err
	}
	return sealed, nil
}

// TakeImport implements store.Imports.
func (s *Store) TakeImport(ctx context.Context, lease time.Duration) (taken store.Import, err error) {
	err = s.asPipeline(ctx, "take import", func(tx pgx.Tx) (err error) {
		taken, err = scanImport(tx.QueryRow(ctx, sqlTakeImport, lease))
		return err
	})
	return taken, err
}

// ImportChunk implements store.Imports.
func (s *Store) ImportChunk(ctx context.Context, id store.ClaimID, n int64) ([]byte, error) {
	var body []byte
	err := s.asPipeline(ctx, "read chunk of an import", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlImportChunk, [16]byte(id), n).Scan(&body)
	})
	if err != nil {
		return nil, err
	}
	chunk, err := store.Unpack(body)
	return chunk, failed("read chunk of an import", err)
}

// StepImport implements store.Imports.
func (s *Store) StepImport(ctx context.Context, x store.ImportStep) error {
	var results []byte
	if len(x.Rows) > 0 {
		var err error
		if results, err = store.PackImportRows(x.Rows); err != nil {
			return failed("step of an import", err)
		}
	}
	err := s.asPipeline(ctx, "step of an import", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlStepImport, [16]byte(x.ID), x.Attempt, x.Next, x.Row, x.Cursor,
			x.Counts.Accepted, x.Counts.Duplicate, x.Counts.Invalid, x.Counts.Conflicting,
			string(x.State), store.SanitizeText(x.Failure), x.Lease)
		if err == nil && tag.RowsAffected() == 0 {
			err = store.ErrFenced
		}
		if err == nil && results != nil {
			_, err = tx.Exec(ctx, sqlAddImportResults, [16]byte(x.ID), x.Rows[len(x.Rows)-1].Row, results)
		}
		if err == nil {
			_, err = tx.Exec(ctx, sqlDropChunks, [16]byte(x.ID), x.Next)
		}
		return err
	})
	if err == nil && x.State != store.ImportRunning {
		err = s.dropAll(ctx, "step of an import", sqlDropPage, chunkPage, x.ID)
	}
	return err
}

// CancelImport implements store.Imports.
func (s *Store) CancelImport(ctx context.Context, tenant string, id store.ClaimID) (i store.Import, err error) {
	err = s.asTenant(ctx, "cancel import", tenant, func(tx pgx.Tx) (err error) {
		i, err = scanImport(tx.QueryRow(ctx, sqlCancelImport, tenant, [16]byte(id)))
		if errors.Is(err, pgx.ErrNoRows) {
			i, err = scanImport(tx.QueryRow(ctx, sqlImport, tenant, [16]byte(id)))
		}
		return err
	})
	if err == nil && i.State == store.ImportCancelled {
		err = s.dropAll(ctx, "cancel import", sqlDropPage, chunkPage, id)
	}
	if err != nil {
		return store.Import{}, err
	}
	return i, nil
}

// Import implements store.Imports.
func (s *Store) Import(ctx context.Context, tenant string, id store.ClaimID) (i store.Import, err error) {
	err = s.asTenant(ctx, "read import", tenant, func(tx pgx.Tx) (err error) {
		i, err = scanImport(tx.QueryRow(ctx, sqlImport, tenant, [16]byte(id)))
		return err
	})
	return i, err
}

// ListImports implements store.Imports.
func (s *Store) ListImports(ctx context.Context, tenant string, before store.ClaimID, limit int) (all []store.Import, err error) {
	var from *[16]byte
	if before != (store.ClaimID{}) {
		from = (*[16]byte)(&before)
	}
	err = s.asTenant(ctx, "list imports", tenant, func(tx pgx.Tx) error {
		all, err = list(ctx, tx, scanImport, sqlListImports, tenant, from, max(limit, 0))
		return err
	})
	return all, err
}

// ImportRows implements store.Imports.
func (s *Store) ImportRows(ctx context.Context, tenant string, id store.ClaimID, after int64, limit int) (page []store.ImportRow, err error) {
	err = s.asTenant(ctx, "read results of an import", tenant, func(tx pgx.Tx) error {
		for next := after; len(page) < limit; {
			before := len(page)
			var body []byte
			err := tx.QueryRow(ctx, sqlImportResults, tenant, [16]byte(id), next, 1).Scan(&body)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err == nil {
				page, err = store.AppendImportRows(page, body, next)
			}
			if err != nil || len(page) == before {
				return err
			}
			next = page[len(page)-1].Row
		}
		return nil
	})
	return page[:min(len(page), max(limit, 0))], err
}

// PruneImports implements store.Imports.
func (s *Store) PruneImports(ctx context.Context, ended, stalled time.Time) (n int, err error) {
	const operation = "prune imports"
	err = s.asPipeline(ctx, operation, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlDropStalled, stalled)
		n = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, err
	}
	for {
		over, err := s.importIDs(ctx, operation, sqlEndedImports, ended, prunePage)
		if err != nil {
			return n, err
		}
		for _, id := range over {
			if err := s.dropAll(ctx, operation, sqlDropResults, resultPage, id); err != nil {
				return n, err
			}
			err := s.asPipeline(ctx, operation, func(tx pgx.Tx) error {
				tag, err := tx.Exec(ctx, sqlDropImport, [16]byte(id))
				n += int(tag.RowsAffected())
				return err
			})
			if err != nil {
				return n, err
			}
		}
		if len(over) < prunePage {
			break
		}
	}
	orphans, err := s.importIDs(ctx, operation, sqlOrphans)
	for _, id := range orphans {
		if err := s.dropAll(ctx, operation, sqlDropPage, chunkPage, id); err != nil {
			return n, err
		}
	}
	return n, err
}

// OpenImports implements store.Imports.
func (s *Store) OpenImports(ctx context.Context) (n int64, err error) {
	err = s.asPipeline(ctx, "count imports", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlOpenImports).Scan(&n)
	})
	return n, err
}

func (s *Store) importIDs(ctx context.Context, operation, query string, args ...any) (ids []store.ClaimID, err error) {
	err = s.asPipeline(ctx, operation, func(tx pgx.Tx) error {
		ids, err = list(ctx, tx, func(row pgx.Row) (id store.ClaimID, err error) {
			err = row.Scan((*[16]byte)(&id))
			return id, err
		}, query, args...)
		return err
	})
	return ids, err
}

// dropAll deletes what an import has, page by page.
func (s *Store) dropAll(ctx context.Context, operation, statement string, page int, id store.ClaimID) error {
	for {
		var n int64
		err := s.asPipeline(ctx, operation, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, statement, [16]byte(id), page)
			n = tag.RowsAffected()
			return err
		})
		if err != nil || n < int64(page) {
			return err
		}
	}
}

func scanImport(row pgx.Row) (store.Import, error) {
	var i store.Import
	err := row.Scan((*[16]byte)(&i.ID), &i.Tenant, &i.Source, &i.Format, &i.Options, &i.Name, &i.Fingerprint, &i.Bytes, &i.Chunks, &i.Next, &i.Row, &i.Cursor,
		&i.Counts.Accepted, &i.Counts.Duplicate, &i.Counts.Invalid, &i.Counts.Conflicting, &i.State, &i.Failure, &i.Actor, &i.Created, &i.Updated, &i.Attempt)
	return i, err
}

// prunePage bounds one statement of the pruning of imports.
const prunePage = 10_000

// objectOr returns a JSON object as text, the empty one for nil.
func objectOr(b []byte) string {
	if len(b) == 0 {
		return "{}"
	}
	return string(b)
}
