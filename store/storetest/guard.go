package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const guarded = "acme/guarded@hook"

var guardTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// admission asks for the retraction of entities: 5 % of 1,000, at least 10, in 10 minutes.
func admission(now time.Time, entities ...string) store.Admission {
	a := store.Admission{Service: guarded, Kind: store.GuardRetract, Share: 0.05, Min: 10, Window: 10 * time.Minute, Entities: 1000, Now: now}
	for i, e := range entities {
		a.Changes = append(a.Changes, store.GuardedChange{Entity: e, Partition: 3, Position: change.NewVersion(1, int64(i))})
	}
	return a
}

func numbered(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint("e", i))
	}
	return all
}

// admit asks and counts the answers.
func admit(t *testing.T, s store.Store, a store.Admission) (counts map[store.Admitted]int, pause *store.Pause) {
	t.Helper()
	answers, pause, err := s.Admit(t.Context(), a)
	require.NoError(t, err)
	require.Len(t, answers, len(a.Changes))
	counts = map[store.Admitted]int{}
	for _, answer := range answers {
		counts[answer]++
	}
	return counts, pause
}

var guardTests = []test{
	{"entities are counted once up to the limit, and the next one pauses the service", func(t *testing.T, f *fixture) {
		counts, pause := admit(t, f.a, admission(guardTime, numbered(0, 40)...))
		require.Equal(t, map[store.Admitted]int{store.Counted: 40}, counts)
		require.Nil(t, pause)
		counts, pause = admit(t, f.b, admission(guardTime.Add(time.Second), numbered(20, 70)...))
		require.Equal(t, map[store.Admitted]int{store.Counted: 30, store.Held: 20}, counts, "20 of them are counted already")
		require.NotNil(t, pause)
		require.Equal(t, &store.Hold{Kind: store.GuardRetract, Counted: 50, Limit: 50, Entities: 1000, Window: 10 * time.Minute}, pause.Hold)
		pauses, err := f.b.Pauses(f.ctx())
		require.NoError(t, err)
		require.Equal(t, []store.Pause{*pause}, pauses)
		counts, _ = admit(t, f.a, admission(guardTime.Add(time.Hour), numbered(0, 3)...))
		require.Equal(t, map[store.Admitted]int{store.Held: 3}, counts, "the hold does not end by itself")
		require.NoError(t, f.a.EndPause(f.ctx(), guarded, store.Audit{Actor: "x", Action: "resume", Service: guarded}))
		pauses, err = f.b.Pauses(f.ctx())
		require.NoError(t, err)
		require.Len(t, pauses, 1, "only an operator's pause is resumed")
	}},
	{"the retraction of a young entity does not count, and waits with the others", func(t *testing.T, f *fixture) {
		a := admission(guardTime, numbered(0, 200)...)
		for i := range a.Changes {
			a.Changes[i].Young = i%2 == 0
		}
		counts, pause := admit(t, f.a, a)
		require.NotNil(t, pause)
		require.Equal(t, map[store.Admitted]int{store.Uncounted: 51, store.Counted: 50, store.Held: 99}, counts)
		require.EqualValues(t, 50, pause.Hold.Counted)
		audit := store.Audit{Actor: "ann", Action: "guard", Service: guarded}
		require.NoError(t, f.b.EndHold(f.ctx(), guarded, store.HoldEnd{Discard: store.Passes{3: change.NewVersion(1, 200)}}, guardTime, audit))
		counts, _ = admit(t, f.a, a)
		require.Equal(t, map[store.Admitted]int{store.Discarded: 200}, counts)
	}},
	{"the window slides", func(t *testing.T, f *fixture) {
		for minute := range 60 {
			counts, pause := admit(t, f.a, admission(guardTime.Add(time.Duration(minute)*time.Minute), numbered(5*minute, 5*minute+5)...))
			require.Nil(t, pause, "minute %d", minute)
			require.Equal(t, 5, counts[store.Counted])
		}
		_, pause := admit(t, f.a, admission(guardTime.Add(time.Hour), numbered(1000, 1008)...))
		require.NotNil(t, pause, "45 in the nine minutes before, and 8: more than 5 % of 1,045")
	}},
	{"an admission of many processes is exact", func(t *testing.T, f *fixture) {
		var mu sync.Mutex
		var all sync.WaitGroup
		admitted := map[string]bool{}
		for i := range 8 {
			all.Go(func() {
				for n := range 20 {
					ids := numbered(100*i+4*n, 100*i+4*n+4)
					var answers []store.Admitted
					err := retried(func() (err error) {
						answers, _, err = turn(i, f.a, f.b).Admit(context.WithoutCancel(f.ctx()), admission(guardTime, ids...))
						return err
					})
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					for j, answer := range answers {
						if answer == store.Counted {
							admitted[ids[j]] = true
						}
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.Len(t, admitted, 50)
	}},
	{"a release, a discard and an extension decide about what is held", func(t *testing.T, f *fixture) {
		audit := store.Audit{Actor: "ann", Action: "guard", Service: guarded}
		err := f.a.EndHold(f.ctx(), guarded, store.HoldEnd{Extend: true}, guardTime, audit)
		require.ErrorIs(t, err, store.ErrNotFound)
		ids := numbered(0, 120)
		_, pause := admit(t, f.a, admission(guardTime, ids...))
		require.NotNil(t, pause)
		require.NoError(t, f.b.EndHold(f.ctx(), guarded, store.HoldEnd{Extend: true}, guardTime, audit))
		counts, pause := admit(t, f.a, admission(guardTime.Add(time.Minute), ids...))
		require.Equal(t, map[store.Admitted]int{store.Counted: 100, store.Held: 20}, counts)
		require.EqualValues(t, 100, pause.Hold.Limit)
		at := func(offset int64) store.Passes { return store.Passes{3: change.NewVersion(1, offset)} }
		require.NoError(t, f.b.EndHold(f.ctx(), guarded, store.HoldEnd{Discard: at(5)}, guardTime.Add(2*time.Minute), audit))
		counts, _ = admit(t, f.a, admission(guardTime.Add(2*time.Minute), ids...))
		require.Equal(t, map[store.Admitted]int{store.Discarded: 5, store.Counted: 100, store.Held: 15}, counts, "a new window, and the extension lasts")
		require.NoError(t, f.b.EndHold(f.ctx(), guarded, store.HoldEnd{Release: at(110)}, guardTime.Add(2*time.Minute), audit))
		counts, pause = admit(t, f.a, admission(guardTime.Add(2*time.Minute), ids...))
		require.Equal(t, map[store.Admitted]int{store.Discarded: 5, store.Released: 105, store.Counted: 10}, counts)
		require.Nil(t, pause)
		audits, err := f.a.Audits(f.ctx(), store.AuditFilter{Service: guarded, Limit: 20})
		require.NoError(t, err)
		require.Len(t, audits, 6, "three holds and three decisions")
	}},
	{"a decision concerns the kind that is held", func(t *testing.T, f *fixture) {
		audit := store.Audit{Actor: "ann", Action: "guard", Service: guarded}
		updates := func(from, to int) store.Admission {
			a := admission(guardTime.Add(time.Minute), numbered(from, to)...)
			a.Kind, a.Share = store.GuardUpdate, 0.3
			return a
		}
		passes := store.Passes{3: change.NewVersion(1, 1000)}
		for service, end := range map[string]store.HoldEnd{"x": {Extend: true}, "r": {Release: passes}, "d": {Discard: passes}} {
			a, b := admission(guardTime, numbered(0, 120)...), updates(0, 301)
			a.Service, b.Service = service, service
			_, pause := admit(t, f.a, a)
			require.NotNil(t, pause)
			require.NoError(t, f.b.EndHold(f.ctx(), service, end, guardTime, audit))
			counts, pause := admit(t, f.a, b)
			require.Equal(t, map[store.Admitted]int{store.Counted: 300, store.Held: 1}, counts)
			require.EqualValues(t, 300, pause.Hold.Limit)
		}
	}},
	{"changes count at the time of their source", func(t *testing.T, f *fixture) {
		history := func(from, to int) store.Admission {
			a := admission(guardTime, numbered(from, to)...)
			for i := range a.Changes {
				a.Changes[i].At = guardTime.Add(time.Duration(i-100) * 20 * time.Second)
			}
			return a
		}
		for i := range 10 { // half an hour each, again and again
			counts, pause := admit(t, f.a, history(100*i, 100*i+100))
			if i > 0 {
				require.NotNil(t, pause, "the same hours: too dense")
				return
			}
			require.Equal(t, map[store.Admitted]int{store.Counted: 100}, counts)
			require.Nil(t, pause)
		}
	}},
	{"what is expired by its admission counts no longer", func(t *testing.T, f *fixture) {
		a := admission(guardTime, numbered(0, 50)...)
		for i := range a.Changes {
			a.Changes[i].At = guardTime.Add(-time.Hour)
		}
		admit(t, f.a, a)
		again := admission(guardTime.Add(time.Minute), "new")
		again.Changes[0].At = guardTime.Add(-time.Hour)
		a.Now = guardTime.Add(11 * time.Minute)
		later := a
		later.Changes = again.Changes
		counts, pause := admit(t, f.a, later)
		require.Equal(t, map[store.Admitted]int{store.Counted: 1}, counts)
		require.Nil(t, pause)
		counts, pause = admit(t, f.a, admission(guardTime.Add(11*time.Minute), numbered(100, 151)...))
		require.Equal(t, map[store.Admitted]int{store.Counted: 50, store.Held: 1}, counts)
		require.NotNil(t, pause)
	}},
	{"the limit follows the entities at the begin of the window", func(t *testing.T, f *fixture) {
		a := admission(guardTime, numbered(0, 40)...)
		admit(t, f.a, a)
		a = admission(guardTime.Add(time.Minute), numbered(40, 60)...)
		a.Entities = 960
		counts, _ := admit(t, f.a, a)
		require.Equal(t, map[store.Admitted]int{store.Counted: 10, store.Held: 10}, counts)
	}},
	{"an operator's pause stays as it is and is resumed", func(t *testing.T, f *fixture) {
		first := store.Pause{Service: "s", Since: guardTime, Actor: "ann", Reason: "they move"}
		require.NoError(t, f.a.PutPause(f.ctx(), first, store.Audit{Actor: "ann", Action: "pause", Service: "s"}))
		require.NoError(t, f.b.PutPause(f.ctx(), store.Pause{Service: "s", Since: guardTime, Actor: "bob"}, store.Audit{Actor: "bob", Action: "pause", Service: "s"}))
		pauses, err := f.b.Pauses(f.ctx())
		require.NoError(t, err)
		require.Equal(t, []store.Pause{first}, pauses)
		require.ErrorIs(t, f.a.EndHold(f.ctx(), "s", store.HoldEnd{Extend: true}, guardTime, store.Audit{}), store.ErrNotFound)
		require.NoError(t, f.a.EndPause(f.ctx(), "s", store.Audit{Actor: "ann", Action: "resume", Service: "s"}))
		pauses, err = f.b.Pauses(f.ctx())
		require.NoError(t, err)
		require.Empty(t, pauses)
	}},
}
