package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// world drives a Service against a target, in simulated time, and is its store.
type world struct {
	t   require.TestingT
	cfg core.Config
	s   *core.Service
	now time.Time
	end time.Time // of waiting; zero: none

	log      []*core.Item // every change, in its order
	next     int          // of the log
	settled  map[change.Version]core.Outcome
	rows     map[change.Version]core.Item // in the store
	letters  map[change.Version]bool
	arrived  map[change.Version]time.Time
	latest   map[string]change.Version // newest in the target
	has      map[change.Version]bool   // in the target
	lateness time.Duration             // the longest, of changes of good entities
	attempts map[string]int
	failures int // in a row while a good change waited
	worst    int

	fail func(entity string) *sinks.Error // nil: it works
	hang time.Duration                    // of an attempt that times out
	all  bool                             // a failure is that of the whole write
	bad  map[string]bool

	open map[change.Version]bool     // changes of good entities that are neither settled nor parked
	of   map[string][]change.Version // changes by entity
}

func newWorld(t require.TestingT, cfg core.Config) *world {
	return &world{
		t: t, cfg: cfg, s: core.New(cfg), now: time.Unix(1_000_000, 0), settled: map[change.Version]core.Outcome{}, rows: map[change.Version]core.Item{},
		letters: map[change.Version]bool{}, arrived: map[change.Version]time.Time{}, latest: map[string]change.Version{}, has: map[change.Version]bool{},
		attempts: map[string]int{}, bad: map[string]bool{}, open: map[change.Version]bool{}, of: map[string][]change.Version{},
	}
}

func (w *world) publish(entity string) {
	v := change.Version(len(w.log) + 1)
	w.log = append(w.log, &core.Item{Position: v, Version: v, Entity: entity, Bytes: 100})
	w.arrived[v] = w.now
	w.of[entity] = append(w.of[entity], v)
	if !w.bad[entity] {
		w.open[v] = true
	}
}

// effects applies the effects of the core; a crash comes between two calls of it.
func (w *world) effects() {
	for _, e := range w.s.Effects() {
		delete(w.open, e.Item.Position)
		switch e.Kind {
		case core.Put:
			row := *e.Item
			w.rows[e.Item.Position] = row
		case core.End:
			delete(w.rows, e.Item.Position)
		case core.Letter:
			delete(w.rows, e.Item.Position)
			w.letters[e.Item.Position] = true
		case core.Settle:
			w.settled[e.Item.Position] = e.Outcome
		}
	}
}

// step does one thing and reports whether there was any.
func (w *world) step() bool {
	for w.next < len(w.log) && w.s.Hand.Room() > 0 {
		i := *w.log[w.next]
		w.s.Add(&i)
		w.next++
	}
	next := w.s.Next(w.now)
	switch next.Kind {
	case core.Write:
		w.attempt(next)
	case core.Retry:
		w.s.Claim(w.now, next.Items)
		w.effects()
		w.attempt(next)
	case core.Conclude:
		for _, i := range next.Items {
			w.s.Concluded(i, true)
		}
	case core.Wait, core.AwaitUp:
		w.effects()
		if next.Until.IsZero() || !next.Until.After(w.now) {
			require.True(w.t, next.Until.IsZero(), "waits for what is over")
			return false
		}
		if w.now = next.Until; !w.end.IsZero() && w.now.After(w.end) {
			w.now = w.end
		}
		return true
	}
	w.effects()
	return true
}

func (w *world) attempt(step core.Step) {
	failed := make([]*sinks.Error, len(step.Items))
	var whole *sinks.Error
	took := time.Millisecond
	waits := len(w.open) > 0
	seen := map[string]bool{}
	for n, i := range step.Items {
		w.attempts[i.Entity]++
		if failed[n] = w.fail(i.Entity); failed[n] != nil {
			whole = failed[n]
			if errors.Is(whole, context.DeadlineExceeded) {
				took = w.hang
			}
		}
		if w.cfg.Log {
			require.Falsef(w.t, seen[i.Entity] && step.Kind == core.Retry, "two rows of %s at once", i.Entity)
		}
		seen[i.Entity] = true
	}
	if !w.all {
		whole = nil
	}
	w.now = w.now.Add(took)
	good := false
	for n, i := range step.Items {
		if whole != nil || failed[n] != nil {
			if w.cfg.Log && failed[n] != nil && whole == nil {
				for m := n + 1; m < len(step.Items); m++ { // a sink keeps the order
					if step.Items[m].Entity == i.Entity && failed[m] == nil {
						failed[m] = &sinks.Error{Class: sinks.Retry, Err: sinks.ErrNotAttempted}
					}
				}
			}
			continue
		}
		good = true
		w.take(i)
	}
	if good || !waits {
		w.failures = 0
	} else {
		w.failures++
		w.worst = max(w.worst, w.failures)
	}
	w.s.Done(w.now, step, took, failed, whole, false)
}

// take is the target's side: it checks the order.
func (w *world) take(i *core.Item) {
	if w.cfg.Log {
		of := w.of[i.Entity]
		if at := slices.Index(of, i.Position); at > 0 {
			require.Truef(w.t, w.has[of[at-1]] || w.letters[of[at-1]], "%d of %s before %d", i.Position, i.Entity, of[at-1])
		}
	} else {
		require.GreaterOrEqualf(w.t, i.Version, w.latest[i.Entity], "older over newer of %s", i.Entity)
	}
	w.latest[i.Entity] = max(w.latest[i.Entity], i.Version)
	w.has[i.Position] = true
	if !w.bad[i.Entity] {
		w.lateness = max(w.lateness, w.now.Sub(w.arrived[i.Position]))
	}
}

// honest asserts that nothing is lost: each change is in the target, in a row or a letter,
// in hand or in the log, or a newer one of its entity replaced it.
func (w *world) honest(inHand bool) {
	newest := map[string]change.Version{}
	for _, i := range w.log {
		newest[i.Entity] = i.Version
	}
	for _, i := range w.log {
		_, parked := w.rows[i.Position]
		_, settled := w.settled[i.Position]
		switch {
		case parked || w.letters[i.Position] || w.has[i.Position]:
		case !settled && inHand:
		case !w.cfg.Log && newest[i.Entity] > i.Version:
		default:
			require.Failf(w.t, "lost", "%d of %s: settled %v", i.Position, i.Entity, w.settled[i.Position])
		}
	}
}

func (w *world) until(t time.Time) {
	w.end = t
	defer func() { w.end = time.Time{} }()
	for w.now.Before(t) {
		if !w.step() {
			w.now = t
		}
	}
}

// failureOf are the ways in which a target fails for one entity.
var failureOf = map[string]*sinks.Error{
	"500":               {Class: sinks.RetryBounded, Err: errors.New("500")},
	"503":               {Class: sinks.Retry, Err: errors.New("503")},
	"429":               {Class: sinks.Retry, RetryAfter: 2 * time.Second, Err: errors.New("429")},
	"broken connection": {Class: sinks.Retry, Ambiguous: true, Err: errors.New("reset")},
	"hanging":           {Class: sinks.Retry, Ambiguous: true, Err: context.DeadlineExceeded},
	"row":               {Class: sinks.RetryBounded, Err: errors.New("57014")},
}

// unreachable is the failure of a target that takes no connection.
var unreachable = &sinks.Error{Class: sinks.Retry, Unreachable: true, Err: errors.New("connection refused")}

func config(log bool, batch int) core.Config {
	return core.Config{Log: log, For: 30 * time.Second, MinBackoff: 200 * time.Millisecond, MaxBackoff: 30 * time.Second, MaxBatch: batch}
}

// I13: one entity of a hundred fails at each attempt, with every class of failure: the others
// are delivered within a second, and the bad one is a dead letter after retry.for, also
// when it is updated all the time.
func TestI13OneEntityFailsForever(t *testing.T) {
	for kind, e := range failureOf {
		for _, log := range []bool{false, true} {
			for _, batch := range []int{1, 100} {
				for _, whole := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s log=%v batch=%d whole=%v", kind, log, batch, whole), func(t *testing.T) {
						w := newWorld(t, config(log, batch))
						w.hang, w.all, w.bad["bad"] = 300*time.Millisecond, whole, true
						w.fail = func(entity string) *sinks.Error {
							if entity == "bad" {
								return e
							}
							return nil
						}
						for round := range 900 { // a minute and a half
							for n := range 10 {
								w.publish(fmt.Sprint("good", (10*round+n)%99))
							}
							if round%10 == 0 {
								w.publish("bad")
							}
							w.until(time.Unix(1_000_000, 0).Add(time.Duration(round+1) * 100 * time.Millisecond))
						}
						require.LessOrEqual(t, w.lateness, time.Second+2*w.hang, "a batch is halved seven times")
						require.NotEmpty(t, w.letters, "a dead letter")
						require.LessOrEqual(t, w.worst, 4, "failed attempts in a row while others wait")
						w.honest(true)
					})
				}
			}
		}
	}
}

// Changes come, entities fail, the target goes down, the process crashes: nothing is lost,
// nothing old overwrites anything new, rows are bounded, and all ends.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cfg := config(rapid.Bool().Draw(r, "log"), rapid.SampledFrom([]int{1, 3, 20}).Draw(r, "batch"))
		cfg.For = time.Duration(rapid.IntRange(1, 60).Draw(r, "for")) * time.Second
		cfg.Rows, cfg.EntityRows, cfg.Window = rapid.IntRange(1, 6).Draw(r, "rows"), rapid.IntRange(1, 4).Draw(r, "entity rows"), rapid.IntRange(2, 8).Draw(r, "window")
		w := newWorld(r, cfg)
		w.hang, w.all = time.Second, rapid.Bool().Draw(r, "whole")
		entities := []string{"a", "b", "c", "d"}
		for _, entity := range entities {
			w.bad[entity] = rapid.IntRange(0, 2).Draw(r, "bad") == 0
		}
		kinds := []string{"500", "503", "429", "broken connection", "hanging", "row"}
		kind := failureOf[rapid.SampledFrom(kinds).Draw(r, "kind")]
		refuses := rapid.Bool().Draw(r, "refuses")
		down := false
		w.fail = func(entity string) *sinks.Error {
			switch {
			case down:
				return rapid.SampledFrom([]*sinks.Error{unreachable, failureOf["503"]}).Draw(r, "outage")
			case w.bad[entity] && refuses && rapid.Bool().Draw(r, "refused"):
				return &sinks.Error{Class: sinks.Reject, Err: errors.New("422")}
			case w.bad[entity] && rapid.IntRange(0, 3).Draw(r, "fails") > 0:
				return kind
			}
			return nil
		}
		check := func() {
			require.LessOrEqual(r, len(w.rows), cfg.Rows)
			w.honest(true)
			if cfg.Log {
				return
			}
			rows := map[string]int{}
			for _, i := range w.rows {
				rows[i.Entity]++
				require.Equal(r, 1, rows[i.Entity], "one row of an entity")
			}
		}
		for range rapid.IntRange(5, 60).Draw(r, "events") {
			switch rapid.IntRange(0, 9).Draw(r, "event") {
			case 0, 1, 2, 3:
				w.publish(rapid.SampledFrom(entities).Draw(r, "entity"))
			case 4:
				down = !down
			case 5:
				w.crash(r)
			default:
				for range 5 {
					w.step()
				}
			}
			check()
		}
		down = false
		for n := 0; ; n++ {
			require.Less(r, n, 20_000, "it ends")
			if !w.step() {
				break
			}
			check()
		}
		require.Empty(r, w.rows)
		require.Zero(r, w.s.Hand.Len())
		w.honest(false)
	})
}

// crash begins anew from the store: rows, and the log from the first change on that was
// neither settled nor parked.
func (w *world) crash(*rapid.T) {

	w.s = core.New(w.cfg)
	var rows []*core.Item
	for _, i := range w.rows {
		row := core.Item{Position: i.Position, Version: i.Version, Entity: i.Entity, Bytes: i.Bytes, Attempts: i.Attempts, Next: i.Next, Since: i.Since, Reason: i.Reason}
		rows = append(rows, &row)
	}
	slices.SortFunc(rows, func(a, b *core.Item) int { return int(a.Position) - int(b.Position) })
	w.s.Restore(rows)
	for w.next = 0; w.next < len(w.log); w.next++ {
		v := w.log[w.next].Position
		_, settled := w.settled[v]
		if _, parked := w.rows[v]; !settled && !parked {
			break
		}
	}
	for _, i := range w.log[w.next:] { // they come again
		if !w.letters[i.Position] {
			delete(w.settled, i.Position)
		}
		if w.latest[i.Entity] >= i.Version && !w.cfg.Log {
			w.latest[i.Entity] = i.Version - 1 // deliver looks into the dam before it repeats
		}
	}
}

// later is the longest Retry-After that counts.
var later = &sinks.Error{Class: sinks.Retry, RetryAfter: 5 * time.Minute, Err: errors.New("429")}

// I13: several entities fail, each in its own way, and changes come as they like: no good one
// waits for a time that the target named for a bad one.
func TestI13NoGoodChangeWaitsLong(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(r, config(rapid.Bool().Draw(r, "log"), rapid.SampledFrom([]int{1, 3, 20}).Draw(r, "batch")))
		w.hang, w.all = 300*time.Millisecond, rapid.Bool().Draw(r, "whole")
		kinds := []string{"500", "503", "429", "broken connection", "hanging", "row"}
		fails := map[string]*sinks.Error{}
		for n := range rapid.IntRange(1, 6).Draw(r, "bad") {
			entity := fmt.Sprint("bad", n)
			w.bad[entity] = true
			// Two entities that ask for rest are a target that does.
			if fails[entity] = later; n > 0 || !rapid.Bool().Draw(r, "later") {
				fails[entity] = failureOf[rapid.SampledFrom(kinds).Draw(r, "kind")]
			}
		}
		w.fail = func(entity string) *sinks.Error { return fails[entity] }
		for range rapid.IntRange(5, 100).Draw(r, "events") {
			if rapid.IntRange(0, 1).Draw(r, "good") == 0 {
				w.publish(fmt.Sprint("good", rapid.IntRange(0, 5).Draw(r, "which")))
			} else {
				w.publish(fmt.Sprint("bad", rapid.IntRange(0, len(fails)-1).Draw(r, "which")))
			}
			w.until(w.now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(r, "ms")) * time.Millisecond))
		}
		w.until(w.now.Add(10 * time.Minute))
		require.Empty(r, w.open)
		require.LessOrEqual(r, w.lateness, 2*time.Minute, "each bad entity may take an attempt before it")
	})
}
