package shared

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// addGroup is how many attempts one statement inserts: a statement for each costs three times
// as much.
const addGroup = 50

var addAttempts = Statements.AddAttempt.times(addGroup) //nolint:gochecknoglobals // never written

// AddAttempts implements store.Attempts.
func (s *Store) AddAttempts(ctx context.Context, attempts []store.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	var calls []Call
	for group := range slices.Chunk(attempts, addGroup) {
		all := Call{Statement: addAttempts}
		for i := range group {
			c := sqlAddAttempt(&group[i], notNil(group[i].Answer))
			if len(group) < addGroup {
				calls = append(calls, c)
				continue
			}
			all.Args = append(all.Args, c.Args...)
		}
		if len(group) == addGroup {
			calls = append(calls, all)
		}
	}
	_, err := s.DB.Send(ctx, "add attempts", calls)
	return err
}

// endOfTime is after every attempt.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// ListAttempts implements store.Attempts.
func (s *Store) ListAttempts(ctx context.Context, f store.AttemptFilter) ([]store.Attempt, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	if f.Until.IsZero() {
		f.Until = endOfTime
	}
	c := sqlAttempts(f)
	if f.Entity != "" {
		c = sqlAttemptsOf(f)
	}
	return list(ctx, s, "list attempts", c, func(row Row) (a store.Attempt, err error) {
		var version, ms int64
		err = row.Scan(&a.Service, &a.Entity, &a.At, &version, &a.Outcome, &a.Status, &a.Answer, &ms)
		a.Version, a.Took = change.Version(version), time.Duration(ms)*time.Millisecond
		return a, err
	})
}

// RetainAttempts implements store.Attempts.
func (s *Store) RetainAttempts(ctx context.Context, bounds map[int32]store.AttemptBound, others store.AttemptBound) (deleted int64, err error) {
	type kept struct {
		service int32
		n       int
	}
	counts, err := list(ctx, s, "count attempts", sqlCountAttempts(), func(row Row) (k kept, err error) {
		err = row.Scan(&k.service, &k.n)
		return k, err
	})
	if err != nil {
		return 0, err
	}
	expired := map[time.Duration][]int64{} // services, by how long their attempts are kept
	for _, k := range counts {
		bound, ok := bounds[k.service]
		if !ok {
			bound = others
		}
		expired[bound.Keep] = append(expired[bound.Keep], int64(k.service))
		if k.n <= bound.Max {
			continue
		}
		through, err := one(list(ctx, s, "trim attempts", sqlLastAttemptBeyond(k.service, bound.Max), scanValue[time.Time]))
		if err == nil {
			var n int64
			n, err = s.deleteAttempts(ctx, []int64{int64(k.service)}, through)
			deleted += n
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return deleted, err
		}
	}
	for keep, services := range expired {
		through := now().Add(-keep)
		if keep <= 0 {
			through = endOfTime
		}
		n, err := s.deleteAttempts(ctx, services, through)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// deleteAttempts deletes the attempts of services up to a time, page by page.
func (s *Store) deleteAttempts(ctx context.Context, services []int64, through time.Time) (deleted int64, err error) {
	for after, last := (time.Time{}), false; !last; {
		to, err := one(list(ctx, s, "trim attempts", sqlAttemptsStep(services, after, through, prunePage), scanValue[time.Time]))
		if last = errors.Is(err, store.ErrNotFound); last {
			to, err = through, nil
		}
		if err != nil {
			return deleted, err
		}
		n, err := s.write(ctx, "trim attempts", sqlDeleteAttempts(services, after, to))
		if deleted += n; err != nil {
			return deleted, err
		}
		after = to
	}
	return deleted, nil
}
