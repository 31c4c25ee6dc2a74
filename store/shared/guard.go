package shared

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// Pauses implements store.Guards.
func (s *Store) Pauses(ctx context.Context) ([]store.Pause, error) {
	return list(ctx, s, "list pauses", sqlPauses(), scanPause)
}

func scanPause(row Row) (store.Pause, error) {
	p, _, err := scanGuard(row)
	return p, err
}

// scanGuard reads the columns of a pause, and more behind them. A service that is not paused
// has no time.
func scanGuard(row Row, more ...any) (p store.Pause, paused bool, err error) {
	var since *time.Time
	var hold []byte
	if err = row.Scan(append([]any{&p.Service, &since, &p.Actor, &p.Reason, &hold}, more...)...); err != nil || since == nil {
		return p, false, err
	}
	if p.Since = *since; hold != nil {
		p.Hold = new(store.Hold)
		err = unmarshal("a hold", hold, p.Hold)
	}
	return p, true, err
}

func unmarshal(what string, text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return store.WithClass(fmt.Errorf("%s cannot be read: %w", what, err), store.Fatal)
	}
	return nil
}

// PutPause implements store.Guards.
func (s *Store) PutPause(ctx context.Context, p store.Pause, audit store.Audit) error {
	return s.writeAudited(ctx, "pause a service", putPause(&p), audit)
}

func putPause(p *store.Pause) Call {
	var hold []byte
	if p.Hold != nil {
		hold, _ = json.Marshal(p.Hold) // numbers and a word always have a JSON form
	}
	return sanitized(sqlPutPause(p, newGuard, hold))
}

// EndPause implements store.Guards.
func (s *Store) EndPause(ctx context.Context, service string, audit store.Audit) error {
	return s.writeAudited(ctx, "resume a service", sqlEndPause(service), audit)
}

func (s *Store) writeAudited(ctx context.Context, operation string, c Call, audit store.Audit) error {
	rows, err := Audits([]store.Audit{audit})
	if err == nil {
		_, err = s.write(ctx, operation, append(rows, c)...)
	}
	return err
}

// Admit implements store.Guards.
func (s *Store) Admit(ctx context.Context, a store.Admission) (answers []store.Admitted, pause *store.Pause, err error) {
	a.Now = a.Now.UTC().Truncate(time.Microsecond)
	err = s.DB.Write(ctx, "admit changes", func(t Tx) error {
		answers, pause = nil, nil
		g, held, err := lockGuard(t, a.Service)
		if err != nil {
			return err
		}
		pause = held
		after := a.Now.Add(-a.Window)
		if _, err := t.Exec(sqlExpireGuarded(a.Service, a.Kind, after)); err != nil {
			return err
		}
		n, err := guardCounts(t, &a, after)
		if err != nil {
			return err
		}
		known := maps.Clone(n.Known)
		var counted, limit int64
		answers, counted, limit = g.Judge(&a, n, pause != nil)
		var calls []Call
		done := map[string]bool{}
		for i, answer := range answers {
			entity := a.Changes[i].Entity
			switch {
			case answer == store.Counted && !done[entity]:
				done[entity] = true
				at := a.Slot(&a.Changes[i])
				if was, is := known[entity]; is && n.Known[entity].Equal(was) && was.After(at) {
					at = was
				}
				calls = append(calls, sqlPutGuarded(a.Service, a.Kind, entity, at, a.Now))
			case answer == store.Held && pause == nil:
				pause = g.Hold(&a, counted, limit)
				calls = append(calls, putPause(pause), auditCall(pause))
			}
		}
		_, err = t.Exec(append(calls, saveGuard(a.Service, g))...)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return answers, pause, nil
}

// guardCounts returns the counts around the times of the changes of an admission; those before
// after have expired.
func guardCounts(t Tx, a *store.Admission, after time.Time) (*store.GuardCounts, error) {
	n := &store.GuardCounts{Known: map[string]time.Time{}, Slots: map[time.Time]int64{}}
	first, last := a.Now, time.Time{}
	entities := make([]string, len(a.Changes))
	for i := range a.Changes {
		entities[i] = a.Changes[i].Entity
		if at := a.Slot(&a.Changes[i]); at.Before(first) {
			first = at
		}
		if at := a.Slot(&a.Changes[i]); at.After(last) {
			last = at
		}
	}
	err := t.Query(sqlCountGuarded(a.Service, a.Kind, first.Add(-a.Window), last.Add(a.Window)), func(row Row) error {
		var at time.Time
		var count int64
		err := row.Scan(&at, &count)
		n.Slots[at.UTC()] = count
		return err
	})
	if err == nil {
		err = t.Query(sqlGuardedOf(a.Service, a.Kind, entities), func(row Row) error {
			var entity string
			var at time.Time
			err := row.Scan(&entity, &at)
			n.Known[entity] = at.UTC()
			return err
		})
	}
	if err == nil {
		n.Retracted, err = one(listIn(t, sqlCountAdmitted(a.Service, store.GuardRetract, after), scanValue[int64]))
	}
	return n, err
}

func auditCall(p *store.Pause) Call {
	calls, _ := Audits([]store.Audit{{Actor: p.Actor, Action: "hold", Service: p.Service, Reason: p.Reason}}) // without a detail
	return calls[0]
}

// newGuard is the state of a service without admissions.
var newGuard = []byte("{}") //nolint:gochecknoglobals // never written

// lockGuard returns the guard of a service, and its pause, nil without one.
func lockGuard(t Tx, service string) (*store.GuardState, *store.Pause, error) {
	var pause *store.Pause
	g, err := one(listIn(t, sqlLockGuard(service, newGuard), func(row Row) (*store.GuardState, error) {
		var g store.GuardState
		var state []byte
		p, paused, err := scanGuard(row, &state)
		if paused {
			pause = &p
		}
		if err != nil {
			return nil, err
		}
		return &g, unmarshal("the state of a guard", state, &g)
	}))
	return g, pause, err
}

func saveGuard(service string, g *store.GuardState) Call {
	state, _ := json.Marshal(g) // numbers, times and words always have a JSON form
	return sqlSaveGuard(service, state)
}

// EndHold implements store.Guards.
func (s *Store) EndHold(ctx context.Context, service string, end store.HoldEnd, now time.Time, audit store.Audit) error {
	audits, err := Audits([]store.Audit{audit})
	if err != nil {
		return err
	}
	return s.DB.Write(ctx, "end a hold", func(t Tx) error {
		g, pause, err := lockGuard(t, service)
		if err == nil && (pause == nil || pause.Hold == nil) {
			err = store.ErrNotFound
		}
		if err != nil {
			return err
		}
		now := now.UTC().Truncate(time.Microsecond)
		g.End(pause.Hold, end, now)
		calls := append(audits, sqlEndHold(service), saveGuard(service, g))
		if !end.Extend {
			calls = append(calls, sqlExpireGuarded(service, pause.Hold.Kind, now))
		}
		_, err = t.Exec(calls...)
		return err
	})
}
