package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// guarding sets the guard of all services.
func guarding(g deliver.Guard) func(*deliver.Options) {
	return func(o *deliver.Options) {
		for i := range o.Services {
			o.Services[i].Guard = g
		}
	}
}

var usualGuard = deliver.Guard{Retract: 0.05, Min: 10, Window: 10 * time.Minute}

// entering is the first change of an entity, leaving its retraction.
func entering(entity string, offset int64) change.Change {
	c := of(service, entity, offset)
	c.Effect = change.Enters
	return c
}

func leaving(entity string, offset int64) change.Change {
	c := of(service, entity, offset)
	c.Op, c.Doc, c.Content, c.Effect = change.Retract, nil, change.Retracted(), change.Leaves
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	return c
}

// loaded publishes the first changes of n entities, and returns the next offset.
func (w *world) loaded(n int) int64 {
	for first := 0; first < n; first += 500 {
		var changes []change.Change
		for i := first; i < min(n, first+500); i++ {
			changes = append(changes, entering(fmt.Sprint("e", i), int64(i)))
		}
		w.publish(changes...)
	}
	return int64(n)
}

// retractAll publishes the retractions of entities from one up to another.
func (w *world) retractAll(from, to int, offset int64) {
	for first := from; first < to; first += 100 {
		var changes []change.Change
		for i := first; i < min(to, first+100); i++ {
			changes = append(changes, leaving(fmt.Sprint("e", i), offset+int64(i-from)))
		}
		w.publish(changes...)
	}
}

// pauses returns the pauses of the store as the monitor hands them to a stage.
func (w *world) pauses() map[string]store.Pause {
	all, err := w.store.Pauses(w.t.Context())
	require.NoError(w.t, err)
	paused := map[string]store.Pause{}
	for i := range all {
		paused[all[i].Service] = all[i]
	}
	return paused
}

// held waits until the guard holds the service.
func (p *process) held() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { s, is := p.pauses()[service]; return is && s.Hold != nil }, patience, time.Millisecond)
}

// decideHold ends the hold at everything that is decided, and tells the stage.
func (p *process) decideHold(end func(store.Passes) store.HoldEnd) {
	p.t.Helper()
	require.NoError(p.t, p.store.EndHold(p.t.Context(), service, end(store.Passes{0: at(p.next)}), time.Now(), store.Audit{Actor: "ann", Action: "guard", Service: service}))
	p.stage.Pause(p.pauses())
}

// A mass deletion stops at the limit, other changes wait with it, and nothing is lost: a release
// sends the rest.
func TestAMassDeletionIsHeld(t *testing.T) {
	for _, traits := range []sinks.Traits{{Kind: sinks.State, MaxBatch: 100}, logOf(64), {Kind: sinks.State, Guarded: true, MaxBatch: 7}} {
		t.Run(fmt.Sprint(traits.Kind, traits.MaxBatch), func(t *testing.T) {
			p := newWorld(t, service).start(map[string]sinks.Traits{service: traits}, guarding(usualGuard))
			p.loaded(1000)
			p.delivered()
			p.retractAll(0, 600, 1000)
			p.publish(entering("new", 1600))
			p.held()
			require.Eventually(t, func() bool { return len(p.sinks[service].has()) == 1050 }, patience, time.Millisecond, "5 % of 1,000 may leave")
			c := p.stage.Conditions()[service]
			require.Equal(t, deliver.StatePaused, c.State)
			require.Equal(t, "held by the guard", c.Cause)
			require.EqualValues(t, 1000, c.Pause.Hold.Entities)
			require.EqualValues(t, 1, p.metric("weir_guard_holds_total", service))
			p.stage.Pause(nil) // a stale look at the pauses
			require.Eventually(t, func() bool { return p.stage.Conditions()[service].State == deliver.StatePaused }, patience, time.Millisecond)
			require.Len(t, p.sinks[service].has(), 1050)

			p.decideHold(func(at store.Passes) store.HoldEnd { return store.HoldEnd{Release: at} })
			p.delivered()
			require.Len(t, p.sinks[service].has(), 1601)
			p.retractAll(600, 610, 1601)
			p.delivered()
			require.Len(t, p.sinks[service].has(), 1611, "later changes are counted anew")
		})
	}
}

// After a release a state sink gets the newest change of an entity only, a log sink all.
func TestAReleaseSendsTheNewest(t *testing.T) {
	for _, log := range []bool{false, true} {
		traits := sinks.Traits{Kind: sinks.State, Guarded: true, MaxBatch: 20}
		if log {
			traits = logOf(20)
		}
		p := newWorld(t, service).start(map[string]sinks.Traits{service: traits}, guarding(usualGuard))
		p.loaded(200)
		p.delivered()
		p.retractAll(0, 150, 200)
		p.held()
		var back []change.Change
		for i := range 150 {
			back = append(back, entering(fmt.Sprint("e", i), 350+int64(i)))
		}
		p.publish(back...)
		p.decideHold(func(at store.Passes) store.HoldEnd { return store.HoldEnd{Release: at} })
		p.delivered()
		retracted := len(slices.DeleteFunc(p.sinks[service].has(), func(s string) bool {
			var entity, version int
			_, err := fmt.Sscanf(s, "e%d:%d", &entity, &version)
			return err != nil || version < 200 || version >= 350
		}))
		if log {
			require.Equal(t, 150, retracted)
		} else {
			require.Equal(t, 10, retracted, "those that left before the hold")
		}
	}
}

// A discard passes the held changes of the kind, and sends all others.
func TestADiscardPassesWhatIsHeld(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: logOf(50)}, guarding(usualGuard))
	p.loaded(100)
	p.delivered()
	p.retractAll(0, 100, 100)
	p.publish(entering("new", 200))
	p.held()
	p.decideHold(func(at store.Passes) store.HoldEnd { return store.HoldEnd{Discard: at} })
	p.delivered()
	require.Len(t, p.sinks[service].has(), 111, "100 entered, 10 left before, one is new")
	require.EqualValues(t, 90, p.count("discarded"))
}

// An extension allows the limit once more.
func TestAnExtensionAllowsAsManyOnceMore(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: logOf(50)}, guarding(usualGuard))
	p.loaded(100)
	p.delivered()
	p.retractAll(0, 100, 100)
	p.held()
	p.decideHold(func(store.Passes) store.HoldEnd { return store.HoldEnd{Extend: true} })
	require.Eventually(t, func() bool { return len(p.sinks[service].has()) == 120 }, patience, time.Millisecond)
	p.held()
	require.Len(t, p.sinks[service].has(), 120)
}

// A first load, changes that an operator requested, and kinds without a guard are not held.
func TestWhatTheGuardDoesNotCount(t *testing.T) {
	g := usualGuard
	g.Update = 0.05
	p := newWorld(t, service).start(map[string]sinks.Traits{service: logOf(50)}, guarding(g))
	offset := p.loaded(300)
	for i := range 300 {
		c := leaving(fmt.Sprint("e", i), offset)
		if c.Planned = true; i%2 == 0 {
			c = of(service, fmt.Sprint("e", i), offset)
			c.Planned = true
		}
		p.publish(c)
		offset++
	}
	for n := range 20 { // one entity, however often
		p.publish(of(service, fmt.Sprint("e", n%10), offset))
		offset++
	}
	p.delivered()
	require.Empty(t, p.pauses())
	p.publish(of(service, "e11", offset), of(service, "e12", offset+1), of(service, "e13", offset+2))
	p.held()
	require.Equal(t, store.GuardUpdate, p.pauses()[service].Hold.Kind)
}

// A history of entities that come and leave is not held; a mass deletion of those that were there before
// it is, at the limit.
func TestAHistoryOfShortLivedEntitiesIsNotHeld(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: logOf(50)}, guarding(usualGuard))
	offset := p.loaded(100)
	for i := range int64(300) {
		left := leaving(fmt.Sprint("short", i), offset+2*i+1)
		if i%2 == 0 {
			left = of(service, left.Entity, offset+2*i+1)
			left.Doc = []byte("{}")
		}
		left.Entered = change.EnteredAt(left.Time)
		p.publish(entering(left.Entity, offset+2*i), left)
	}
	p.delivered()
	require.Empty(t, p.pauses())
	p.retractAll(0, 100, offset+600)
	p.held()
	require.EqualValues(t, 12, p.pauses()[service].Hold.Counted, "5 % of the 100, and of the 150 that stayed empty")
}

// Updates of a backlog count at the time of their source, too.
func TestABacklogOfUpdatesIsNotHeld(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: logOf(50)}, guarding(deliver.Guard{Update: 0.05, Min: 10, Window: 10 * time.Minute}))
	offset := p.loaded(100)
	update := func(i int64, at time.Time) {
		c := of(service, fmt.Sprint("e", i), offset)
		c.At = at
		p.publish(c)
		offset++
	}
	for i := range int64(100) {
		update(i, time.Now().Add(-time.Duration(i+1)*time.Hour))
	}
	p.delivered()
	require.Empty(t, p.pauses())
	for i := range int64(11) {
		update(i, time.Now().Add(-1000*time.Hour))
	}
	p.held()
	require.EqualValues(t, 10, p.pauses()[service].Hold.Counted)
}

// dying is the store of a process that dies before it saves progress.
type dying struct{ recording }

func (dying) SwapProgress(ctx context.Context, _ int64, _ []store.ProgressSwap) ([]bool, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// The count is exact over kills: processes that die between the count, the write and the save
// together let the limit leave, and no entity more.
func TestTheCountIsExactOverKills(t *testing.T) {
	w := newWorld(t, service)
	traits := map[string]sinks.Traits{service: {Kind: sinks.State, MaxBatch: 9}}
	p := w.start(traits, guarding(usualGuard))
	w.loaded(1000)
	p.delivered()
	require.NoError(t, p.stop())
	w.retractAll(0, 400, 1000)
	left := map[string]bool{}
	held := func() bool { return w.pauses()[service].Hold != nil }
	for kill := 0; !held(); kill++ {
		limit, die := context.WithCancel(context.Background())
		defer die()
		var writes atomic.Int32
		p := w.start(traits, guarding(usualGuard), func(o *deliver.Options) {
			if o.Limit = limit; kill%2 == 0 {
				o.Store = dying{recording{w.store, w}}
			}
			o.Services[0].Sink.(*sink).answer(func(changes []change.Change) error {
				if writes.Load() == 2 { // it is dead
					return refuse(sinks.Retry, false)
				}
				for _, c := range changes {
					left[c.Entity] = true
				}
				writes.Add(1)
				return nil
			})
		})
		require.Eventually(t, func() bool { return writes.Load() == 2 || kill%2 == 0 && writes.Load() == 1 || held() }, patience, time.Millisecond)
		die()
		_ = p.stop()
		require.Less(t, kill, 100)
	}
	p = w.start(traits, guarding(usualGuard), func(o *deliver.Options) { o.Paused = w.pauses() })
	require.LessOrEqual(t, len(left), 50)
	require.EqualValues(t, 50, w.pauses()[service].Hold.Limit)
	p.decideHold(func(at store.Passes) store.HoldEnd { return store.HoldEnd{Release: at} })
	p.delivered()
	rows, err := w.store.AllProgress(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 600, rows[0].Positions[0].Entities, "the number of entities is exact, too")
}

// counting counts the reads of all positions.
type counting struct {
	recording
	reads *atomic.Int32
}

func (c counting) AllProgress(ctx context.Context) ([]store.Progress, error) {
	c.reads.Add(1)
	return c.recording.AllProgress(ctx)
}

// The share is of all entities of the service, also of those in partitions of another process,
// which are not read for each write.
func TestEntitiesOfOtherProcessesCount(t *testing.T) {
	w := newWorld(t, service)
	_, err := w.store.TakeProgress(t.Context(), []int32{1}, store.Token{7})
	require.NoError(t, err)
	done, err := w.store.SwapProgress(t.Context(), 1, []store.ProgressSwap{{Old: store.Token{7}, Progress: store.Progress{
		Partition: 1, Token: store.Token{8}, Positions: []store.ServicePosition{{Service: w.numbers[service], Entities: 2000}},
	}}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, done)
	var reads atomic.Int32
	p := w.start(map[string]sinks.Traits{service: {Kind: sinks.State, MaxBatch: 3}}, guarding(usualGuard), func(o *deliver.Options) {
		now := time.Now()
		o.Store, o.Now = counting{recording{w.store, w}, &reads}, func() time.Time { return now }
	})
	w.loaded(200)
	p.delivered()
	p.retractAll(0, 150, 200)
	p.held()
	require.EqualValues(t, 2200, p.pauses()[service].Hold.Entities)
	require.EqualValues(t, 110, p.pauses()[service].Hold.Limit)
	require.LessOrEqual(t, reads.Load(), int32(10), "37 writes are counted")
}
