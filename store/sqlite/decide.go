package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlRevision = `SELECT number FROM revisions ORDER BY number DESC LIMIT 1`

	sqlMove   = `UPDATE watermarks SET next_offset = ? WHERE generation = ? AND partition = ? AND next_offset = ? AND token = ?`
	sqlLastTo = `UPDATE watermarks SET last_to = ? WHERE generation = ? AND partition = ?`

	sqlEntity = `SELECT id, docs, fence, version, fingerprint, deleted_at FROM entities WHERE id = ?`

	sqlPutEntity = `
INSERT INTO entities (id, docs, fence, version, fingerprint, deleted_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET docs = excluded.docs, fence = excluded.fence, version = excluded.version,
       fingerprint = excluded.fingerprint, deleted_at = excluded.deleted_at`

	sqlPurgeEntity = `DELETE FROM entities WHERE id = ?`
	sqlPurgeRows   = `DELETE FROM dam WHERE entity = ?`

	sqlPutOutbox  = `INSERT INTO outbox (generation, partition, frame) VALUES (?, ?, ?)`
	sqlDropOutbox = `DELETE FROM outbox WHERE id = ? AND partition = ? AND generation <= ?`
	sqlReadOutbox = `SELECT id, generation, frame FROM outbox WHERE partition = ? AND generation <= ? ORDER BY generation, id`

	sqlNewer = `SELECT EXISTS (SELECT 1 FROM watermarks WHERE generation > ?)`

	// The owners of older generations, if there still are any, must not decide
	// anything more: a token that nobody has.
	sqlEndOlder = `UPDATE watermarks SET token = x'' WHERE generation < ?`

	sqlTakeOver = `
INSERT INTO watermarks (generation, partition, next_offset, last_to, token)
VALUES (?1, ?2, 0, coalesce((
  SELECT last_to FROM watermarks WHERE partition = ?2 AND generation < ?1 ORDER BY generation DESC LIMIT 1), 0), ?3)
ON CONFLICT (partition, generation) DO UPDATE SET token = excluded.token
RETURNING next_offset, last_to`
)

// TakeOver implements store.Decisions. It holds the file's write lock, as every
// decision does from its beginning: an earlier owner's is over or not begun.
func (s *Store) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) ([]store.TakenOver, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	taken := make([]store.TakenOver, len(partitions))
	numbers := make(map[int32]bool, len(partitions))
	var generation uint16
	for i, p := range partitions {
		generation = max(generation, p.Generation)
		if numbers[p.Number] {
			return nil, bug("take over: partition %d twice", p.Number)
		}
		taken[i].Partition, numbers[p.Number] = p, true
	}
	err := s.write(ctx, "take over", func(t tx) error {
		var newer bool
		err := t.conn.QueryRowContext(t.ctx, sqlNewer, generation).Scan(&newer)
		if err == nil && newer {
			err = store.ErrFenced
		}
		if err == nil {
			_, err = t.conn.ExecContext(t.ctx, sqlEndOlder, generation)
		}
		if err == nil {
			err = each(t.ctx, t.conn, sqlTakeOver, len(partitions), func(i int, statement *sql.Stmt) error {
				p := partitions[i]
				var last int64
				err := statement.QueryRowContext(t.ctx, p.Generation, p.Number, token[:]).Scan(&taken[i].NextOffset, &last)
				taken[i].LastTo = change.Version(last)
				return err
			})
		}
		if err == nil {
			err = each(t.ctx, t.conn, sqlReadOutbox, len(partitions), func(i int, statement *sql.Stmt) error {
				rows, err := statement.QueryContext(t.ctx, partitions[i].Number, partitions[i].Generation)
				return collect(rows, err, func() error {
					o := store.OutboxFrame{Partition: partitions[i]}
					err := rows.Scan(&o.ID, &o.Partition.Generation, &o.Frame)
					taken[i].Outbox = append(taken[i].Outbox, o)
					return err
				})
			})
		}
		return failed("take over", err)
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// collect calls scan for each row and closes rows.
func collect(rows *sql.Rows, err error, scan func() error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Decide implements store.Decisions. decide runs under the file's write lock:
// it must not call this store, except by its look-up.
func (s *Store) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded, store.Lookup) (store.Outcome, error)) (ids []int64, err error) {
	err = s.write(ctx, "decide", func(t tx) error {
		loaded, err := t.start(d)
		if err != nil {
			return failed("decide: begin", err)
		}
		out, err := decide(loaded, func(keys []store.Key) ([]store.Row, error) {
			if err := ctx.Err(); err != nil {
				return nil, failed("look up dam rows", err)
			}
			rows, err := lookup(t.ctx, t.conn, keys)
			return rows, failed("look up dam rows", err)
		})
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return failed("decide", err)
		}
		ids, err = t.finish(d, loaded, out, s.changes, s.now())
		crash.At(crash.DecideWritten, "")
		return failed("decide", err)
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// start checks revision and watermarks and loads entities and claims.
func (t tx) start(d store.Decision) (loaded store.Loaded, err error) {
	var revision int64
	if err := t.conn.QueryRowContext(t.ctx, sqlRevision).Scan(&revision); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return loaded, err
	}
	if revision != d.Revision {
		return loaded, store.ErrSuperseded
	}
	if err := t.move(d.Moves); err != nil {
		return loaded, err
	}
	entities := make([]store.Entity, len(d.Entities))
	loaded.Entities = entities
	err = each(t.ctx, t.conn, sqlEntity, len(entities), func(i int, statement *sql.Stmt) (err error) {
		if err := holdable(d.Entities[i]); err != nil {
			return err
		}
		entities[i], err = scanEntity(statement.QueryRowContext(t.ctx, d.Entities[i]))
		if errors.Is(err, sql.ErrNoRows) {
			entities[i], err = store.Entity{ID: d.Entities[i]}, nil
		}
		return err
	})
	if err == nil {
		err = t.loadDecided(d, &loaded)
	}
	return loaded, err
}

// finish writes the outcome, at now.
func (t tx) finish(d store.Decision, loaded store.Loaded, out store.Outcome, changes *Log, now time.Time) ([]int64, error) {
	for _, purge := range []string{sqlPurgeEntity, sqlPurgeRows, sqlPurgeAttempts} {
		err := each(t.ctx, t.conn, purge, len(out.Purged), func(i int, statement *sql.Stmt) error {
			_, err := t.exec(statement, out.Purged[i])
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if err := t.putEntities(out.Entities); err != nil {
		return nil, err
	}
	if err := t.swap(out.Swaps); err != nil {
		return nil, err
	}
	moved := func(p store.Partition) bool {
		return slices.ContainsFunc(d.Moves, func(m store.WatermarkStep) bool { return m.Partition == p })
	}
	ids, err := t.putFrames(changes, out.Outbox, moved, now)
	if err != nil {
		return nil, err
	}
	last := slices.Collect(maps.Keys(out.LastTo))
	err = each(t.ctx, t.conn, sqlLastTo, len(last), func(i int, statement *sql.Stmt) error {
		if !moved(last[i]) {
			return bug("decide: a frame of partition %v, whose watermark this decision does not hold", last[i])
		}
		_, err := t.exec(statement, int64(out.LastTo[last[i]]), last[i].Generation, last[i].Number)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := t.drop(d.Moves, d.Published); err != nil {
		return nil, err
	}
	if err := t.addLetters(out.Letters); err != nil {
		return nil, err
	}
	if err := t.settle(out.Settled); err != nil {
		return nil, err
	}
	if err := t.putDecided(d, out.Claims, loaded.Uses, now); err != nil {
		return nil, err
	}
	return ids, t.addAudits(out.Audit)
}

// putFrames writes the frames of a decision: to the changes log, if it is in this
// file, and else to the outbox.
func (t tx) putFrames(changes *Log, frames []store.OutboxFrame, moved func(store.Partition) bool, now time.Time) ([]int64, error) {
	for i := range frames {
		if !moved(frames[i].Partition) {
			return nil, bug("decide: a frame of partition %v, whose watermark this decision does not hold", frames[i].Partition)
		}
	}
	if changes != nil && len(frames) > 0 {
		rows := make([]LogFrame, len(frames))
		for i, o := range frames {
			rows[i] = LogFrame{Partition: o.Partition.Number, Records: 1, Body: o.Frame}
		}
		return nil, t.append(changes, rows, now)
	}
	ids := make([]int64, len(frames))
	return ids, each(t.ctx, t.conn, sqlPutOutbox, len(frames), func(i int, statement *sql.Stmt) error {
		o := &frames[i]
		result, err := statement.ExecContext(t.ctx, o.Partition.Generation, o.Partition.Number, notNil(o.Frame))
		if err != nil {
			return err
		}
		ids[i], err = result.LastInsertId()
		return err
	})
}

// Discard implements store.Decisions.
func (s *Store) Discard(ctx context.Context, moves []store.WatermarkStep, published []int64) error {
	if len(published) == 0 {
		return nil
	}
	return s.write(ctx, "discard", func(t tx) error {
		for _, m := range moves {
			if m.From != m.To {
				return bug("discard: it moves partition %v", m.Partition)
			}
		}
		if err := t.move(moves); err != nil {
			return failed("discard", err)
		}
		return failed("discard", t.drop(moves, published))
	})
}

// move is the compare-and-swap of the watermarks.
func (t tx) move(moves []store.WatermarkStep) error {
	return each(t.ctx, t.conn, sqlMove, len(moves), func(i int, statement *sql.Stmt) error {
		m := moves[i]
		n, err := t.exec(statement, m.To, m.Partition.Generation, m.Partition.Number, m.From, m.Token[:])
		if err == nil && n != 1 {
			err = store.ErrFenced
		}
		return err
	})
}

// drop deletes outbox rows of the moved partitions, of their generation or an older
// one, by their ids.
func (t tx) drop(moves []store.WatermarkStep, published []int64) error {
	return each(t.ctx, t.conn, sqlDropOutbox, len(moves)*len(published), func(i int, statement *sql.Stmt) error {
		p := moves[i%len(moves)].Partition
		_, err := t.exec(statement, published[i/len(moves)], p.Number, p.Generation)
		return err
	})
}

func (t tx) putEntities(entities []store.Entity) error {
	return each(t.ctx, t.conn, sqlPutEntity, len(entities), func(i int, statement *sql.Stmt) error {
		e := &entities[i]
		if err := holdable(e.ID); err != nil {
			return err
		}
		docs := "{}"
		if len(e.Docs) > 0 {
			if !utf8.Valid(e.Docs) || !json.Valid(e.Docs) {
				return store.WithClass(errors.New("sqlite: the documents of an entity are not JSON"), store.Poison)
			}
			docs = string(e.Docs)
		}
		var deleted *int64
		if !e.Deleted.IsZero() {
			n := micros(e.Deleted)
			deleted = &n
		}
		_, err := t.exec(statement, e.ID, docs, e.Fence, int64(e.Version), e.Fingerprint, deleted)
		return err
	})
}

// scanner is one row.
type scanner interface{ Scan(into ...any) error }

// scanEntity reads id, docs, fence, version, fingerprint, deleted_at.
func scanEntity(row scanner) (store.Entity, error) {
	e := store.Entity{Found: true}
	var version int64
	var deleted *int64
	err := row.Scan(&e.ID, &e.Docs, &e.Fence, &version, &e.Fingerprint, &deleted)
	e.Version = change.Version(version)
	if deleted != nil {
		e.Deleted = fromMicros(*deleted)
	}
	return e, err
}
