package core_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
)

// pacedChange is a change with its state in the worker and at the target.
type pacedChange struct {
	entity string
	at     time.Time // it was published
	done   bool
	passed bool // an earlier change of the entity keeps the position
	by     *pacedChange
}

func (c *pacedChange) settled() bool {
	for c.by != nil {
		c = c.by
	}
	return c.done
}

// paceWorld is the log, the worker and the target of a service with a pace, in simulated time.
// Its position is that of the first change that is not settled, as Flow keeps it.
type paceWorld struct {
	t       require.TestingT
	cfg     core.Config
	s       *core.Service
	now     time.Time
	log     []*pacedChange
	read    int
	rows    map[change.Version]core.Item
	tries   []time.Time // of all attempts, over kills
	latest  map[string]change.Version
	writes  map[string]int
	fail    func(entity string) *sinks.Error
	early   bool                 // an attempt may come before its entity is quiet
	arrival map[string]time.Time // of the newest change of an entity in hand
	sent    map[string]time.Time // when the entity was written last
}

func newPaceWorld(t require.TestingT, cfg core.Config) *paceWorld {
	w := &paceWorld{
		t: t, cfg: cfg, now: time.Unix(1_000_000, 0), rows: map[change.Version]core.Item{}, latest: map[string]change.Version{},
		writes: map[string]int{}, arrival: map[string]time.Time{}, sent: map[string]time.Time{}, fail: func(string) *sinks.Error { return nil },
	}
	w.start()
	return w
}

func (w *paceWorld) start() {
	w.s = core.New(w.cfg)
	w.s.Rate.Share(1, 1, w.now)
	var rows []*core.Item
	for _, at := range slices.Sorted(maps.Keys(w.rows)) {
		r := w.rows[at]
		rows = append(rows, &core.Item{Position: r.Position, Version: r.Version, Entity: r.Entity, Bytes: 1, Attempts: r.Attempts, Next: r.Next, Since: r.Since, Reason: r.Reason})
	}
	w.s.Restore(rows)
}

// kill loses all but the rows, the position and the log.
func (w *paceWorld) kill() {
	w.read = slices.IndexFunc(w.log, func(c *pacedChange) bool { return !c.passed && !c.settled() })
	if w.read < 0 {
		w.read = len(w.log)
	}
	for _, c := range w.log[w.read:] {
		c.done, c.passed, c.by = false, false, nil
	}
	clear(w.arrival)
	w.start()
}

func (w *paceWorld) publish(entity string) {
	w.log = append(w.log, &pacedChange{entity: entity, at: w.now})
}

func (w *paceWorld) of(i *core.Item) *pacedChange { return w.log[i.Position-1] }

func (w *paceWorld) apply() {
	for _, e := range w.s.Effects() {
		c := w.of(e.Item)
		switch e.Kind {
		case core.Put:
			w.rows[e.Item.Position] = *e.Item
			c.done = true
		case core.End, core.Letter:
			delete(w.rows, e.Item.Position)
		case core.Settle:
			if e.By == nil {
				c.done = true
				continue
			}
			c.by = w.of(e.By)
			if first := e.Item.KeepsPosition(); first != nil && e.Outcome == core.Coalesced {
				w.of(first).by, c.passed = c.by, true
			}
		}
	}
}

// step does one thing and returns how long nothing follows; 0: something may.
func (w *paceWorld) step() (wait time.Duration) {
	for w.read < len(w.log) && w.s.Hand.Room() > 0 {
		c := w.log[w.read]
		w.read++
		i := &core.Item{Position: change.Version(w.read), Version: change.Version(w.read), Entity: c.entity, Bytes: 1, Arrived: w.now, OldestUnsent: c.at}
		w.arrival[c.entity] = w.now
		w.s.Add(i)
	}
	w.apply()
	next := w.s.Next(w.now)
	switch next.Kind {
	case core.Write, core.Retry:
		if next.Kind == core.Retry {
			w.s.Claim(w.now, next.Items)
			w.apply()
		}
		w.attempt(next)
	case core.Conclude:
		for _, i := range next.Items {
			w.s.Concluded(i, true)
			w.latest[i.Entity] = max(w.latest[i.Entity], i.Version) // the letter has it
		}
	case core.Wait, core.AwaitUp:
		w.inTime()
		if next.Until.IsZero() {
			return time.Hour
		}
		require.Greater(w.t, next.Until, w.now, "waits for what is over")
		return next.Until.Sub(w.now)
	}
	w.apply()
	return 0
}

// inTime asserts, while nothing but settling holds changes back, that none waits too long.
func (w *paceWorld) inTime() {
	if w.early {
		return
	}
	for n, c := range w.log[:w.read] {
		if !c.settled() && w.latest[c.entity] < change.Version(n+1) {
			require.Less(w.t, w.now.Sub(c.at), w.cfg.Pace.SettleMax, "%d of %s", n+1, c.entity)
		}
	}
}

func (w *paceWorld) attempt(step core.Step) {
	failed := make([]*sinks.Error, len(step.Items))
	for n, i := range step.Items {
		w.tries = append(w.tries, w.now)
		if failed[n] = w.fail(i.Entity); failed[n] != nil {
			continue
		}
		if p := w.cfg.Pace; p.Settle > 0 && !w.early && step.Kind == core.Write {
			quiet, first := w.now.Sub(w.arrival[i.Entity]), w.now.Sub(i.OldestUnsent)
			require.Truef(w.t, quiet >= p.Settle || first >= p.SettleMax || w.sent[i.Entity].Equal(w.now), "%s after %v of quiet, and %v in all", i.Entity, quiet, first)
		}
		if w.cfg.Log {
			for v := w.latest[i.Entity] + 1; v < i.Version; v++ {
				require.NotEqualf(w.t, i.Entity, w.log[v-1].entity, "%d before %d", i.Version, v)
			}
		}
		w.latest[i.Entity], w.sent[i.Entity] = max(w.latest[i.Entity], i.Version), w.now
		w.writes[i.Entity]++
	}
	w.s.Done(w.now, step, 0, failed, nil, false)
}

// run runs until a time, and then applies all that is due.
func (w *paceWorld) run(until time.Time) {
	for {
		wait := w.step()
		if wait == 0 {
			continue
		}
		if w.now.Add(wait).After(until) {
			w.now = until
			return
		}
		w.now = w.now.Add(wait)
	}
}

// drain runs until nothing is left, and asserts that the last content of each entity arrived.
func (w *paceWorld) drain() {
	for n := 0; w.s.Hand.Len()+len(w.rows) > 0 || w.read < len(w.log); n++ {
		require.Less(w.t, n, 100_000)
		w.run(w.now.Add(time.Minute))
	}
	for n, c := range w.log {
		require.GreaterOrEqualf(w.t, w.latest[c.entity], change.Version(n+1), "%d of %s is lost", n+1, c.entity)
	}
}

// keepsRate asserts the rate over each window of attempts.
func (w *paceWorld) keepsRate() {
	p := w.cfg.Pace
	for i := range w.tries {
		for j := i; j < len(w.tries); j++ {
			most := float64(p.Burst) + float64(w.tries[j].Sub(w.tries[i]))/float64(p.Every)
			require.LessOrEqualf(w.t, float64(j-i+1), most+1e-6, "attempts within %v", w.tries[j].Sub(w.tries[i]))
		}
	}
}

func TestPaceHoldsOverHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := func(from, to int, label string) time.Duration {
			return time.Duration(rapid.IntRange(from, to).Draw(t, label)) * time.Millisecond
		}
		cfg := core.Config{Log: rapid.Bool().Draw(t, "log"), MaxBatch: rapid.IntRange(1, 5).Draw(t, "batch"), MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second}
		if rapid.Bool().Draw(t, "limited") {
			cfg.Pace.Every, cfg.Pace.Burst = ms(1, 700, "every"), rapid.IntRange(1, 6).Draw(t, "burst")
		}
		if rapid.Bool().Draw(t, "settles") {
			cfg.Pace.Settle = ms(1, 3000, "settle")
			cfg.Pace.SettleMax = cfg.Pace.Settle + ms(0, 6000, "more")
		}
		if rapid.Bool().Draw(t, "narrow") {
			cfg.Window = rapid.IntRange(cfg.MaxBatch, 8).Draw(t, "window")
		}
		w := newPaceWorld(t, cfg)
		bad := map[string]bool{}
		if rapid.Bool().Draw(t, "fails") {
			w.fail = func(entity string) *sinks.Error {
				if bad[entity] {
					return &sinks.Error{Class: sinks.RetryBounded, Op: "post", Err: errors.New("500")}
				}
				return nil
			}
			bad["e0"] = true
		}
		w.early = cfg.Window > 0 || cfg.Pace.Every > 0 || len(bad) > 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "does") {
			case 0:
				w.kill()
			case 1:
				clear(bad)
			case 2, 3:
				w.run(w.now.Add(ms(1, 4000, "passes")))
			default:
				w.publish(fmt.Sprint("e", rapid.IntRange(0, 3).Draw(t, "entity")))
				if rapid.Bool().Draw(t, "read") {
					w.run(w.now)
				}
			}
		}
		clear(bad)
		w.drain()
		if cfg.Pace.Every > 0 {
			w.keepsRate()
		}
	})
}

func TestAHotEntityIsWrittenThreeTimesAtMost(t *testing.T) {
	t.Parallel()
	for _, kills := range []int{0, 3} {
		w := newPaceWorld(t, core.Config{MaxBatch: 100, Pace: core.Pace{Settle: 2 * time.Second, SettleMax: 30 * time.Second}})
		for n := range 1000 {
			w.publish("hot")
			w.run(w.now.Add(time.Millisecond))
			if kills > 0 && n%250 == 249 {
				w.kill()
			}
		}
		w.drain()
		require.Equal(t, 1, w.writes["hot"])
		for range 600 { // never quiet
			w.publish("hot")
			w.run(w.now.Add(100 * time.Millisecond))
		}
		w.drain()
		require.Equal(t, 1+2, w.writes["hot"])
	}
}

// A write during which the bucket fills again spends its tokens at its end.
func TestRateHoldsOverLongWrites(t *testing.T) {
	t.Parallel()
	w := newPaceWorld(t, core.Config{MaxBatch: 10, Pace: core.Pace{Every: time.Second, Burst: 3}})
	require.Equal(t, core.Wait, w.s.Next(w.now).Kind, "a new process does not know what the one before spent")
	w.now = w.now.Add(time.Hour)
	for n := range 9 {
		w.publish(fmt.Sprint("e", n))
		w.read++
		w.s.Add(&core.Item{Position: change.Version(w.read), Version: change.Version(w.read), Entity: fmt.Sprint("e", n)})
	}
	step := w.s.Next(w.now)
	require.Len(t, step.Items, 3)
	w.now = w.now.Add(time.Minute)
	w.s.Done(w.now, step, time.Minute, make([]*sinks.Error, 3), nil, false)
	step = w.s.Next(w.now)
	require.Equal(t, core.Wait, step.Kind)
	require.InDelta(t, time.Second, step.Until.Sub(w.now), float64(time.Millisecond))
	w.s.Rate.Share(1, 4, step.Until)
	require.Equal(t, core.Write, w.s.Next(step.Until).Kind, "it keeps what it has")
	w.s.Done(step.Until, core.Step{Kind: core.Write, Items: []*core.Item{{Entity: "x"}}}, 0, make([]*sinks.Error, 1), nil, false)
	next := w.s.Next(step.Until)
	require.InDelta(t, 4*time.Second, next.Until.Sub(step.Until), float64(10*time.Millisecond))
}

// A process that waited without a partition has no tokens for its first: the former owner may have
// spent the rate.
func TestRateHoldsOverTakeovers(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	s := core.New(core.Config{MaxBatch: 10, Pace: core.Pace{Every: time.Second, Burst: 3}})
	require.Equal(t, core.Wait, s.Next(at).Kind)
	for n := range 2 {
		at = at.Add(time.Hour)
		s.Rate.Share(1, 1, at)
		s.Add(&core.Item{Position: change.Version(n + 1), Version: change.Version(n + 1), Entity: fmt.Sprint("e", n)})
		step := s.Next(at)
		require.Equal(t, core.Wait, step.Kind)
		step = s.Next(step.Until)
		require.Len(t, step.Items, 1)
		s.Done(step.Until, step, 0, make([]*sinks.Error, 1), nil, false)
		s.Rate.Share(0, 1, at)
	}
}

func TestLingerEndsWithAFullWrite(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	s := core.New(core.Config{MaxBatch: 3, MaxBytes: 100, Pace: core.Pace{Linger: time.Second}})
	add := func(n, bytes int) {
		s.Add(&core.Item{Position: change.Version(n), Version: change.Version(n), Entity: fmt.Sprint("e", n), Bytes: int64(bytes), Arrived: at})
	}
	done := func(now time.Time, count int) {
		t.Helper()
		step := s.Next(now)
		require.Equal(t, core.Write, step.Kind)
		require.Len(t, step.Items, count)
		s.Done(now, step, 0, make([]*sinks.Error, count), nil, false)
	}
	add(1, 1)
	add(2, 1)
	require.Equal(t, core.Step{Until: at.Add(time.Second)}, s.Next(at), "room for one more")
	add(3, 1)
	done(at, 3)
	add(4, 60)
	add(5, 60)
	done(at, 1)
	require.Equal(t, core.Step{Until: at.Add(time.Second)}, s.Next(at))
	s.Hand.Crowded = true
	done(at, 1)
	s.Hand.Crowded = false
	add(6, 1)
	done(at.Add(time.Second), 1)
}
