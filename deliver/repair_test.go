package deliver_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// heldWalk is a store that lets no walk begin before free is closed.
type heldWalk struct {
	recording
	free  chan struct{}
	walks *atomic.Int32
}

func (h heldWalk) Moved(ctx context.Context, from, to change.Version, after string, limit int) ([]store.Row, string, error) {
	h.walks.Add(1)
	select {
	case <-h.free:
		return h.recording.Moved(ctx, from, to, after, limit)
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
}

// repair is the stored need of a service.
func (w *world) repair(service string) string {
	rows, err := w.store.AllProgress(w.t.Context())
	require.NoError(w.t, err)
	for _, p := range rows[0].Positions {
		if p.Service == w.numbers[service] {
			return p.Repair
		}
	}
	return ""
}

// loses publishes two changes, of which the log loses the first.
func (w *world) loses() {
	w.publish(of(service, "a", 0), of(other, "a", 0))
	w.publish(of(service, "b", 1), of(other, "b", 1))
	w.expire(1)
}

// A repair holds up nothing: frames are delivered while its walk is held, the position passes
// the lost changes together with the need, and the stage is not idle.
func TestARepairHoldsUpNoDelivery(t *testing.T) {
	w := newWorld(t, service, other)
	w.loses()
	free := make(chan struct{})
	var walks atomic.Int32
	p := w.start(map[string]sinks.Traits{service: state, other: logOf(10)}, func(o *deliver.Options) { o.Store = heldWalk{recording{w.store, w}, free, &walks} })
	p.publish(of(service, "c", 2), of(other, "c", 2))
	p.delivered(service, other)
	require.Equal(t, []string{"b:1", "c:2"}, p.sinks[service].has())
	require.Equal(t, []string{"b:1", "c:2"}, p.sinks[other].has())
	require.NotEmpty(t, w.repair(service))
	require.NotEmpty(t, w.repair(other))
	require.Empty(t, p.order())
	require.False(t, p.stage.Idle())
	close(free)
	requests := map[string]bool{}
	require.Eventually(t, func() bool { p.moveOn(requests); return p.stage.Idle() && w.repair(service)+w.repair(other) == "" }, patience, time.Millisecond)
	require.Equal(t, []string{"redecide a"}, p.order(), "one request for both services")
	require.ElementsMatch(t, []string{service, other}, p.controls[0].Services)
	require.EqualValues(t, 1, walks.Load(), "one walk for both")
	for _, s := range []string{service, other} {
		require.EqualValues(t, 1, p.metric("weir_delivery_gaps_total", s))
	}
}

// A process that ends at any moment of a repair leaves it to the next owner: before the
// request, and after the request but before the place is saved. Once saved, nothing is
// requested again.
func TestARepairSurvivesItsProcess(t *testing.T) {
	w := newWorld(t, service, other)
	w.loses()
	var walks atomic.Int32
	p := w.start(map[string]sinks.Traits{service: state}, func(o *deliver.Options) { o.Store = heldWalk{recording{w.store, w}, make(chan struct{}), &walks} })
	p.delivered()
	require.NotEmpty(t, w.repair(service))
	require.NoError(t, p.stop())
	require.Empty(t, w.order())

	p = w.start(map[string]sinks.Traits{service: state}, func(o *deliver.Options) {
		o.Control = func(ctx context.Context, controls ...change.Record) error {
			_ = w.control(ctx, controls...)
			<-ctx.Done() // it is durable, and nobody learns that
			return context.Cause(ctx)
		}
	})
	require.Eventually(t, func() bool { return len(w.order()) == 1 }, patience, time.Millisecond)
	require.NoError(t, p.stop())
	require.NotEmpty(t, w.repair(service))

	p = w.start(map[string]sinks.Traits{service: state})
	require.Eventually(t, func() bool { return w.repair(service) == "" }, patience, time.Millisecond)
	require.NoError(t, p.stop())
	require.Equal(t, []string{"redecide a", "redecide a"}, w.order())

	p = w.start(map[string]sinks.Traits{service: state})
	require.True(t, p.moveOn(map[string]bool{"": true}))
	p.delivered()
	require.True(t, p.stage.Idle())
	require.Len(t, w.order(), 2)
}

// A repair outlives the configuration without its service.
func TestARepairWaitsForItsService(t *testing.T) {
	w := newWorld(t, service, other)
	w.loses()
	var walks atomic.Int32
	both := map[string]sinks.Traits{service: state, other: state}
	held := func(o *deliver.Options) { o.Store = heldWalk{recording{w.store, w}, make(chan struct{}), &walks} }
	p := w.start(both, held)
	p.delivered(service, other)
	require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{Revision: 1, Remove: []int32{w.numbers[service]}}))
	p.publish(of(other, "c", 2))
	p.delivered(other)
	require.NotEmpty(t, w.repair(service))
	sink := &sink{traits: state}
	require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{Revision: 1, Add: []deliver.Service{{Name: service, Number: w.numbers[service], Sink: sink, Retry: retry()}}}))
	p.publish(of(other, "d", 3))
	p.delivered(other)
	require.NotEmpty(t, w.repair(service))
	require.NoError(t, p.stop())
	w.start(both)
	require.Eventually(t, func() bool { return w.repair(service)+w.repair(other) == "" }, patience, time.Millisecond)
	require.Equal(t, []string{"redecide a"}, w.order())
}
