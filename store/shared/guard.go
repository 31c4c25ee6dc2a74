package shared

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// guardKind is the kind of the reports that are the guards of services, by their names.
const guardKind = "guard"

// Pauses implements store.Guards.
func (s *Store) Pauses(ctx context.Context) (pauses []store.Pause, err error) {
	guards, err := s.ListReports(ctx, guardKind)
	for i := range guards {
		g, err := guardOf(guards[i].Body)
		if err != nil {
			return nil, err
		}
		if g.Pause != nil {
			pauses = append(pauses, *g.Pause)
		}
	}
	return pauses, err
}

func guardOf(body []byte) (g store.GuardState, err error) {
	if len(body) == 0 {
		return g, nil // without admissions
	}
	if err := json.Unmarshal(body, &g); err != nil {
		return g, store.WithClass(fmt.Errorf("the state of a guard cannot be read: %w", err), store.Fatal)
	}
	return g, nil
}

// changeGuard has f change the guard of a service, and writes it with the calls that f returns.
// Its row stays locked until the transaction ends: admissions of one service come one after the
// other.
func (s *Store) changeGuard(ctx context.Context, operation, service string, f func(t Tx, g *store.GuardState) ([]Call, error)) error {
	return s.DB.Write(ctx, operation, func(t Tx) error {
		body, err := one(listIn(t, sqlOpenReport(guardKind, service, now()), scanValue[[]byte]))
		if err != nil {
			return err
		}
		g, err := guardOf(body)
		if err != nil {
			return err
		}
		calls, err := f(t, &g)
		if err != nil {
			return err
		}
		body, _ = json.Marshal(&g) // numbers, times and texts always have a JSON form
		_, err = t.Exec(append(calls, sqlWriteReport(guardKind, service, body))...)
		return err
	})
}

// PutPause implements store.Guards.
func (s *Store) PutPause(ctx context.Context, p store.Pause, audit store.Audit) error {
	return s.changeGuard(ctx, "pause a service", p.Service, func(_ Tx, g *store.GuardState) ([]Call, error) {
		if g.Pause == nil {
			g.Pause = &p
		}
		return Audits([]store.Audit{audit})
	})
}

// EndPause implements store.Guards.
func (s *Store) EndPause(ctx context.Context, service string, audit store.Audit) error {
	return s.changeGuard(ctx, "resume a service", service, func(_ Tx, g *store.GuardState) ([]Call, error) {
		if g.Pause != nil && g.Pause.Hold == nil {
			g.Pause = nil
		}
		return Audits([]store.Audit{audit})
	})
}

// Admit implements store.Guards.
func (s *Store) Admit(ctx context.Context, a store.Admission) (answers []store.Admitted, pause *store.Pause, err error) {
	a.Now = a.Now.UTC().Truncate(time.Microsecond)
	err = s.changeGuard(ctx, "admit changes", a.Service, func(t Tx, g *store.GuardState) (calls []Call, err error) {
		after := a.Now.Add(-a.Window)
		if _, err := t.Exec(sqlExpireGuarded(a.Service, a.Kind, after)); err != nil {
			return nil, err
		}
		n, err := guardCounts(t, &a, after)
		if err != nil {
			return nil, err
		}
		known := maps.Clone(n.Known)
		var counted, limit int64
		answers, counted, limit = g.Judge(&a, n)
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
			case answer == store.Held && g.Pause == nil:
				g.Pause = g.Hold(&a, counted, limit)
				calls = append(calls, auditCall(g.Pause))
			}
		}
		pause = g.Pause
		return calls, nil
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

// EndHold implements store.Guards.
func (s *Store) EndHold(ctx context.Context, service string, end store.HoldEnd, now time.Time, audit store.Audit) error {
	now = now.UTC().Truncate(time.Microsecond)
	return s.changeGuard(ctx, "end a hold", service, func(_ Tx, g *store.GuardState) ([]Call, error) {
		calls, err := Audits([]store.Audit{audit})
		if err == nil && (g.Pause == nil || g.Pause.Hold == nil) {
			err = store.ErrNotFound
		}
		if err != nil {
			return nil, err
		}
		hold := g.Pause.Hold
		if g.End(hold, end, now); !end.Extend {
			calls = append(calls, sqlExpireGuarded(service, hold.Kind, now))
		}
		g.Pause = nil
		return calls, nil
	})
}
