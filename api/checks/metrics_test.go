package checks

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/servicelabel"
	"github.com/seed-86dfc502/weir/store"
)

// A request that has to be repeated is counted, for any cause; a request that is
// wrong in itself is not.
func TestUndecidedIsCounted(t *testing.T) {
	f := newFixture(t)
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	metrics.Expect(f.service.Name)
	counted := func() float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			if family.GetName() == "weir_checks_total" {
				require.Len(t, family.GetMetric(), 1)
				return family.GetMetric()[0].GetCounter().GetValue()
			}
		}
		require.Fail(t, "the first one is an increase only of a series that is there")
		return 0
	}
	require.Zero(t, counted())

	away := errors.New("away")
	h := &hooked{real: f.store, beforeRead: func(context.Context, []store.Key) error { return away }}
	c := f.checker(Options{Store: h, Metrics: metrics})
	two := []Request{{Entity: "a", Content: Given("A")}, {Entity: "b", Content: Given("A")}}
	results, err := c.Check(t.Context(), f.service, two)
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, away)
	require.ErrorIs(t, results[1].Err, away)
	require.Equal(t, 2.0, counted(), "the store is away")

	proceed := make(chan struct{})
	h.beforeRead = func(context.Context, []store.Key) error { <-proceed; return nil }
	late, cancel := context.WithCancel(t.Context())
	cancel()
	results, err = c.Check(late, f.service, two[:1])
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, context.Canceled)
	require.Equal(t, 3.0, counted(), "it took too long")
	close(proceed)

	wrong, err := c.Confirm(t.Context(), f.service, []Confirmation{{"never", 1}, {"", 1}})
	require.NoError(t, err)
	require.ErrorIs(t, wrong[0].Err, ErrUnknownVersion)
	require.ErrorIs(t, wrong[1].Err, ErrEntity)
	require.Equal(t, 3.0, counted(), "wrong requests")

	c.Close(t.Context())
	_, err = c.Check(t.Context(), f.service, two)
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, 5.0, counted(), "the process stops")
}

// The services beyond the bound of labels share one.
func TestSeriesOfChecksAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	metrics.Labels = servicelabel.New(10)
	for i := range 1000 {
		metrics.Expect(fmt.Sprintf("c%d/x@check", i))
		metrics.count(fmt.Sprintf("c%d/x@check", i), "pass")
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		require.LessOrEqual(t, len(family.GetMetric()), 2*(10+10+1))
	}
}
