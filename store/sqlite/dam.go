package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
)

const (
	sqlEntity = `SELECT id, docs, fence, version, fingerprint, deleted_at, writes, states FROM entities WHERE id = ?`

	sqlUpdateEntity = `
UPDATE entities SET docs = ?2, fence = ?3, version = ?4, fingerprint = ?5, deleted_at = ?6, writes = ?7 + 1, states = coalesce(?8, states)
WHERE id = ?1 AND writes = ?7`

	sqlInsertEntity = `
INSERT INTO entities (id, docs, fence, version, fingerprint, deleted_at, writes, states)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7 + 1, coalesce(?8, x'')) ON CONFLICT (id) DO NOTHING`

	sqlPutPage = `
INSERT INTO dam (entity, page, states) VALUES (?, ?, ?) ON CONFLICT (entity, page) DO UPDATE SET states = excluded.states`

	sqlPurgeEntity = `DELETE FROM entities WHERE id = ?`
	sqlPurgePages  = `DELETE FROM dam WHERE entity = ?`

	sqlReadRow  = `SELECT states FROM entities WHERE id = ?`
	sqlReadPage = `SELECT states FROM dam WHERE entity = ? AND page = ?`

	// With few services there are no pages but those in the rows of entities.
	sqlAnyPages  = `SELECT EXISTS (SELECT 1 FROM dam)`
	sqlLoadPages = `SELECT page, states FROM dam WHERE entity = ?`
	sqlScanRows  = `SELECT id, states FROM entities WHERE id > ? ORDER BY id LIMIT ?`
)

// loadEntities reads entities with their dam states, in the order of ids.
func loadEntities(ctx context.Context, p *keptConn, ids []string) ([]store.Entity, error) {
	entities := make([]store.Entity, len(ids))
	err := each(ctx, p, sqlEntity, len(ids), func(i int, statement *sql.Stmt) (err error) {
		if err := shared.Holdable(ids[i]); err != nil {
			return err
		}
		entities[i], err = scanEntity(statement.QueryRowContext(ctx, ids[i]))
		if errors.Is(err, sql.ErrNoRows) {
			entities[i], err = store.Entity{ID: ids[i]}, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return entities, loadPages(ctx, p, entities)
}

// loadPages reads the pages of states that are not in the rows of entities.
func loadPages(ctx context.Context, p *keptConn, entities []store.Entity) error {
	if len(entities) == 0 {
		return nil
	}
	var pages bool
	if err := p.QueryRowContext(ctx, sqlAnyPages).Scan(&pages); err != nil || !pages {
		return err
	}
	return each(ctx, p, sqlLoadPages, len(entities), func(i int, statement *sql.Stmt) error {
		rows, err := statement.QueryContext(ctx, entities[i].ID)
		return collect(rows, err, func() error {
			var page int32
			var body []byte
			if err := rows.Scan(&page, &body); err != nil {
				return err
			}
			return entities[i].States.Add(page, body)
		})
	})
}

// States implements shared.Dam.
func (s *Store) States(ctx context.Context, after string, n int) (entities []store.Entity, err error) {
	return entities, s.read(ctx, "read dam states", func(t *keptConn) error {
		entities, err = list(ctx, t, func(row scanner) (e store.Entity, err error) {
			var states []byte
			if err = row.Scan(&e.ID, &states); err == nil {
				err = e.States.Add(0, states)
			}
			return e, err
		}, sqlScanRows, after, n)
		if err != nil {
			return err
		}
		return loadPages(ctx, t, entities)
	})
}

// Rows implements store.Deliveries.
func (s *Store) Rows(ctx context.Context, keys []store.Key) (rows []store.Row, err error) {
	of := map[string]*store.States{}
	var paged store.PageKeys
	for _, k := range keys {
		if err := shared.Holdable(k.Entity); err != nil {
			return nil, failed("read dam rows", err)
		}
		of[k.Entity] = new(store.States)
		paged.Add(k)
	}
	read := func(row *sql.Row, entity string, page int32) error {
		var body []byte
		if err := row.Scan(&body); errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		return of[entity].Add(page, body)
	}
	err = s.read(ctx, "read dam rows", func(t *keptConn) error {
		ids := slices.Collect(maps.Keys(of))
		err := each(ctx, t, sqlReadRow, len(ids), func(i int, statement *sql.Stmt) error {
			return read(statement.QueryRowContext(ctx, ids[i]), ids[i], 0)
		})
		if err != nil {
			return err
		}
		return each(ctx, t, sqlReadPage, len(paged.Entities), func(i int, statement *sql.Stmt) error {
			return read(statement.QueryRowContext(ctx, paged.Entities[i], paged.Pages[i]), paged.Entities[i], paged.Pages[i])
		})
	})
	if err != nil {
		return nil, err
	}
	return store.RowsOf(keys, of), nil
}

// sortWrites takes entities apart and refuses what PostgreSQL would refuse.
func sortWrites(entities []store.Entity) (store.Write, error) {
	for i := range entities {
		e := &entities[i]
		if err := shared.Holdable(e.ID); err != nil {
			return store.Write{}, err
		}
		if len(e.Docs) > 0 && !utf8.Valid(e.Docs) {
			return store.Write{}, store.WithClass(errors.New("sqlite: the documents of an entity are not UTF-8"), store.Poison)
		}
	}
	return store.SortWrites(entities)
}

// putEntities writes entities; one that is not there as it was found is ErrFenced.
func (t tx) putEntities(w store.Write) error {
	for _, q := range []struct {
		sql      string
		entities []*store.Entity
	}{{sqlUpdateEntity, w.Update}, {sqlInsertEntity, w.Insert}} {
		err := each(t.ctx, t.conn, q.sql, len(q.entities), func(i int, statement *sql.Stmt) error {
			e := q.entities[i]
			docs := "{}"
			if len(e.Docs) > 0 {
				docs = string(e.Docs)
			}
			var deleted *int64
			if !e.Deleted.IsZero() {
				n := e.Deleted.UnixMicro()
				deleted = &n
			}
			n, err := t.exec(statement, e.ID, docs, e.Fence, int64(e.Version), e.Fingerprint, deleted, e.Writes, e.RowPage())
			if err == nil && n != 1 {
				err = store.ErrFenced
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return each(t.ctx, t.conn, sqlPutPage, len(w.Pages), func(i int, statement *sql.Stmt) error {
		_, err := t.exec(statement, w.Pages[i].Entity, w.Pages[i].Number, w.Pages[i].Body)
		return err
	})
}

// scanEntity reads id, docs, fence, version, fingerprint, deleted_at, writes, states.
func scanEntity(row scanner) (store.Entity, error) {
	e := store.Entity{Found: true}
	var version int64
	var deleted *int64
	var states []byte
	err := row.Scan(&e.ID, &e.Docs, &e.Fence, &version, &e.Fingerprint, &deleted, &e.Writes, &states)
	e.Version = change.Version(version)
	if deleted != nil {
		e.Deleted = fromMicros(*deleted)
	}
	if err == nil {
		err = e.States.Add(0, states)
	}
	return e, err
}
