package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/seed-86dfc502/weir/store"
)

const (
	importColumns = `id, tenant, source, format, options, name, fingerprint, bytes, chunks, next_chunk, rows_behind, cursor,
accepted, duplicate, invalid, conflicting, state, failure, actor, created_at, updated_at, attempt`

	sqlCreateImport = `
INSERT INTO imports (id, tenant, source, format, options, name, actor, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) RETURNING ` + importColumns

	sqlCountChunk = `
UPDATE imports SET chunks = chunks + 1, bytes = bytes + ?3, updated_at = ?4
WHERE id = ?1 AND state = 'receiving' AND chunks = ?2`
	sqlStoredOfTenant = `
SELECT coalesce(sum(o.bytes), 0) FROM imports i JOIN imports o ON o.tenant = i.tenant
WHERE i.id = ?1 AND o.state IN ('receiving', 'queued', 'running')`
	sqlAddChunk = `INSERT INTO import_chunks (import, n, body) VALUES (?1, ?2, ?3)`

	sqlImportByID = `SELECT ` + importColumns + ` FROM imports WHERE id = ?1`

	sqlSameImport = `
SELECT ` + importColumns + ` FROM imports
WHERE tenant = ?2 AND fingerprint = ?3 AND source = ?4 AND format = ?5 AND options = ?6 AND id <> ?1
AND state IN ('queued', 'running', 'done')
AND coalesce(generation >= (SELECT max(generation) FROM inboxes), true) ORDER BY id LIMIT 1`

	sqlSealImport = `
UPDATE imports SET state = 'queued', fingerprint = ?2, updated_at = ?3,
	sealed = (SELECT coalesce(max(sealed), 0) + 1 FROM imports WHERE sealed IS NOT NULL)
WHERE id = ?1 RETURNING ` + importColumns

	// Of each tenant and source the one that was sealed first is looked at, and no other.
	// What was begun says when a tenant had its last turn, also when it has ended.
	sqlTakeImport = `
UPDATE imports SET state = 'running', attempt = attempt + 1,
	generation = coalesce(generation, (SELECT max(generation) FROM inboxes), 0), lease_until = ?2, updated_at = ?1
WHERE id = (
	SELECT i.id FROM imports i
	WHERE i.state IN ('queued', 'running') AND (i.lease_until IS NULL OR i.lease_until <= ?1)
	AND NOT EXISTS (SELECT 1 FROM imports o WHERE o.source = i.source AND o.tenant = i.tenant AND o.state IN ('queued', 'running') AND o.sealed < i.sealed)
	ORDER BY (SELECT max(t.updated_at) FROM imports t WHERE t.tenant = i.tenant AND t.attempt > 0) NULLS FIRST, i.updated_at, i.sealed LIMIT 1)
RETURNING ` + importColumns

	sqlImportChunk = `SELECT body FROM import_chunks WHERE import = ?1 AND n = ?2`

	sqlStepImport = `
UPDATE imports SET next_chunk = ?3, rows_behind = ?4, cursor = ?5, accepted = ?6, duplicate = ?7, invalid = ?8, conflicting = ?9,
	state = ?10, failure = ?11, lease_until = ?12, updated_at = ?13
WHERE id = ?1 AND attempt = ?2 AND state = 'running' AND next_chunk <= ?3`

	sqlAddImportResults = `INSERT INTO import_results (import, last_row, body) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`

	sqlDropChunks  = `DELETE FROM import_chunks WHERE import = ?1 AND n < ?2`
	sqlDropPage    = `DELETE FROM import_chunks WHERE import = ?1 AND n IN (SELECT n FROM import_chunks WHERE import = ?1 ORDER BY n LIMIT ?2)`
	sqlDropResults = `DELETE FROM import_results WHERE import = ?1 AND last_row IN (SELECT last_row FROM import_results WHERE import = ?1 ORDER BY last_row LIMIT ?2)`

	sqlCancelImport = `
UPDATE imports SET state = 'cancelled', updated_at = ?3
WHERE tenant = ?1 AND id = ?2 AND state IN ('receiving', 'queued', 'running')`

	sqlImport      = `SELECT ` + importColumns + ` FROM imports WHERE tenant = ?1 AND id = ?2`
	sqlListImports = `
SELECT ` + importColumns + ` FROM imports
WHERE tenant = ?1 AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3`

	sqlImportResults = `
SELECT r.body FROM import_results r JOIN imports i ON i.id = r.import
WHERE i.tenant = ?1 AND r.import = ?2 AND r.last_row > ?3 ORDER BY r.last_row LIMIT 1`

	sqlDropStalled  = `DELETE FROM imports WHERE state = 'receiving' AND updated_at < ?1`
	sqlEndedImports = `SELECT id FROM imports WHERE state IN ('done', 'cancelled', 'failed') AND updated_at < ?1 LIMIT ?2`
	sqlDropImport   = `DELETE FROM imports WHERE id = ?1`
	// Few imports have chunks at a time: the next one is found by skipping.
	sqlOrphans = `
WITH RECURSIVE held (import) AS (
	SELECT (SELECT min(import) FROM import_chunks)
	UNION ALL
	SELECT (SELECT min(c.import) FROM import_chunks c WHERE c.import > held.import) FROM held WHERE held.import IS NOT NULL)
SELECT import FROM held WHERE import IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM imports i WHERE i.id = held.import AND i.state IN ('receiving', 'queued', 'running'))`

	sqlOpenOfTenant = `
SELECT count(*) FROM imports WHERE tenant = ?1 AND (state IN ('queued', 'running') OR state = 'receiving' AND updated_at > ?2)`

	sqlOpenImports = `SELECT count(*) FROM imports WHERE state IN ('queued', 'running')`
)

// Pages bound one transaction each, so that decisions never wait long for it.
const (
	chunkPage  = 20
	resultPage = 200
)

// CreateImport implements store.Imports.
func (s *Store) CreateImport(ctx context.Context, i store.Import, most int) (store.Import, error) {
	const operation = "create import"
	if i.Tenant == "" || i.Source == "" || i.Format == "" {
		return store.Import{}, bug("create import: tenant, source and format are needed")
	}
	options, err := object(i.Options)
	if err != nil {
		return store.Import{}, failed(operation, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Import{}, failed(operation, err)
	}
	return s.writeImport(ctx, operation, func(t tx) (store.Import, error) {
		if most > 0 {
			var open int
			err := t.conn.QueryRowContext(t.ctx, sqlOpenOfTenant, i.Tenant, micros(time.Now().Add(-store.StalledAfter))).Scan(&open)
			if err != nil {
				return store.Import{}, err
			}
			if open >= most {
				return store.Import{}, store.ErrTooMany
			}
		}
		return t.oneImport(sqlCreateImport, id[:], i.Tenant, i.Source, i.Format, options, store.SanitizeText(i.Name), store.SanitizeText(i.Actor), micros(time.Now()))
	})
}

// AddImportChunk implements store.Imports.
func (s *Store) AddImportChunk(ctx context.Context, id store.ClaimID, n, size int64, chunk []byte, most int64) error {
	body := store.Pack(chunk)
	return s.write(ctx, "add chunk of an import", func(t tx) error {
		counted, err := t.once(sqlCountChunk, id[:], n, size, micros(time.Now()))
		if err != nil {
			return err
		}
		if counted > 0 {
			var stored int64
			if most > 0 {
				if err := t.conn.QueryRowContext(t.ctx, sqlStoredOfTenant, id[:]).Scan(&stored); err != nil {
					return err
				}
				if stored > most {
					return store.ErrTooMany
				}
			}
			_, err = t.once(sqlAddChunk, id[:], n, body)
			return err
		}
		i, err := t.oneImport(sqlImportByID, id[:])
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if i.State != store.ImportReceiving || n >= i.Chunks {
			return store.ErrFenced
		}
		return nil
	})
}

// SealImport implements store.Imports.
func (s *Store) SealImport(ctx context.Context, wanted store.Import, fingerprint []byte) (store.Import, error) {
	const operation = "seal import"
	if len(fingerprint) == 0 {
		return store.Import{}, bug("seal import: no fingerprint")
	}
	id, removed := wanted.ID, false
	sealed, err := s.writeImport(ctx, operation, func(t tx) (store.Import, error) {
		same := func(i store.Import) (store.Import, error) {
			return t.oneImport(sqlSameImport, id[:], i.Tenant, fingerprint, i.Source, i.Format, string(i.Options))
		}
		i, err := t.oneImport(sqlImportByID, id[:])
		if errors.Is(err, sql.ErrNoRows) { // removed, perhaps by a call that was not told so
			i, err = same(wanted)
			if removed = err == nil; errors.Is(err, sql.ErrNoRows) {
				err = store.ErrFenced
			}
			return i, err
		} else if err != nil {
			return i, err
		}
		if i.State != store.ImportReceiving {
			return i, store.SealedAlready(i, fingerprint)
		}
		first, err := same(i)
		if removed = err == nil; removed {
			_, err = t.once(sqlDropImport, id[:])
			return first, err
		} else if !errors.Is(err, sql.ErrNoRows) {
			return i, err
		}
		return t.oneImport(sqlSealImport, id[:], fingerprint, micros(time.Now()))
	})
	if err == nil && removed {
		err = s.dropAll(ctx, operation, sqlDropPage, chunkPage, id)
	}
	if err != nil {
		return store.Import{}, err
	}
	return sealed, nil
}

// TakeImport implements store.Imports.
func (s *Store) TakeImport(ctx context.Context, lease time.Duration) (store.Import, error) {
	const operation = "take import"
	// Workers ask all the time: without work they do not take the file's lock.
	if n, err := s.OpenImports(ctx); err != nil {
		return store.Import{}, err
	} else if n == 0 {
		return store.Import{}, store.ErrNotFound
	}
	return s.writeImport(ctx, operation, func(t tx) (store.Import, error) {
		now := time.Now()
		return t.oneImport(sqlTakeImport, micros(now), micros(now.Add(lease)))
	})
}

// ImportChunk implements store.Imports.
func (s *Store) ImportChunk(ctx context.Context, id store.ClaimID, n int64) ([]byte, error) {
	var body []byte
	if err := s.readers.QueryRowContext(ctx, sqlImportChunk, id[:], n).Scan(&body); err != nil {
		return nil, failed("read chunk of an import", err)
	}
	chunk, err := store.Unpack(body)
	return chunk, failed("read chunk of an import", err)
}

// StepImport implements store.Imports.
func (s *Store) StepImport(ctx context.Context, x store.ImportStep) error {
	const operation = "step of an import"
	var results []byte
	if len(x.Rows) > 0 {
		var err error
		if results, err = store.PackImportRows(x.Rows); err != nil {
			return failed(operation, err)
		}
	}
	err := s.write(ctx, operation, func(t tx) error {
		now := time.Now()
		n, err := t.once(sqlStepImport, x.ID[:], x.Attempt, x.Next, x.Row, x.Cursor,
			x.Counts.Accepted, x.Counts.Duplicate, x.Counts.Invalid, x.Counts.Conflicting,
			string(x.State), store.SanitizeText(x.Failure), micros(now.Add(x.Lease)), micros(now))
		if err == nil && n == 0 {
			err = store.ErrFenced
		}
		if err == nil && results != nil {
			_, err = t.once(sqlAddImportResults, x.ID[:], x.Rows[len(x.Rows)-1].Row, results)
		}
		if err == nil {
			_, err = t.once(sqlDropChunks, x.ID[:], x.Next)
		}
		return err
	})
	if err == nil && x.State != store.ImportRunning {
		err = s.dropAll(ctx, operation, sqlDropPage, chunkPage, x.ID)
	}
	return err
}

// CancelImport implements store.Imports.
func (s *Store) CancelImport(ctx context.Context, tenant string, id store.ClaimID) (store.Import, error) {
	const operation = "cancel import"
	i, err := s.writeImport(ctx, operation, func(t tx) (store.Import, error) {
		if _, err := t.once(sqlCancelImport, tenant, id[:], micros(time.Now())); err != nil {
			return store.Import{}, err
		}
		return t.oneImport(sqlImport, tenant, id[:])
	})
	if err == nil && i.State == store.ImportCancelled {
		err = s.dropAll(ctx, operation, sqlDropPage, chunkPage, id)
	}
	if err != nil {
		return store.Import{}, err
	}
	return i, nil
}

// Import implements store.Imports.
func (s *Store) Import(ctx context.Context, tenant string, id store.ClaimID) (store.Import, error) {
	i, err := scanImport(s.readers.QueryRowContext(ctx, sqlImport, tenant, id[:]))
	if err != nil {
		return store.Import{}, failed("read import", err)
	}
	return i, nil
}

// ListImports implements store.Imports.
func (s *Store) ListImports(ctx context.Context, tenant string, before store.ClaimID, limit int) ([]store.Import, error) {
	var from []byte
	if before != (store.ClaimID{}) {
		from = before[:]
	}
	all, err := list(ctx, s.readers, scanImport, sqlListImports, tenant, from, max(limit, 0))
	return all, failed("list imports", err)
}

// ImportRows implements store.Imports.
func (s *Store) ImportRows(ctx context.Context, tenant string, id store.ClaimID, after int64, limit int) (page []store.ImportRow, err error) {
	const operation = "read results of an import"
	for next := after; len(page) < limit; {
		before := len(page)
		var body []byte
		err := s.readers.QueryRowContext(ctx, sqlImportResults, tenant, id[:], next).Scan(&body)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err == nil {
			page, err = store.AppendImportRows(page, body, next)
		}
		if err != nil {
			return nil, failed(operation, err)
		}
		if len(page) == before {
			break
		}
		next = page[len(page)-1].Row
	}
	return page[:min(len(page), max(limit, 0))], nil
}

// PruneImports implements store.Imports.
func (s *Store) PruneImports(ctx context.Context, ended, stalled time.Time) (n int, err error) {
	const operation = "prune imports"
	err = s.write(ctx, operation, func(t tx) error {
		gone, err := t.once(sqlDropStalled, micros(stalled))
		n = int(gone)
		return err
	})
	if err != nil {
		return 0, err
	}
	for {
		over, err := s.importIDs(ctx, operation, sqlEndedImports, micros(ended), prunePage)
		if err != nil {
			return n, err
		}
		for _, id := range over {
			if err := s.dropAll(ctx, operation, sqlDropResults, resultPage, id); err != nil {
				return n, err
			}
			err := s.write(ctx, operation, func(t tx) error {
				gone, err := t.once(sqlDropImport, id[:])
				n += int(gone)
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
	err = s.readers.QueryRowContext(ctx, sqlOpenImports).Scan(&n)
	return n, failed("count imports", err)
}

func (s *Store) importIDs(ctx context.Context, operation, query string, args ...any) ([]store.ClaimID, error) {
	ids, err := list(ctx, s.readers, func(row scanner) (store.ClaimID, error) {
		id, err := scanValue[[]byte](row)
		if err != nil {
			return store.ClaimID{}, err
		}
		return store.ClaimID(id), nil
	}, query, args...)
	return ids, failed(operation, err)
}

// dropAll deletes what an import has, page by page.
func (s *Store) dropAll(ctx context.Context, operation, statement string, page int, id store.ClaimID) error {
	for {
		var n int64
		err := s.write(ctx, operation, func(t tx) (err error) {
			n, err = t.once(statement, id[:], page)
			return err
		})
		if err != nil || n < int64(page) {
			return err
		}
	}
}

// writeImport runs f, which returns one import, in a transaction.
func (s *Store) writeImport(ctx context.Context, operation string, f func(t tx) (store.Import, error)) (i store.Import, err error) {
	err = s.write(ctx, operation, func(t tx) (err error) {
		i, err = f(t)
		return err
	})
	if err != nil {
		return store.Import{}, err
	}
	return i, nil
}

// oneImport runs a statement that returns one import.
func (t tx) oneImport(query string, args ...any) (store.Import, error) {
	return scanImport(t.conn.QueryRowContext(t.ctx, query, args...))
}

func scanImport(row scanner) (store.Import, error) {
	var i store.Import
	var id []byte
	var created, updated int64
	err := row.Scan(&id, &i.Tenant, &i.Source, &i.Format, &i.Options, &i.Name, &i.Fingerprint, &i.Bytes, &i.Chunks, &i.Next, &i.Row, &i.Cursor,
		&i.Counts.Accepted, &i.Counts.Duplicate, &i.Counts.Invalid, &i.Counts.Conflicting, &i.State, &i.Failure, &i.Actor, &created, &updated, &i.Attempt)
	copy(i.ID[:], id)
	i.Created, i.Updated = fromMicros(created), fromMicros(updated)
	return i, err
}

// prunePage bounds one transaction of the pruning of imports.
const prunePage = 2000

// object returns a JSON object as text, the empty one for nothing.
func object(b []byte) (string, error) {
	switch {
	case len(b) == 0:
		return "{}", nil
	case !json.Valid(b):
		return "", store.WithClass(errors.New("not JSON"), store.Poison)
	}
	return string(b), nil
}
