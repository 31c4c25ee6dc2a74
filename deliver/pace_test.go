package deliver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/stretchr/testify/require"
)

// settling sets the pace of a service.
func settling(name string, settle, most time.Duration) func(*deliver.Options) {
	return func(o *deliver.Options) {
		for i := range o.Services {
			if o.Services[i].Name == name {
				o.Services[i].Pace = deliver.Pace{Settle: settle, SettleMax: most}
			}
		}
	}
}

func TestAFullWriteDoesNotLinger(t *testing.T) {
	t.Parallel()
	p, s := only(t, sinks.Traits{Kind: sinks.State, MaxBatch: 2, Linger: time.Hour})
	changes, names := many(0, 4)
	p.publish(changes[0])
	p.publish(changes[1:]...)
	p.delivered()
	require.ElementsMatch(t, names, s.has())
}

// What settles keeps the position: a process that ends loses nothing of it, and the next one counts
// from when the changes were decided.
func TestWhatSettlesKeepsThePosition(t *testing.T) {
	t.Parallel()
	for _, traits := range []sinks.Traits{state, logOf(100)} {
		t.Run(string(traits.Kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, service)
			p := w.start(map[string]sinks.Traits{service: traits}, settling(service, time.Hour, time.Hour))
			var all []string
			for n := range int64(50) {
				c := of(service, fmt.Sprint("e", n%2), n)
				all = append(all, name(c))
				p.publish(c)
			}
			require.Eventually(t, func() bool { return p.metric("weir_delivery_paced", service) >= 2 && p.handled.Load() >= 50 }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return p.stage.Conditions()[service].State == deliver.StatePaced }, patience, time.Millisecond)
			require.False(t, p.stage.Idle())
			require.NoError(t, p.stop())
			require.Empty(t, p.sinks[service].has())
			require.LessOrEqual(t, w.position(service), at(0))

			next := w.start(map[string]sinks.Traits{service: traits}, settling(service, 50*time.Millisecond, time.Minute))
			next.delivered()
			if got := next.sinks[service].has(); traits.Kind == sinks.Log {
				require.ElementsMatch(t, all, got)
			} else {
				require.Subset(t, got, all[48:])
			}
		})
	}
}

// The changes of a hot entity settle in the memory of one, and the service holds up no other one.
func TestASettlingServiceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, service, other)
	p := w.start(map[string]sinks.Traits{service: state, other: state}, settling(service, time.Hour, time.Hour), func(o *deliver.Options) { o.Memory = 256 << 10 })
	doc := fmt.Appendf(nil, `{"n":"%02000d"}`, 0)
	for n := range int64(1500) {
		hot, cold := of(service, "hot", n), of(other, fmt.Sprint("e", n), n)
		hot.Doc, cold.Doc = doc, doc
		p.publish(hot, cold)
	}
	p.delivered(other)
	require.Empty(t, p.sinks[service].has())
	require.Eventually(t, func() bool { return len(p.stage.Behind()) == 0 }, patience, time.Millisecond)
}
