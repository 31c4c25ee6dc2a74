package ingest_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/tests/otlptest"
	"github.com/stretchr/testify/require"
)

const (
	sampled   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// Each traced event has a span with its outcome; only sampled ones
// have another header in the inbox.
func TestSpansOfEvents(t *testing.T) {
	r := otlptest.New(t)
	tracer, err := tracing.New(tracing.Options{
		Exporter: r.Exporter(), Sample: 0, EntityIDs: true,
		Logger: slog.New(slog.DiscardHandler), Metrics: tracing.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	w := newTracedWorld(t, tracer)
	w.parents = []string{sampled, unsampled, "", sampled, sampled}
	w.take(event("1", "a", `{"n":1}`), event("2", "b", `{"n":1}`), event("3", "c", `{"n":1}`), event("1", "a", `{"n":1}`), `{"broken`)
	require.NoError(t, tracer.Shutdown(t.Context()))
	became := map[string]otlptest.Span{}
	for _, s := range r.Spans() {
		require.Equal(t, "ingest", s.Name)
		require.Equal(t, "00f067aa0ba902b7", s.Parent)
		became[s.Attributes["weir.outcome"]] = s
	}
	require.Len(t, became, 3)
	require.Len(t, r.Spans(), 3)
	source := became["taken"].Attributes["weir.source"]
	require.NotEmpty(t, source)
	require.Equal(t, map[string]string{"weir.source": source, "weir.outcome": "taken", "weir.entity": "a"}, became["taken"].Attributes)
	require.Equal(t, map[string]string{"weir.source": source, "weir.outcome": "repeated", "weir.entity": "a"}, became["repeated"].Attributes)
	require.Equal(t, map[string]string{"weir.source": source, "weir.outcome": "dead"}, became["dead"].Attributes)
	require.Len(t, w.letters, 1)
	require.Contains(t, string(w.letters[0].Headers), `"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-`+became["dead"].ID+`-01"`)
	require.Equal(t, []string{"traceparent 00-4bf92f3577b34da6a3ce929d0e0e4736-" + became["taken"].ID + "-01", "", ""}, w.traces)
}

// Without a tracer no context is taken up.
func TestNoSpansWithoutATracer(t *testing.T) {
	w := newWorld(t)
	w.parents = []string{sampled}
	w.take(event("1", "a", `{"n":1}`))
	require.Equal(t, []string{""}, w.traces)
}

// An event that has a context of its own belongs to the trace of that one, not
// to its frame's message, and not to that of its neighbour.
func TestTraceOfAnEventsOwnContext(t *testing.T) {
	r := otlptest.New(t)
	tracer, err := tracing.New(tracing.Options{
		Exporter: r.Exporter(), Sample: 0,
		Logger: slog.New(slog.DiscardHandler), Metrics: tracing.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	requested := func(parent string) (ctx context.Context) {
		req := httptest.NewRequest(http.MethodPost, "/", nil)
		req.Header.Set("Traceparent", parent)
		tracer.Requests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })).ServeHTTP(httptest.NewRecorder(), req)
		return ctx
	}
	w := newTracedWorld(t, tracer)
	const other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	w.takeFrame(frame(
		transport.Received{Value: []byte(event("1", "a", "1")), Context: requested(sampled)},
		transport.Received{Value: []byte(event("2", "b", "1")), Context: requested(unsampled)},
		transport.Received{Value: []byte(event("3", "c", "1"))},
		transport.Received{Value: []byte(event("4", "d", "1")), Context: requested(other)},
	))
	require.Len(t, w.traces, 4)
	require.Contains(t, w.traces[0], sampled[:35])
	require.Empty(t, w.traces[1])
	require.Empty(t, w.traces[2])
	require.Contains(t, w.traces[3], other[:35])
}
