package deliver_test

import (
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

var paused = map[string]store.Pause{other: {Since: time.Unix(1_700_000_000, 0), Actor: "ann", Reason: "their database moves"}}

// A service that an operator paused gets nothing, the others go on, and what
// waited arrives in order when it is resumed.
func TestAPausedServiceGetsNothing(t *testing.T) {
	for name, atStart := range map[string]bool{"while it runs": false, "at the start": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service, other)
			p := w.start(map[string]sinks.Traits{service: logOf(10), other: logOf(10)}, memory(1<<20), func(o *deliver.Options) {
				if atStart {
					o.Paused = paused
				}
			})
			p.stage.Pause(paused)
			for i := range int64(30) {
				p.publish(large(service, "a", 2*i), large(other, "a", 2*i+1))
			}
			p.delivered(service)
			require.Len(t, p.sinks[service].has(), 30)
			require.Empty(t, p.sinks[other].attempts())
			c := p.stage.Conditions()[other]
			require.Equal(t, deliver.StatePaused, c.State)
			require.Equal(t, paused[other], c.Pause.Pause)
			require.Equal(t, paused[other].Since, c.Since)
			require.Equal(t, deliver.StateRunning, p.stage.Conditions()[service].State)

			p.stage.Pause(nil)
			p.delivered(other)
			require.Len(t, p.sinks[other].has(), 30)
			require.Equal(t, deliver.StateRunning, p.stage.Conditions()[other].State)
		})
	}
}

// A service whose attempts fail can be paused, too: nothing is tried until it is
// resumed, and it is shown what failed.
func TestAFailingServiceIsPaused(t *testing.T) {
	w := newWorld(t, other)
	p := w.start(map[string]sinks.Traits{other: logOf(10)})
	failed := make(chan struct{}, 100)
	p.sinks[other].answer(func([]change.Change) error { failed <- struct{}{}; return refuse(sinks.Retry, false) })
	p.publish(of(other, "a", 1))
	<-failed
	p.stage.Pause(paused)
	require.Eventually(t, func() bool { return p.stage.Conditions()[other].Error != "" }, patience, time.Millisecond)
	p.sinks[other].answer(nil)
	require.Equal(t, deliver.StatePaused, p.stage.Conditions()[other].State)
	require.Empty(t, p.sinks[other].has())
	p.stage.Pause(nil)
	p.delivered(other)
	require.Len(t, p.sinks[other].has(), 1)
}

// An operator's probe is an attempt now, however long the wait would be.
func TestAProbeTriesNow(t *testing.T) {
	w := newWorld(t, other)
	p := w.start(map[string]sinks.Traits{other: logOf(10)}, patiently)
	tried := make(chan struct{}, 100)
	p.sinks[other].answer(func([]change.Change) error {
		tried <- struct{}{}
		return &sinks.Error{Class: sinks.Retry, Err: refuse(sinks.Retry, false), RetryAfter: 24 * time.Hour}
	})
	p.publish(of(other, "a", 1))
	<-tried
	require.False(t, p.stage.Probe("nobody/has@it"))
	require.Eventually(t, func() bool { // it waits by now, or soon
		require.True(t, p.stage.Probe(other))
		select {
		case <-tried:
			return true
		default:
			return false
		}
	}, patience, time.Millisecond)
	p.sinks[other].answer(nil)
	require.Eventually(t, func() bool { p.stage.Probe(other); return len(p.sinks[other].has()) == 1 }, patience, time.Millisecond)
}
