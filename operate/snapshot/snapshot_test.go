package snapshot

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Sums are over the unnamed labels, rates are differences, and a counter that was reset has
// no rate.
func TestTake(t *testing.T) {
	reg := prometheus.NewRegistry()
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "x"}, labels)
		reg.MustRegister(c)
		return c
	}
	ingested := counter("weir_ingest_events_total", "source", "outcome")
	behind := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_service_behind", Help: "x"}, []string{"service"})
	reg.MustRegister(behind)
	ingested.WithLabelValues("a", "taken").Add(10)
	ingested.WithLabelValues("b", "taken").Add(5)
	ingested.WithLabelValues("a", "repeated").Add(2)
	behind.WithLabelValues("acme/a@x").Set(2)
	at := time.Unix(100, 0)
	first, err := Take(reg, at)
	require.NoError(t, err)
	require.EqualValues(t, 15, first.Taken())
	require.EqualValues(t, 10, first.Source("a").Taken)
	require.EqualValues(t, 2, first.Source("a").Repeated)
	require.EqualValues(t, 2, first.Service("acme/a@x").Behind)
	require.Zero(t, first.Service("nobody").Pending)
	require.Zero(t, first.Source("nobody").Taken)

	ingested.WithLabelValues("a", "taken").Add(20)
	second, err := Take(reg, at.Add(10*time.Second))
	require.NoError(t, err)
	require.Equal(t, Rate{Known: true, PerSecond: 2}, second.Against(first)((*Snapshot).Taken))
	require.Equal(t, Rate{}, second.Against(nil)((*Snapshot).Taken))
	require.Equal(t, Rate{}, second.Against(second)((*Snapshot).Taken), "no time has passed")
	second.At, first.At = first.At, second.At
	require.Equal(t, Rate{Known: true}, first.Against(second)((*Snapshot).Taken), "it went back")
}
