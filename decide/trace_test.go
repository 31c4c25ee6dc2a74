package decide

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/tests/otlptest"
	"github.com/stretchr/testify/require"
)

// traces returns the trace contexts of the changes that were handed over so far,
// by the service, "" for one that is not traced.
func (h *handed) traces(t *testing.T) map[int32][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[int32][]string{}
	for _, r := range h.frames {
		f, err := change.ParseFrame(r.Body)
		require.NoError(t, err)
		for i := range f.Slices {
			for c, err := range f.Slices[i].All("") {
				require.NoError(t, err)
				trace := ""
				if c.Trace != nil {
					trace = c.Trace.Parent + " " + c.Trace.State
				}
				all[f.Slices[i].Service] = append(all[f.Slices[i].Service], trace)
			}
		}
	}
	return all
}

// A change of a traced event has the trace in the changes log.
func TestTheLogKeepsTheTrace(t *testing.T) {
	w := newFlow(t)
	spans := otlptest.New(t)
	tracer, err := tracing.New(tracing.Options{
		Exporter: spans.Exporter(), Sample: 0,
		Logger: slog.New(slog.DiscardHandler), Metrics: tracing.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })

	first, out := w.owner(t, tracer)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var frame []transport.Received
	for i, entity := range []string{"B-007", "B-008"} {
		r := event(t, entity, int64(i), `{"id":1,"ripeness_level":2}`)
		if i == 0 {
			r.Headers = transport.WithTrace(r.Headers, &change.Trace{Parent: parent, State: "vendor=1"})
		}
		frame = append(frame, r)
	}
	hand(t, first, 0, frame...)
	require.Equal(t, 1, out.count(), "one frame of all services")
	decided := out.traces(t)
	one, two := decided[w.plan.Services[0].Number], decided[w.plan.Services[1].Number]
	require.Len(t, one, 2)
	require.Contains(t, one[0], "00-4bf92f3577b34da6a3ce929d0e0e4736-")
	require.Contains(t, one[0], " vendor=1")
	require.NotContains(t, one[0], "00f067aa0ba902b7", "a span of its own")
	require.Empty(t, one[1], "the second event is not traced")
	require.Equal(t, one, two, "the changes of one decision stand side by side")
}
