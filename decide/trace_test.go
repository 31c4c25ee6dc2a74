package decide

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/tracing/otlptest"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// traces returns the trace contexts of the changes that were published so far,
// by the service, "" for one that is not traced.
func (p *published) traces(t *testing.T) map[int32][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[int32][]string{}
	for _, r := range p.records {
		f, err := change.ParseFrame(r.Value)
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

// A decision's outbox keeps the trace: the change belongs to it under any publisher,
// even if the process that decided died.
func TestTakeOverKeepsTheTrace(t *testing.T) {
	w := newFlow(t)
	spans := otlptest.New(t)
	tracer, err := tracing.New(tracing.Options{
		Exporter: spans.Exporter(), Sample: 0,
		Logger: slog.New(slog.DiscardHandler), Metrics: tracing.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })

	first, before := w.owner(t, tracer, false)
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
	require.Eventually(t, func() bool { return before.count() == 1 }, time.Minute, time.Millisecond, "one frame of all services")
	decided := before.traces(t)
	one, two := decided[w.plan.Services[0].Number], decided[w.plan.Services[1].Number]
	require.Len(t, one, 2)
	require.Contains(t, one[0], "00-4bf92f3577b34da6a3ce929d0e0e4736-")
	require.Contains(t, one[0], " vendor=1")
	require.NotContains(t, one[0], "00f067aa0ba902b7", "a span of its own")
	require.Empty(t, one[1], "the second event is not traced")
	require.Equal(t, one, two, "the changes of one decision stand side by side")

	for _, tracer := range []*tracing.Tracer{tracer, nil} {
		_, after := w.owner(t, tracer, true)
		require.Equal(t, 1, after.count())
		for i, r := range after.records {
			require.Equal(t, before.records[i].Value, r.Value, "the same bytes")
			require.Equal(t, []transport.Header{{Key: change.RepublishedHeader, Value: []byte("1")}}, r.Headers)
		}
	}
}
