package core_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/stretchr/testify/require"
)

// alone drives a Service step by step.
type alone struct {
	t     *testing.T
	s     *core.Service
	now   time.Time
	v     change.Version
	all   []string // entities
	whole bool     // a failure is that of the whole write
}

func newAlone(t *testing.T, cfg core.Config) *alone {
	return &alone{t: t, s: core.New(cfg), now: time.Unix(1_000_000, 0)}
}

func (a *alone) add(entities ...string) {
	for _, entity := range entities {
		a.v++
		a.s.Add(&core.Item{Position: a.v, Version: a.v, Entity: entity, Bytes: 1})
		if !slices.Contains(a.all, entity) {
			a.all = append(a.all, entity)
		}
	}
}

// next returns the entities of the next attempt, and answers with a failure for each of
// bad.
func (a *alone) next(e *sinks.Error, bad ...string) (tried []string) {
	a.t.Helper()
	for {
		step := a.s.Next(a.now)
		switch step.Kind {
		case core.Wait, core.AwaitUp:
			require.False(a.t, step.Until.IsZero(), "there is something to do")
			a.now = step.Until
			continue
		case core.Conclude:
			return []string{"conclude " + step.Items[0].Entity}
		case core.Retry:
			a.s.Claim(a.now, step.Items)
		}
		failed := make([]*sinks.Error, len(step.Items))
		var whole *sinks.Error
		for n, i := range step.Items {
			tried = append(tried, i.Entity)
			if slices.Contains(bad, i.Entity) {
				if failed[n] = e; a.whole {
					whole = e
				}
			}
		}
		a.s.Done(a.now, step, time.Millisecond, failed, whole, false)
		return tried
	}
}

// outageOf takes each entity of a service through an outage in which the target answers with errors.
func (a *alone) outageOf(attempts int) {
	for range attempts {
		a.next(failureOf["503"], a.all...)
	}
}

// An answer against one change parks it at once, also if others succeed.
func TestAnAnswerParksAtOnce(t *testing.T) {
	a := newAlone(t, config(false, 10))
	a.add("bad", "good")
	require.Equal(t, []string{"bad", "good"}, a.next(failureOf["503"], "bad"))
	require.Equal(t, 1, a.s.Status().Rows)
	require.Zero(t, a.s.Hand.Len())
}

// A target that takes no connection parks and counts nothing, however long.
func TestAnUnreachableTargetParksNothing(t *testing.T) {
	a := newAlone(t, config(false, 10))
	a.add("bad")
	a.next(failureOf["503"], "bad")
	a.add("a", "b", "c")
	for a.now.Before(time.Unix(1_000_000, 0).Add(100 * 24 * time.Hour)) {
		a.next(unreachable, a.all...)
		a.now = a.now.Add(time.Hour)
	}
	status := a.s.Status()
	require.Equal(t, 1, status.Rows)
	require.Equal(t, 1, status.Oldest.Attempts)
	require.Equal(t, 3, a.s.Hand.Len())
	require.True(t, status.Failing)
	for a.s.Hand.Len() > 0 {
		a.next(nil)
	}
	require.False(t, a.s.Status().Failing)
}

// An attempt at a row that met no target is taken back, with its longer pause.
func TestAnAttemptThatIsTakenBack(t *testing.T) {
	a := newAlone(t, config(false, 10))
	a.add("bad")
	a.next(failureOf["503"], "bad")
	pause := a.s.Status().Next.Sub(a.now)
	require.Equal(t, []string{"bad"}, a.next(unreachable, "bad"))
	require.Equal(t, 1, a.s.Status().Oldest.Attempts)
	require.Equal(t, pause, a.s.Status().Next.Sub(a.now))
}

// A write that failed as a whole parks nothing: it is halved down to the change that fails, and
// doubles with each success.
func TestAWriteThatFailsAsAWholeIsHalved(t *testing.T) {
	a := newAlone(t, config(false, 8))
	a.whole = true
	a.add("a", "b", "c", "d", "e", "bad", "g", "h")
	var sizes []int
	for a.s.Hand.Len() > 0 {
		tried := a.next(failureOf["row"], "bad")
		sizes = append(sizes, len(tried))
		if a.s.Status().Rows > 0 {
			break
		}
	}
	require.Equal(t, []int{8, 4, 4, 2, 1}, sizes[:5])
	require.Equal(t, "bad", a.s.Status().Oldest.Entity)
	require.Equal(t, 1, a.s.Status().Rows)
}

// A target that answers everything with 503 for a day costs its cap of rows. After two entities it
// is tried with one change at a time, at most every 15 seconds, and not before it asked for. Then
// all arrives within minutes, and nothing was given up.
func TestADayOf503CostsTheCap(t *testing.T) {
	for _, log := range []bool{false, true} {
		w := newWorld(t, config(log, 10))
		w.cfg.For, w.cfg.Rows = 24*time.Hour, 200
		w.s = core.New(w.cfg)
		start, attempts := w.now, 0
		w.fail = func(string) *sinks.Error {
			if w.now.Sub(start) < 24*time.Hour {
				attempts++
				return failureOf["503"]
			}
			return nil
		}
		for n := range 600 {
			w.publish(fmt.Sprint("e", n%300))
		}
		w.until(start.Add(24 * time.Hour))
		require.LessOrEqual(t, attempts, 24*60*4*125/100+20)
		require.Len(t, w.rows, w.cfg.Rows)
		require.True(t, w.s.Status().Full)
		require.True(t, w.s.Status().Failing)
		w.until(start.Add(24*time.Hour + 10*time.Minute))
		require.Empty(t, w.letters)
		require.Empty(t, w.rows)
		require.Zero(t, w.s.Hand.Len())
		w.honest(false)
	}
}

// A target that answers 503 and 200 by turns, by attempts or for minutes, gets everything: nothing is given
// up for what met two bad phases before retry.for, and all arrives soon after.
func TestATargetThatAlternates(t *testing.T) {
	for name, works := range map[string]func(attempt int, at time.Duration) bool{
		"by attempts": func(attempt int, _ time.Duration) bool { return attempt%2 == 0 },
		"by minutes":  func(_ int, at time.Duration) bool { return at%(2*time.Minute) >= time.Minute },
	} {
		for _, log := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s log=%v", name, log), func(t *testing.T) {
				cfg := config(log, 10)
				cfg.For, cfg.Rows = 24*time.Hour, 200
				w := newWorld(t, cfg)
				start, attempt, last := w.now, 0, time.Time{}
				w.fail = func(string) *sinks.Error {
					if w.now != last {
						attempt, last = attempt+1, w.now
					}
					if works(attempt, w.now.Sub(start)) {
						return nil
					}
					return failureOf["503"]
				}
				for minute := range 6 * 60 {
					for n := range 20 {
						w.publish(fmt.Sprint("e", (20*minute+n)%300))
					}
					w.until(start.Add(time.Duration(minute) * time.Minute))
					require.LessOrEqual(t, len(w.rows), cfg.Rows)
				}
				w.until(w.now.Add(10 * time.Minute))
				require.Empty(t, w.letters)
				require.Empty(t, w.rows)
				require.Empty(t, w.open)
				w.honest(false)
			})
		}
	}
}

// I13: of a hundred busy entities one fails at each attempt. The others keep 90 % of the rate at which the
// target takes changes, with every class of failure.
func TestI13OneBadEntityCostsLittle(t *testing.T) {
	for kind, e := range failureOf {
		for _, log := range []bool{false, true} {
			for _, whole := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s log=%v whole=%v", kind, log, whole), func(t *testing.T) {
					w := newWorld(t, config(log, 20))
					w.cfg.For = 24 * time.Hour
					w.s = core.New(w.cfg)
					w.hang, w.all = 5*time.Millisecond, whole
					w.fail = func(entity string) *sinks.Error {
						if entity == "e0" {
							return e
						}
						return nil
					}
					for end := w.now.Add(time.Second); w.now.Before(end); w.step() {
						for len(w.log) < w.next+100 {
							w.publish(fmt.Sprint("e", len(w.log)%100))
						}
					}
					good := 0
					for _, i := range w.log {
						if i.Entity != "e0" && w.has[i.Position] {
							good++
						}
					}
					require.GreaterOrEqual(t, good, 1000*20*99/100*9/10, "a write takes a millisecond")
				})
			}
		}
	}
}

// A braked service asks for no attempt before the last Retry-After.
func TestABrakedServiceWaitsAsAsked(t *testing.T) {
	a := newAlone(t, config(false, 10))
	a.add("a", "b", "c")
	asks := &sinks.Error{Class: sinks.Retry, RetryAfter: time.Minute, Err: errors.New("429")}
	a.next(asks, "a", "b", "c")
	a.add("d", "e")
	from := a.now
	require.Equal(t, []string{"a"}, a.next(nil), "one change")
	require.GreaterOrEqual(t, a.now.Sub(from), time.Minute)
}

// A good change is given up only if it failed in two outages: time alone is not enough, even after
// the longest outage. It is in any case after seven times retry.for.
func TestTimeAloneGivesNothingUp(t *testing.T) {
	for name, entities := range map[string][]string{"two": {"a", "b"}, "many": {"a", "b", "c", "d"}} {
		t.Run(name, func(t *testing.T) {
			a := newAlone(t, config(true, 1))
			a.add(entities...)
			start := a.now
			for a.now.Sub(start) < 6*30*time.Second {
				require.NotContains(t, a.next(failureOf["503"], entities...)[0], "conclude")
			}
			require.Equal(t, len(entities), a.s.Status().Rows)
			for a.now.Sub(start) < 10*time.Minute {
				if strings.HasPrefix(a.next(failureOf["503"], entities...)[0], "conclude") {
					require.GreaterOrEqual(t, a.now.Sub(start), 7*30*time.Second)
					return
				}
			}
			require.Fail(t, "it never ends")
		})
	}
}

// A row that fails after another entity succeeded, and one that is alone, are given up when they
// are old.
func TestAnOldRowIsGivenUp(t *testing.T) {
	for name, others := range map[string]bool{"another succeeds": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			a := newAlone(t, config(true, 1))
			a.add("bad")
			start := a.now
			for a.next(failureOf["503"], "bad")[0] != "conclude bad" {
				require.Less(t, a.now.Sub(start), 2*30*time.Second+10*time.Second)
				if others {
					a.now = a.now.Add(time.Second)
					a.add("good")
				}
			}
			require.GreaterOrEqual(t, a.now.Sub(start), 30*time.Second)
		})
	}
}

// A takeover knows nothing of what others did: an old row is not given up by its next failure alone.
func TestATakeoverIsNoEvidence(t *testing.T) {
	a := newAlone(t, config(true, 1))
	a.s.Restore([]*core.Item{{Position: 1, Version: 1, Entity: "old", Since: a.now.Add(-time.Minute), Reason: "503"}, {Position: 2, Version: 2, Entity: "other", Since: a.now, Reason: "503"}})
	require.NotContains(t, a.next(failureOf["503"], "old", "other"), "conclude old")
	require.NotEqual(t, core.Conclude, a.s.Next(a.now).Kind)
}

// full makes a log sink's Service of which an entity fills its queue, after failures that another
// entity's success divides or not.
func full(t *testing.T, divided bool) *alone {
	a := newAlone(t, config(true, 1))
	a.add("bad")
	a.next(failureOf["503"], "bad")
	if divided {
		a.add("good")
		require.Equal(t, []string{"good"}, a.next(nil))
	}
	require.Equal(t, []string{"bad"}, a.next(failureOf["503"], "bad"))
	for range 100 {
		a.add("bad")
	}
	return a
}

// At its bound the oldest rows of an entity of a log sink are given up, several at once and in their
// order, if another entity succeeded between its failures. Else the newcomer waits in hand.
func TestAFullQueue(t *testing.T) {
	a := full(t, true)
	step := a.s.Next(a.now)
	require.Equal(t, core.Conclude, step.Kind)
	require.Len(t, step.Items, 10)
	for n, i := range step.Items {
		if require.Equal(t, core.GivenUp, i.State()); n > 0 {
			require.Greater(t, i.Position, step.Items[n-1].Position)
		}
		a.s.Concluded(i, true)
	}
	require.NotEqual(t, core.Conclude, a.s.Next(a.now).Kind)

	a = full(t, false)
	require.NotEqual(t, core.Conclude, a.s.Next(a.now).Kind)
	require.Equal(t, 100, a.s.Status().Rows)
	require.Equal(t, 1, a.s.Hand.Len())
	for a.s.Hand.Len() > 0 || a.s.Status().Rows > 0 {
		require.Equal(t, []string{"bad"}, a.next(nil), "in order")
	}
}

// A service without room still tries new changes, and failed ones in turns with the rows. One bad
// change hides no good one beside it.
func TestAFullServiceTriesAll(t *testing.T) {
	cfg := config(false, 1)
	cfg.Rows = 1
	a := newAlone(t, cfg)
	a.add("row", "a", "b", "c")
	for range 4 {
		a.next(failureOf["503"], a.all...)
	}
	require.Equal(t, 3, a.s.Hand.Len(), "held")
	require.True(t, a.s.Status().Full)
	tried := map[string]int{}
	for range 12 {
		tried[a.next(failureOf["503"], a.all...)[0]]++
	}
	for _, entity := range a.all {
		require.Positive(t, tried[entity], tried)
	}
	require.GreaterOrEqual(t, tried["row"], 3, "rows have turns")
	a.add("new")
	require.Contains(t, []string{a.next(nil, a.all...)[0], a.next(nil, a.all...)[0]}, "new", "new changes go first")
}

// The first success after a braked time makes rows due, within a minute.
func TestRowsAreDueAfterASuccess(t *testing.T) {
	cfg := config(false, 20)
	cfg.MaxBackoff, cfg.For = time.Hour, 24*time.Hour
	a := newAlone(t, cfg)
	for n := range 20 {
		a.add(fmt.Sprint("e", n))
	}
	a.outageOf(200)
	from := a.now
	a.add("new")
	a.next(nil)
	for a.s.Status().Rows > 0 {
		a.next(nil)
	}
	require.LessOrEqual(t, a.now.Sub(from), longest(cfg)+time.Minute)
}

func longest(cfg core.Config) time.Duration { return min(cfg.MaxBackoff, 15*time.Second) }

// A service that is refused as a whole is tried with one change at a time, each time another one, and
// parks none.
func TestARefusedServiceParksNothing(t *testing.T) {
	a := newAlone(t, config(false, 10))
	a.add("a", "b", "c")
	pause := &sinks.Error{Class: sinks.Pause, Err: errors.New("401")}
	a.whole = true
	require.Len(t, a.next(pause, "a", "b", "c"), 3)
	tried := map[string]bool{}
	for range 6 {
		one := a.next(pause, "a", "b", "c")
		require.Len(t, one, 1)
		tried[one[0]] = true
	}
	require.Len(t, tried, 3)
	require.Zero(t, a.s.Status().Rows)
	require.True(t, a.s.Status().Refused)
	for a.s.Hand.Len() > 0 {
		a.next(nil)
	}
	require.False(t, a.s.Status().Refused)
}
