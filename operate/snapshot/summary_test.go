package snapshot

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/stretchr/testify/require"
)

func TestSummaryReadsTheCounters(t *testing.T) {
	reg := prometheus.NewRegistry()
	ingest.NewMetrics(reg)
	deliver.NewMetrics(reg)
	s, err := Summarize(reg)
	require.NoError(t, err)
	require.Zero(t, s.Read)
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_decisions_total", Help: "x"}, []string{"service", "decision"})
	reg.MustRegister(counter)
	counter.WithLabelValues("acme/a@x", "sent").Add(2)
	counter.WithLabelValues("acme/b@x", "held_back").Add(3)
	counter.WithLabelValues("zest/a@x", "pruned").Add(5)
	counter.WithLabelValues("zest/a@x", "filtered").Add(7)
	counter.WithLabelValues("zest/a@x", "incomplete").Add(11)
	s, err = Summarize(reg)
	require.NoError(t, err)
	require.Equal(t, []CustomerSummary{{Customer: "acme", Held: 3, Sent: 2}, {Customer: "zest", Pruned: 5, Filtered: 7, Incomplete: 11}}, s.Customers)
}
