package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlLoad = `
SELECT e.id, e.docs, e.fence, e.version, e.fingerprint, e.deleted_at, e.writes, e.states
FROM unnest($1::text[]) AS k(id) JOIN entities e ON e.id = k.id`

	sqlLoadPages = `
SELECT d.entity, d.page, d.states
FROM unnest($1::text[]) AS k(id) JOIN dam d ON d.entity = k.id`

	// The guard is checked again on the newest version of a row that another
	// transaction was just writing, so it is a true compare-and-swap.
	sqlUpdateEntities = `
WITH done AS (
  UPDATE entities e SET docs = w.docs, fence = w.fence, version = w.version, fingerprint = w.fingerprint,
         deleted_at = w.deleted_at, writes = w.writes + 1, states = coalesce(w.states, e.states)
  FROM unnest($1::text[], $2::text[], $3::bytea[], $4::int8[], $5::bytea[], $6::timestamptz[], $7::int8[], $8::bytea[])
    AS w(id, docs, fence, version, fingerprint, deleted_at, writes, states)
  WHERE e.id = w.id AND e.writes = w.writes
  RETURNING 1)
SELECT weir_expect((SELECT count(*) FROM done), $9::int8)`

	sqlInsertEntities = `
WITH done AS (
  INSERT INTO entities (id, docs, fence, version, fingerprint, deleted_at, writes, states)
  SELECT id, docs, fence, version, fingerprint, deleted_at, writes + 1, coalesce(states, '')
  FROM unnest($1::text[], $2::text[], $3::bytea[], $4::int8[], $5::bytea[], $6::timestamptz[], $7::int8[], $8::bytea[])
    AS w(id, docs, fence, version, fingerprint, deleted_at, writes, states)
  ON CONFLICT (id) DO NOTHING
  RETURNING 1)
SELECT weir_expect((SELECT count(*) FROM done), $9::int8)`

	// Their entities were compared and are locked.
	sqlPutPages = `
INSERT INTO dam (entity, page, states)
SELECT entity, page, states FROM unnest($1::text[], $2::int4[], $3::bytea[]) AS p(entity, page, states)
ON CONFLICT (entity, page) DO UPDATE SET states = excluded.states`

	sqlPurgeEntities = `DELETE FROM entities WHERE id = ANY($1::text[])`

	sqlPurgePages = `DELETE FROM dam WHERE entity = ANY($1::text[])`

	// Both are one statement, and so one snapshot.
	sqlPageEntities = `
SELECT e.*, d.numbers, d.bodies FROM (
  SELECT id, docs, fence, version, fingerprint, deleted_at, writes, states FROM entities WHERE id > $1 ORDER BY id LIMIT $2) AS e` + pagesOfEach
	sqlPageStates = `
SELECT e.*, d.numbers, d.bodies FROM (SELECT id, states FROM entities WHERE id > $1 ORDER BY id LIMIT $2) AS e` + pagesOfEach

	pagesOfEach = `
CROSS JOIN LATERAL (SELECT array_agg(page) AS numbers, array_agg(states) AS bodies FROM dam WHERE entity = e.id) AS d ORDER BY e.id`

	sqlReadRows = `
SELECT e.id, 0, e.states FROM unnest($1::text[]) AS k(id) JOIN entities e ON e.id = k.id`

	sqlReadPages = `
SELECT d.entity, d.page, d.states
FROM unnest($1::text[], $2::int4[]) AS k(entity, page) JOIN dam d ON d.entity = k.entity AND d.page = k.page`
)

// Rows implements store.Deliveries.
func (s *Store) Rows(ctx context.Context, keys []store.Key) ([]store.Row, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	of := map[string]*store.States{}
	var paged store.PageKeys
	for _, k := range keys {
		of[k.Entity] = new(store.States)
		paged.Add(k)
	}
	b := new(pgx.Batch)
	b.Queue(sqlReadRows, slices.Sorted(maps.Keys(of))).Query(func(rows pgx.Rows) error { return addPages(rows, of) })
	if len(paged.Entities) > 0 {
		b.Queue(sqlReadPages, paged.Entities, paged.Pages).Query(func(rows pgx.Rows) error { return addPages(rows, of) })
	}
	if err := s.sendBatch(ctx, b); err != nil {
		return nil, failed("read dam rows", err)
	}
	return store.RowsOf(keys, of), nil
}

// addPages reads entity, page, states. to has an entry for every requested entity.
func addPages(rows pgx.Rows, to map[string]*store.States) error {
	var entity string
	var page int32
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&entity, &page, &body); err != nil {
			return err
		}
		if err := to[entity].Add(page, body); err != nil {
			return err
		}
	}
	return rows.Err()
}

// States implements shared.Dam.
func (s *Store) States(ctx context.Context, after string, n int) ([]store.Entity, error) {
	entities, err := s.page(ctx, sqlPageStates, after, n, func(row pgx.Row, pages ...any) (e store.Entity, err error) {
		var states []byte
		if err = row.Scan(append([]any{&e.ID, &states}, pages...)...); err == nil {
			err = e.States.Add(0, states)
		}
		return e, err
	})
	return entities, failed("read dam states", err)
}

// page reads up to n entities with all their states. scan leaves the pages that are
// not in the row to places that it is given.
func (s *Store) page(ctx context.Context, sql, after string, n int, scan func(row pgx.Row, pages ...any) (store.Entity, error)) ([]store.Entity, error) {
	return list(ctx, s.pool, func(row pgx.Row) (store.Entity, error) {
		var numbers []int32
		var bodies [][]byte
		e, err := scan(row, &numbers, &bodies)
		for i := range numbers {
			err = errors.Join(err, e.States.Add(numbers[i], bodies[i]))
		}
		return e, err
	}, sql, after, n)
}

func statesOf(entities []store.Entity) map[string]*store.States {
	states := make(map[string]*store.States, len(entities))
	for i := range entities {
		states[entities[i].ID] = &entities[i].States
	}
	return states
}

// queueLoad queues the loading of entities, which have their ids, with their states.
func queueLoad(b *pgx.Batch, ids []string, entities []store.Entity) {
	place := make(map[string]*store.Entity, len(entities))
	for i := range entities {
		place[entities[i].ID] = &entities[i]
	}
	b.Queue(sqlLoad, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			e, err := scanEntity(rows)
			if err != nil {
				return err
			}
			*place[e.ID] = e
		}
		return rows.Err()
	})
	b.Queue(sqlLoadPages, ids).Query(func(rows pgx.Rows) error { return addPages(rows, statesOf(entities)) })
}

// queueEntities queues the writes of entities. An entity that changed since it was read ends the
// transaction with ErrFenced.
func queueEntities(b *pgx.Batch, entities []store.Entity) error {
	w, err := store.SortWrites(entities)
	if err != nil {
		return failed("decide", err)
	}
	for _, q := range []struct {
		sql      string
		entities []*store.Entity
	}{{sqlUpdateEntities, w.Update}, {sqlInsertEntities, w.Insert}} {
		n := len(q.entities)
		if n == 0 {
			continue
		}
		ids, docs, fences, fingerprints := make([]string, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
		versions, deleted, writes, states := make([]int64, n), make([]any, n), make([]int64, n), make([][]byte, n)
		for i, e := range q.entities {
			ids[i], docs[i], fences[i], fingerprints[i] = e.ID, e.Docs, e.Fence, e.Fingerprint
			versions[i], writes[i], states[i] = int64(e.Version), e.Writes, e.RowPage()
			if len(e.Docs) == 0 {
				docs[i] = []byte("{}")
			}
			if !e.Deleted.IsZero() {
				deleted[i] = e.Deleted
			}
		}
		b.Queue(q.sql, ids, docs, fences, versions, fingerprints, deleted, writes, states, int64(n))
	}
	if n := len(w.Pages); n > 0 {
		of, numbers, bodies := make([]string, n), make([]int32, n), make([][]byte, n)
		for i, p := range w.Pages {
			of[i], numbers[i], bodies[i] = p.Entity, p.Number, p.Body
		}
		b.Queue(sqlPutPages, of, numbers, bodies)
	}
	return nil
}
