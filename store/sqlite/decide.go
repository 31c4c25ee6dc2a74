package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
)

const (
	sqlRevision = `SELECT number FROM revisions ORDER BY number DESC LIMIT 1`

	sqlHolds  = `SELECT EXISTS (SELECT 1 FROM watermarks WHERE token = ? AND next_offset = ? AND generation = ? AND partition = ?)`
	sqlMove   = `UPDATE watermarks SET next_offset = ? WHERE generation = ? AND partition = ? AND next_offset = ? AND token = ?`
	sqlLastTo = `UPDATE watermarks SET last_to = ? WHERE generation = ? AND partition = ?`

	sqlPutFrame = `
INSERT INTO frames (partition, upto, written, body, total)
VALUES (?1, ?2, ?3, ?4, coalesce((SELECT total FROM frames WHERE partition = ?1 ORDER BY upto DESC LIMIT 1), 0) + length(?4))`

	sqlNewer = `SELECT EXISTS (SELECT 1 FROM watermarks WHERE generation > ?)`

	// The owners of older generations, if there still are any, must not decide
	// anything more: a token without owner.
	sqlEndOlder = `UPDATE watermarks SET token = x'' WHERE generation < ?`
)

var sqlTakeOver = strings.ReplaceAll(`
INSERT INTO watermarks AS t (generation, partition, next_offset, last_to, token, session, doubt)
VALUES (?1, ?2, 0, coalesce((
  SELECT last_to FROM watermarks WHERE partition = ?2 AND generation < ?1 ORDER BY generation DESC LIMIT 1), 0), ?3, {session},
  CASE WHEN EXISTS (SELECT 1 FROM inboxes WHERE generation = ?1 AND session = {session}) THEN 0 ELSE ?4 END)
ON CONFLICT (partition, generation) DO UPDATE SET token = excluded.token, session = excluded.session,
  doubt = CASE WHEN t.session = excluded.session THEN t.doubt ELSE ?4 END
RETURNING next_offset, last_to, doubt = ?4`, "{session}", "'"+shared.FileSession+"'")

// TakeOver implements store.Decisions. It holds the file's write lock, as every
// decision does that compares and writes: an earlier owner's is over or not begun.
func (s *Store) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) ([]store.TakenOver, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	taken := make([]store.TakenOver, len(partitions))
	numbers := make(map[int32]bool, len(partitions))
	var generation uint16
	var floors []store.Floor
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
			_, err = t.once(sqlEndOlder, generation)
		}
		if err == nil {
			err = each(t.ctx, t.conn, sqlTakeOver, len(partitions), func(i int, statement *sql.Stmt) error {
				p := partitions[i]
				var last int64
				err := statement.QueryRowContext(t.ctx, p.Generation, p.Number, token[:], int64(math.MaxInt64)).Scan(&taken[i].NextOffset, &last, &taken[i].Doubt)
				taken[i].LastTo = change.Version(last)
				return err
			})
		}
		if err == nil {
			err = t.Query(shared.ReadFloors(), func(row shared.Row) error {
				of, err := shared.ScanFloors(row)
				floors = append(floors, of...)
				return err
			})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range taken {
		taken[i].Floors = store.FloorsOf(taken[i].Partition, floors)
	}
	return taken, nil
}

// Decide implements store.Decisions. It decides beside the writer: it loads one
// snapshot with the tokens and offsets of d.Moves, and while these stay no other decision
// writes an entity of the partitions. The write compares them again, and what belongs to
// no partition.
func (s *Store) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) (err error) {
	var loaded store.Loaded
	if len(d.Entities) > 0 || len(d.Claims) > 0 {
		if loaded, err = s.load(ctx, d); err != nil {
			return err
		}
	}
	out, err := decide(loaded)
	if err != nil {
		return err
	}
	entities, err := sortWrites(out.Entities)
	if err != nil {
		return failed("decide", err)
	}
	return s.write(ctx, "decide", func(t tx) error {
		err := expectRevision(t.ctx, t.conn, d.Revision)
		if err == nil {
			err = t.move(d.Moves)
		}
		if err == nil {
			err = t.finish(d, loaded, out, entities, s.now())
		}
		crash.At(crash.DecideWritten, "")
		return err
	})
}

// load reads the state that a decision starts from.
func (s *Store) load(ctx context.Context, d store.Decision) (loaded store.Loaded, err error) {
	return loaded, s.read(ctx, "decide: begin", func(t *keptConn) error {
		ctx := context.WithoutCancel(ctx) // saves a goroutine per statement
		err := expectRevision(ctx, t, d.Revision)
		if err == nil {
			err = each(ctx, t, sqlHolds, len(d.Moves), func(i int, statement *sql.Stmt) error {
				m := d.Moves[i]
				var holds bool
				err := statement.QueryRowContext(ctx, m.Token[:], m.From, m.Partition.Generation, m.Partition.Number).Scan(&holds)
				if err == nil && !holds {
					err = store.ErrFenced
				}
				return err
			})
		}
		if err == nil {
			loaded.Entities, err = loadEntities(ctx, t, d.Entities)
		}
		if err == nil {
			loaded.Decided, loaded.Uses, err = loadDecided(ctx, t, d)
		}
		return err
	})
}

func expectRevision(ctx context.Context, p *keptConn, revision int64) error {
	var active int64
	if err := p.QueryRowContext(ctx, sqlRevision).Scan(&active); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if active != revision {
		return store.ErrSuperseded
	}
	return nil
}

// finish writes the outcome, at now.
func (t tx) finish(d store.Decision, loaded store.Loaded, out store.Outcome, entities store.Write, now time.Time) error {
	for _, purge := range []string{sqlPurgeEntity, sqlPurgePages} {
		err := each(t.ctx, t.conn, purge, len(out.Purged), func(i int, statement *sql.Stmt) error {
			_, err := t.exec(statement, out.Purged[i])
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := t.putEntities(entities); err != nil {
		return err
	}
	moved := func(p store.Partition) bool {
		return slices.ContainsFunc(d.Moves, func(m store.WatermarkStep) bool { return m.Partition == p })
	}
	for _, f := range out.Frames {
		if !moved(f.Partition) {
			return bug("decide: a frame of partition %v, whose watermark this decision does not hold", f.Partition)
		}
	}
	written := now.UnixMicro()
	err := each(t.ctx, t.conn, sqlPutFrame, len(out.Frames), func(i int, statement *sql.Stmt) error {
		f := &out.Frames[i]
		_, err := t.exec(statement, f.Partition.Number, int64(f.To), written, f.Body)
		return err
	})
	if err == nil {
		err = each(t.ctx, t.conn, sqlLastTo, len(out.Frames), func(i int, statement *sql.Stmt) error {
			f := &out.Frames[i]
			_, err := t.exec(statement, int64(f.To), f.Partition.Generation, f.Partition.Number)
			return err
		})
	}
	if err != nil {
		return err
	}
	for _, f := range out.Floors {
		if !moved(f.Partition) {
			return bug("decide: a floor of partition %v, whose watermark this decision does not hold", f.Partition)
		}
	}
	audits, err := shared.Audits(out.Audit)
	if err == nil {
		_, err = t.Exec(slices.Concat(shared.Letters(out.Letters), shared.Settled(out.Settled), audits, shared.Heard(out))...)
	}
	if err != nil {
		return err
	}
	return t.putDecided(d, out.Claims, loaded.Uses, now)
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
