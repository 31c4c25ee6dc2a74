package deliver_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/tests/otlptest"
	"github.com/stretchr/testify/require"
)

var decided = &change.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=1"}

// A traced change has a span from its record to its end at the sink, each attempt
// at its batch one that is linked with it, and the sink gets the context of the
// former. A failure of it is logged with its trace.
func TestSpansOfChanges(t *testing.T) {
	r := otlptest.New(t)
	tracer, err := tracing.New(tracing.Options{
		Exporter: r.Exporter(), Sample: 0,
		Logger: slog.New(slog.DiscardHandler), Metrics: tracing.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	var lines bytes.Buffer // slog serialises its writes
	p, s := only(t, logOf(10), func(o *deliver.Options) {
		o.Tracer, o.Logger = tracer, slog.New(slog.NewTextHandler(&lines, nil))
	})
	var mu sync.Mutex
	passed := map[string]*change.Trace{}
	failures := 1
	s.answer(func(changes []change.Change) error {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range changes {
			if c.Version.Offset() < 2 {
				passed[c.Entity] = c.Trace
			}
		}
		if failures > 0 {
			failures--
			return &sinks.Error{Class: sinks.Retry, Unreachable: true, Op: "post", Err: errors.New("down")}
		}
		return nil
	})
	traced, other, newer := of(service, "B-007", 0), of(service, "B-008", 1), of(service, "B-007", 2)
	traced.Trace = decided
	p.publish(traced, other)
	p.delivered()
	p.publish(newer) // not traced
	p.delivered()
	require.NoError(t, p.stop())
	require.NoError(t, tracer.Shutdown(t.Context()))

	var first otlptest.Span
	var writes []otlptest.Span
	for _, s := range r.Spans() {
		switch {
		case s.Name == "deliver batch":
			writes = append(writes, s)
		default:
			first = s
		}
	}
	require.Len(t, r.Spans(), 3)
	require.Equal(t, "00f067aa0ba902b7", first.Parent)
	require.Equal(t, map[string]string{
		"weir.service": service, "weir.outcome": "delivered", "weir.version": "1:0", "weir.entity.hash": "0fe2cd5573ee1982",
	}, first.Attributes)
	require.False(t, first.Failed)
	require.Len(t, writes, 2)
	for i, w := range writes {
		require.Equal(t, []string{first.ID}, w.Links)
		require.Equal(t, map[string]string{"weir.service": service, "weir.batch.size": "2", "weir.batch.traced": "1"}, w.Attributes)
		require.Equal(t, i == 0, w.Failed)
	}
	require.Equal(t, "retry", writes[0].Failure)
	require.Equal(t, map[string]*change.Trace{
		"B-007": {Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-" + first.ID + "-01", State: "vendor=1"}, "B-008": nil,
	}, passed)
	require.Equal(t, 1, strings.Count(lines.String(), "trace_id=4bf92f3577b34da6a3ce929d0e0e4736"), lines.String())
}

// Without a tracer a sink passes no context on, not even that of a process with one.
func TestNoContextWithoutATracer(t *testing.T) {
	p, s := only(t, logOf(10))
	var passed *change.Trace
	s.answer(func(changes []change.Change) error { passed = changes[0].Trace; return nil })
	c := of(service, "B-007", 0)
	c.Trace = decided
	p.publish(c)
	p.delivered()
	require.NoError(t, p.stop())
	require.Nil(t, passed)
}

// Confirmed changes of a frame are no failures when the rest of it fails.
func TestSpansOfAFrameThatIsDeliveredInPart(t *testing.T) {
	r := otlptest.New(t)
	tracer, err := tracing.New(tracing.Options{
		Exporter: r.Exporter(), Sample: 0,
		Logger: slog.New(slog.DiscardHandler), Metrics: tracing.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	p, s := only(t, logOf(1), func(o *deliver.Options) { o.Tracer = tracer })
	changes, names := many(0, 2)
	for i := range changes {
		changes[i].Trace = decided
	}
	tried := make(chan struct{}, 1)
	s.answer(func(batch []change.Change) error {
		if name(batch[0]) == names[0] {
			return nil
		}
		select {
		case tried <- struct{}{}:
		default:
		}
		return refuse(sinks.Retry, false)
	})
	p.publish(changes...)
	<-tried
	require.NoError(t, p.stop())
	require.NoError(t, tracer.Shutdown(t.Context()))
	failed := map[string]bool{}
	for _, s := range r.Spans() {
		if s.Name == "deliver" {
			failed[s.Attributes["weir.version"]] = s.Failed
		}
	}
	require.Equal(t, map[string]bool{"1:0": false, "1:1": true}, failed)
}
