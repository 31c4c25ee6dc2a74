package deliver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
)

// The mistake that this catches: with each takeover an entity that never rests waits for the
// whole of settle_max again. A change that was in hand before counts from its decision.
func TestASuccessorCountsFromTheDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: state}, settling(service, time.Hour, time.Hour))
	require.Eventually(t, p.stage.Idle, patience, time.Millisecond)
	c := of(service, "e", 0)
	c.Time = time.Now().Add(-2 * time.Hour)
	p.publish(c)
	require.Eventually(t, func() bool { return p.stage.Conditions()[service].State == deliver.StatePaced }, patience, time.Millisecond)
	require.NoError(t, p.stop())
	require.Empty(t, p.sinks[service].has(), "clocks need not agree: it counts from its arrival")

	f := of(service, "f", 1)
	f.Time = c.Time
	w.decide(f)
	next := w.start(map[string]sinks.Traits{service: state}, settling(service, time.Hour, time.Hour))
	require.Eventually(t, func() bool { return len(next.sinks[service].has()) == 2 }, 15*time.Second, time.Millisecond)
	require.Equal(t, []string{"e:0", "f:1"}, next.sinks[service].has())
}
