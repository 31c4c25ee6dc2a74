package shared

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"

	"github.com/seed-86dfc502/weir/store"
)

// Audits returns the calls that add audit rows; an error of class Poison if a detail is
// not JSON.
func Audits(audits []store.Audit) ([]Call, error) {
	calls := make([]Call, len(audits))
	for i := range audits {
		a, detail := &audits[i], (*string)(nil)
		if len(a.Detail) > 0 {
			if !json.Valid(a.Detail) {
				return nil, store.WithClass(errors.New("the detail of an audit row is not JSON"), store.Poison)
			}
			detail = new(string(a.Detail))
		}
		calls[i] = sanitized(sqlAddAudit(a, detail, now()))
	}
	return calls, nil
}

// audited runs a call and, if it wrote a row, adds an audit row in the same transaction.
func (s *Store) audited(ctx context.Context, operation string, c Call, audit store.Audit) (n int64, err error) {
	rows, err := Audits([]store.Audit{audit})
	if err != nil {
		return 0, err
	}
	err = s.DB.Write(ctx, operation, func(t Tx) error {
		if n, err = t.Exec(c); err == nil && n > 0 {
			_, err = t.Exec(rows...)
		}
		return err
	})
	return n, err
}

// AddAudits implements store.Operations.
func (s *Store) AddAudits(ctx context.Context, audits []store.Audit) error {
	calls, err := Audits(audits)
	if err == nil {
		_, err = s.write(ctx, "add audit rows", calls...)
	}
	return err
}

// Audits implements store.Reader.
func (s *Store) Audits(ctx context.Context, f store.AuditFilter) ([]store.Audit, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	c := sqlAudits(f)
	if f.NewestFirst {
		f.AfterID = cmp.Or(f.AfterID, math.MaxInt64)
		c = sqlNewestAudits(f)
	}
	return list(ctx, s, "read audit", c, func(row Row) (a store.Audit, err error) {
		err = row.Scan(&a.ID, &a.Time, &a.Actor, &a.Action, &a.Reason, &a.Entity, &a.Service, &a.Detail)
		return a, err
	})
}

// EditDeadLetter implements store.Operations.
func (s *Store) EditDeadLetter(ctx context.Context, id int64, seen, payload []byte, audit store.Audit) error {
	n, err := s.audited(ctx, "edit dead letter", sqlAmendLetter(id, notNil(seen), notNil(payload)), audit)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return err
}

// MoveLetters implements store.Operations.
func (s *Store) MoveLetters(ctx context.Context, ids []int64, from, to store.LetterState, audit store.Audit) (int, error) {
	n, err := s.audited(ctx, "set state of dead letters", sqlMoveLetters(ids, from, to), audit)
	return int(n), err
}

// OpenJob implements store.Jobs.
func (s *Store) OpenJob(ctx context.Context, j store.Job) (opened store.Job, err error) {
	switch {
	case j.Kind == "" || j.Key == "":
		return store.Job{}, store.WithClass(errors.New("open job: kind and key are needed"), store.Fatal)
	case len(j.Parameters) == 0:
		j.Parameters = []byte("{}")
	case !json.Valid(j.Parameters):
		return store.Job{}, store.WithClass(errors.New("open job: parameters are not JSON"), store.Poison)
	}
	j.Actor = store.SanitizeText(j.Actor)
	err = s.DB.Write(ctx, "open job", func(t Tx) error {
		return t.Query(sqlOpenJob(&j, string(j.Parameters), now()), func(row Row) error {
			opened, err = scanJob(row)
			return err
		})
	})
	if err != nil {
		return store.Job{}, err
	}
	return opened, nil
}

// SaveJob implements store.Jobs.
func (s *Store) SaveJob(ctx context.Context, j *store.Job, letters ...store.DeadLetter) error {
	err := s.DB.Write(ctx, "save job", func(t Tx) error {
		n, err := t.Exec(sqlSaveJob(j, now()))
		if err == nil && n == 0 {
			err = store.ErrFenced
		}
		if err == nil && len(letters) > 0 {
			_, err = t.Exec(Letters(letters)...)
		}
		return err
	})
	if err == nil {
		j.Epoch++
	}
	return err
}

// ListJobs implements store.Jobs.
func (s *Store) ListJobs(ctx context.Context, f store.JobFilter) ([]store.Job, error) {
	f.Before, f.Limit = cmp.Or(f.Before, math.MaxInt64), max(f.Limit, 0)
	return list(ctx, s, "list jobs", sqlListJobs(f), scanJob)
}

func scanJob(row Row) (j store.Job, err error) {
	err = row.Scan(&j.ID, &j.Tenant, &j.Kind, &j.Key, &j.Parameters, &j.Cursor, &j.Done, &j.Total, &j.State, &j.Actor, &j.Created, &j.Updated, &j.Epoch)
	return j, err
}
