package deliver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// failingSome refuses a third of the entities, each by itself.
func failingSome(changes []change.Change) error {
	failed := map[int]error{}
	for i, c := range changes {
		var n int
		if _, err := fmt.Sscanf(c.Entity, "e%d", &n); err == nil && n%10 < 3 && n < 400 {
			failed[i] = refuse(sinks.RetryBounded, false)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &sinks.BatchError{Failed: failed}
}

// Changes that wait for another attempt pass the guard as all others: those of 120 entities are
// retracted while the target fails for them, and when it works again, the limit leaves.
func TestTheGuardCountsRetries(t *testing.T) {
	for _, traits := range []sinks.Traits{{Kind: sinks.State, MaxBatch: 100}, logOf(64)} {
		t.Run(fmt.Sprint(traits.Kind), func(t *testing.T) {
			const parked, all = 120, 600
			p := newWorld(t, service).start(map[string]sinks.Traits{service: traits}, guarding(usualGuard), func(o *deliver.Options) {
				o.Services[0].Retry = deliver.Retry{MinBackoff: time.Millisecond, MaxBackoff: 100 * time.Millisecond}
			})
			p.loaded(all)
			p.delivered()
			s := p.sinks[service]
			s.answer(failingSome)
			// The last ones succeed: that tells failing changes from a failing target.
			var updates []change.Change
			for i := range all {
				updates = append(updates, of(service, fmt.Sprint("e", i), all+int64(i)))
			}
			for i := 0; i < all; i += 100 {
				p.publish(updates[i : i+100]...)
			}
			require.Eventually(t, func() bool { return p.stage.Conditions()[service].Parked.Rows == parked }, patience, time.Millisecond)
			offset := int64(2 * all)
			for i := range all {
				if i%10 < 3 && i < 400 {
					p.publish(leaving(fmt.Sprint("e", i), offset))
					offset++
				}
			}
			require.Eventually(t, func() bool { return p.position(service) >= p.prev || len(p.pauses()) > 0 }, patience, time.Millisecond)
			s.answer(nil)
			p.held()
			retracted := func() (n int) {
				for _, taken := range s.has() {
					var entity string
					var version int64
					if _, err := fmt.Sscanf(strings.Replace(taken, ":", " ", 1), "%s %d", &entity, &version); err == nil && version >= 2*all {
						n++
					}
				}
				return n
			}
			require.LessOrEqual(t, retracted(), all/20)
			p.decideHold(func(at store.Passes) store.HoldEnd { return store.HoldEnd{Release: at} })
			require.Eventually(t, func() bool { return retracted() == parked }, patience, time.Millisecond)
		})
	}
}

// What an operator discarded is refused, each with its version and before the position passes it,
// and so is a row that is discarded.
func TestADiscardedChangeIsRefused(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: {Kind: sinks.State, MaxBatch: 10}}, guarding(usualGuard))
	p.loaded(100)
	p.delivered()
	p.retractAll(0, 100, 100)
	p.held()
	p.decideHold(func(at store.Passes) store.HoldEnd { return store.HoldEnd{Discard: at} })
	p.delivered()
	require.Len(t, p.sinks[service].has(), 110)
	refused := map[change.Version]int{}
	for _, c := range p.controls {
		require.Equal(t, change.Refuse, c.Action)
		require.Equal(t, []string{service}, c.Services)
		refused[c.Version]++
	}
	require.Len(t, refused, 90)
	for i := int64(110); i < 200; i++ {
		require.Equal(t, 1, refused[at(i)])
	}
}

// A view that loses all of its fields counts as a retraction.
func TestAViewWithoutFieldsCountsAsARetraction(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: {Kind: sinks.State, MaxBatch: 10}}, guarding(usualGuard))
	p.loaded(300)
	p.delivered()
	for i := range int64(300) {
		c := of(service, fmt.Sprint("e", i), 300+i)
		c.Doc = []byte("{}")
		p.publish(c)
	}
	p.held()
	require.Equal(t, store.GuardRetract, p.pauses()[service].Hold.Kind)
	require.LessOrEqual(t, len(p.sinks[service].has()), 315)
}

// A hold lasts over a reload of its service, before any look at the store's pauses: the new worker
// sends nothing.
func TestAHoldLastsOverAReload(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: logOf(50)}, guarding(usualGuard))
	p.loaded(100)
	p.delivered()
	p.retractAll(0, 100, 100)
	p.held()
	require.Eventually(t, func() bool { return p.stage.Conditions()[service].State == deliver.StatePaused }, patience, time.Millisecond)
	p.activate(2)
	fresh := &sink{traits: logOf(50)}
	require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{
		Revision: 2, Remove: []int32{p.numbers[service]},
		Add: []deliver.Service{{Name: service, Number: p.numbers[service], Sink: fresh, Retry: retry(), Guard: usualGuard}},
	}))
	c := p.stage.Conditions()[service]
	require.Equal(t, deliver.StatePaused, c.State)
	require.NotNil(t, c.Pause.Hold)
}

// Admitted changes wait while an operator pauses the service: another process may have held
// them since, so they are judged again.
func TestWhatWaitedInAPauseIsJudgedAgain(t *testing.T) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: {Kind: sinks.State, MaxBatch: 10}}, guarding(usualGuard))
	p.loaded(100)
	p.delivered()
	tried := make(chan struct{}, 100)
	p.sinks[service].answer(func([]change.Change) error { tried <- struct{}{}; return refuse(sinks.Retry, false) })
	p.retractAll(0, 5, 100)
	<-tried
	p.stage.Pause(map[string]store.Pause{service: {Actor: "ann"}})
	require.Eventually(t, func() bool { return p.stage.Conditions()[service].State == deliver.StatePaused }, patience, time.Millisecond)
	others := store.Admission{Service: service, Kind: store.GuardRetract, Share: 0.05, Min: 10, Window: usualGuard.Window, Entities: 100, Now: time.Now()}
	for i := range 20 {
		others.Changes = append(others.Changes, store.GuardedChange{Entity: "other" + string(rune('a'+i)), Partition: 1, Position: at(int64(i))})
	}
	_, pause, err := p.store.Admit(t.Context(), others)
	require.NoError(t, err)
	require.NotNil(t, pause)
	require.NoError(t, p.store.EndHold(t.Context(), service, store.HoldEnd{Discard: store.Passes{0: at(p.next)}}, time.Now(), store.Audit{Actor: "ann", Action: "guard", Service: service}))
	p.sinks[service].answer(nil)
	p.stage.Pause(nil)
	p.delivered()
	require.Len(t, p.sinks[service].has(), 100)
	require.EqualValues(t, 5, p.count("discarded"))
}
