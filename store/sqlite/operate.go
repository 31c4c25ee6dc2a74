package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlAmend       = `UPDATE dead_letters SET original = coalesce(original, payload), payload = ?3 WHERE id = ?1 AND state = 'open' AND payload = ?2`
	sqlSettle      = `UPDATE dead_letters SET state = ?2 WHERE id = ?1 AND state IN ('open', 'discarded') AND (?3 = 0 OR version <= ?3)`
	sqlMoveLetters = `UPDATE dead_letters SET state = ?3 WHERE id = ?1 AND state = ?2`

	jobColumns = `id, kind, key, parameters, cursor, done, total, state, actor, created_at, updated_at, turn`

	sqlOpenJob = `
INSERT INTO jobs (kind, key, parameters, cursor, done, total, actor, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
ON CONFLICT (kind, key) WHERE state = 'open' DO UPDATE SET turn = jobs.turn + 1, updated_at = ?8
RETURNING ` + jobColumns

	sqlSaveJob = `
UPDATE jobs SET cursor = ?3, done = ?4, total = ?5, state = ?6, updated_at = ?7
WHERE id = ?1 AND turn = ?2 AND state = 'open'`

	sqlListJobs = `
SELECT ` + jobColumns + ` FROM jobs
WHERE (?1 = '' OR kind = ?1) AND (?2 = '' OR state = ?2) ORDER BY id DESC LIMIT ?3`
)

// AddAudits implements store.Operations.
func (s *Store) AddAudits(ctx context.Context, audits []store.Audit) error {
	return s.write(ctx, "add audit rows", func(t tx) error { return t.addAudits(audits) })
}

// EditDeadLetter implements store.Operations.
func (s *Store) EditDeadLetter(ctx context.Context, id int64, seen, payload []byte, audit store.Audit) error {
	return s.write(ctx, "edit dead letter", func(t tx) error {
		n, err := t.once(sqlAmend, id, notNil(seen), notNil(payload))
		switch {
		case err != nil:
			return err
		case n == 0:
			return sql.ErrNoRows
		}
		return t.addAudits([]store.Audit{audit})
	})
}

// MoveLetters implements store.Operations.
func (s *Store) MoveLetters(ctx context.Context, ids []int64, from, to store.LetterState, audit store.Audit) (moved int, err error) {
	err = s.write(ctx, "set state of dead letters", func(t tx) error {
		moved = 0
		err := each(t.ctx, t.conn, sqlMoveLetters, len(ids), func(i int, statement *sql.Stmt) error {
			n, err := t.exec(statement, ids[i], string(from), string(to))
			moved += int(n)
			return err
		})
		if err != nil || moved == 0 {
			return err
		}
		return t.addAudits([]store.Audit{audit})
	})
	if err != nil {
		return 0, err
	}
	return moved, nil
}

// settle writes what became of replayed letters.
func (t tx) settle(settled []store.LetterResolution) error {
	return each(t.ctx, t.conn, sqlSettle, len(settled), func(i int, statement *sql.Stmt) error {
		_, err := t.exec(statement, settled[i].ID, string(settled[i].State), int64(settled[i].Version))
		return err
	})
}

// OpenJob implements store.Jobs.
func (s *Store) OpenJob(ctx context.Context, j store.Job) (opened store.Job, err error) {
	if j.Kind == "" || j.Key == "" {
		return store.Job{}, bug("open job: kind and key are needed")
	}
	parameters, err := object(j.Parameters)
	if err != nil {
		return store.Job{}, failed("open job", err)
	}
	err = s.write(ctx, "open job", func(t tx) (err error) {
		opened, err = scanJob(t.conn.QueryRowContext(t.ctx, sqlOpenJob, j.Kind, j.Key, parameters, j.Cursor, j.Done, j.Total, store.SanitizeText(j.Actor), micros(time.Now())))
		return err
	})
	if err != nil {
		return store.Job{}, err
	}
	return opened, nil
}

// SaveJob implements store.Jobs.
func (s *Store) SaveJob(ctx context.Context, j store.Job) error {
	return s.write(ctx, "save job", func(t tx) error {
		n, err := t.once(sqlSaveJob, j.ID, j.Epoch, j.Cursor, j.Done, j.Total, string(j.State), micros(time.Now()))
		if err == nil && n == 0 {
			err = store.ErrFenced
		}
		return err
	})
}

// ListJobs implements store.Jobs.
func (s *Store) ListJobs(ctx context.Context, kind string, state store.JobState, limit int) ([]store.Job, error) {
	jobs, err := list(ctx, s.readers, scanJob, sqlListJobs, kind, string(state), max(limit, 0))
	return jobs, failed("list jobs", err)
}

func scanJob(row scanner) (store.Job, error) {
	var j store.Job
	var created, updated int64
	err := row.Scan(&j.ID, &j.Kind, &j.Key, &j.Parameters, &j.Cursor, &j.Done, &j.Total, &j.State, &j.Actor, &created, &updated, &j.Epoch)
	j.Created, j.Updated = fromMicros(created), fromMicros(updated)
	return j, err
}

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
