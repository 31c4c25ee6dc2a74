package shared

import (
	"context"
	"slices"

	"github.com/seed-86dfc502/weir/store"
)

// ForgetServices implements store.Operations.
func (s *Store) ForgetServices(ctx context.Context, services map[string]int32, audit store.Audit) error {
	audits, err := Audits([]store.Audit{audit})
	if err != nil {
		return err
	}
	var names []string
	var numbers []int64
	for name, number := range services {
		names, numbers = append(names, name), append(numbers, int64(number))
	}
	// Large deletions have transactions of their own. The services are deleted last: until then
	// the same call repeats all of it.
	for _, c := range []Call{
		sqlForgetLetters(names), sqlForgetGuards(names), sqlForgetGuarded(names), sqlForgetChecks(numbers), sqlForgetAttempts(numbers),
	} {
		if _, err := s.write(ctx, "forget services", c.forTenant(AllTenants)); err != nil {
			return err
		}
	}
	return s.DB.Write(ctx, "forget services", func(t Tx) error {
		if err := t.Lock(Services); err != nil {
			return err
		}
		calls, err := withoutPositions(t, numbers)
		if err != nil {
			return err
		}
		calls = append(calls, sqlForgetMarks(numbers), sqlForgetServices(numbers))
		_, err = t.Exec(append(calls, audits...)...)
		return err
	})
}

// withoutPositions returns the calls that remove the positions of services.
func withoutPositions(t Tx, numbers []int64) (calls []Call, err error) {
	err = t.Query(sqlPositions(), func(row Row) error {
		var partition int32
		var old []byte
		if err := row.Scan(&partition, &old); err != nil {
			return err
		}
		positions, err := store.DecodePositions(old)
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(positions), func(p store.ServicePosition) bool { return slices.Contains(numbers, int64(p.Service)) })
		if len(kept) < len(positions) {
			calls = append(calls, sqlReplacePositions(partition, slices.Clone(old), notNil(store.AppendPositions(nil, kept))))
		}
		return nil
	})
	return calls, err
}

// ForgetStates implements store.Operations.
func (s *Store) ForgetStates(ctx context.Context, numbers []int32, after string, limit int) (last string, dropped int64, err error) {
	err = s.DB.Write(ctx, "forget dam states", func(t Tx) error {
		last, dropped = "", 0
		pages, err := listIn(t, sqlStatesAfter(after, limit), scanPage)
		if err != nil || len(pages) == 0 {
			return err
		}
		to := pages[len(pages)-1].Entity
		more, err := listIn(t, sqlPagesBetween(after, to), scanPage)
		if err != nil {
			return err
		}
		if len(pages) == limit {
			last = to
		}
		var calls []Call
		for _, p := range append(pages, more...) {
			states, n := p.Without(numbers)
			if n == 0 {
				continue
			}
			dropped += int64(n)
			switch {
			case p.Number == 0:
				calls = append(calls, sqlReplaceStates(p, notNil(states)))
			case len(states) == 0:
				calls = append(calls, sqlDropPage(p))
			default:
				calls = append(calls, sqlReplacePage(p, states))
			}
		}
		_, err = t.Exec(calls...)
		return err
	})
	return last, dropped, err
}

func scanPage(row Row) (p store.EntityPage, err error) {
	var body []byte
	err = row.Scan(&p.Entity, &p.Number, &body)
	p.Body = slices.Clone(body)
	return p, err
}
