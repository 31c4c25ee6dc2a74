package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlSettle      = `UPDATE dead_letters SET state = $2 WHERE id = $1 AND state IN ('open', 'discarded') AND ($3::int8 = 0 OR version <= $3)`
	sqlAmend       = `UPDATE dead_letters SET original = coalesce(original, payload), payload = $3 WHERE id = $1 AND state = 'open' AND payload = $2`
	sqlMoveLetters = `UPDATE dead_letters SET state = $3 WHERE id = ANY($1::int8[]) AND state = $2`

	jobColumns = `id, kind, key, parameters, cursor, done, total, state, actor, created_at, updated_at, turn`

	// The conflict is with the open job of the same work, which is locked by it
	// until the turn is taken.
	sqlOpenJob = `
INSERT INTO jobs (kind, key, parameters, cursor, done, total, actor)
VALUES ($1, $2, $3::text::json, $4, $5, $6, $7)
ON CONFLICT (kind, key) WHERE state = 'open' DO UPDATE SET turn = jobs.turn + 1, updated_at = now()
RETURNING ` + jobColumns

	sqlSaveJob = `
UPDATE jobs SET cursor = $3, done = $4, total = $5, state = $6, updated_at = now()
WHERE id = $1 AND turn = $2 AND state = 'open'`

	sqlListJobs = `
SELECT ` + jobColumns + ` FROM jobs
WHERE ($1 = '' OR kind = $1) AND ($2 = '' OR state = $2) ORDER BY id DESC LIMIT $3`
)

// AddAudits implements store.Operations.
func (s *Store) AddAudits(ctx context.Context, audits []store.Audit) error {
	if len(audits) == 0 {
		return nil
	}
	b := new(pgx.Batch)
	queueAudits(b, audits)
	return failed("add audit rows", s.pool.SendBatch(ctx, b).Close())
}

// EditDeadLetter implements store.Operations.
func (s *Store) EditDeadLetter(ctx context.Context, id int64, seen, payload []byte, audit store.Audit) error {
	return s.inTx(ctx, "edit dead letter", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlAmend, id, notNil(seen), notNil(payload))
		if err == nil && tag.RowsAffected() == 0 {
			err = pgx.ErrNoRows
		}
		if err != nil {
			return err
		}
		return addAudits(ctx, tx, audit)
	})
}

// MoveLetters implements store.Operations.
func (s *Store) MoveLetters(ctx context.Context, ids []int64, from, to store.LetterState, audit store.Audit) (int, error) {
	var moved int64
	err := s.inTx(ctx, "set state of dead letters", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlMoveLetters, ids, string(from), string(to))
		if moved = tag.RowsAffected(); err != nil || moved == 0 {
			return err
		}
		return addAudits(ctx, tx, audit)
	})
	if err != nil {
		return 0, err
	}
	return int(moved), nil
}

func addAudits(ctx context.Context, tx pgx.Tx, audits ...store.Audit) error {
	b := new(pgx.Batch)
	queueAudits(b, audits)
	return tx.SendBatch(ctx, b).Close()
}

// OpenJob implements store.Jobs.
func (s *Store) OpenJob(ctx context.Context, j store.Job) (store.Job, error) {
	if j.Kind == "" || j.Key == "" {
		return store.Job{}, bug("open job: kind and key are needed")
	}
	opened, err := scanJob(s.pool.QueryRow(ctx, sqlOpenJob, j.Kind, j.Key, objectOr(j.Parameters), j.Cursor, j.Done, j.Total, store.SanitizeText(j.Actor)))
	if err != nil {
		return store.Job{}, failed("open job", err)
	}
	return opened, nil
}

// SaveJob implements store.Jobs.
func (s *Store) SaveJob(ctx context.Context, j store.Job) error {
	tag, err := s.pool.Exec(ctx, sqlSaveJob, j.ID, j.Epoch, j.Cursor, j.Done, j.Total, string(j.State))
	if err == nil && tag.RowsAffected() == 0 {
		err = store.ErrFenced
	}
	return failed("save job", err)
}

// ListJobs implements store.Jobs.
func (s *Store) ListJobs(ctx context.Context, kind string, state store.JobState, limit int) ([]store.Job, error) {
	jobs, err := list(ctx, s.pool, scanJob, sqlListJobs, kind, string(state), max(limit, 0))
	return jobs, failed("list jobs", err)
}

func scanJob(row pgx.Row) (j store.Job, err error) {
	err = row.Scan(&j.ID, &j.Kind, &j.Key, &j.Parameters, &j.Cursor, &j.Done, &j.Total, &j.State, &j.Actor, &j.Created, &j.Updated, &j.Epoch)
	return j, err
}

// objectOr returns a JSON object as text, the empty one for nil.
func objectOr(b []byte) string {
	if len(b) == 0 {
		return "{}"
	}
	return string(b)
}

// queueSettled queues what became of replayed letters.
func queueSettled(b *pgx.Batch, settled []store.LetterResolution) {
	for _, x := range settled {
		b.Queue(sqlSettle, x.ID, string(x.State), int64(x.Version))
	}
}
