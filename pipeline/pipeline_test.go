package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/stretchr/testify/require"
)

func loadExample(t *testing.T, name string) *config.Config {
	t.Helper()
	c, err := config.Load(filepath.Join("..", "examples", name, "weir.yaml"), os.LookupEnv, config.AllowUnsetEnv())
	require.NoError(t, err)
	return c
}

func TestCompilePlanAndSinksOfTheExamples(t *testing.T) {
	for _, name := range []string{"banana", "production"} {
		c := loadExample(t, name)
		numbers := map[string]int32{}
		_, err := CompilePlan(c, numbers, 1)
		require.ErrorContains(t, err, "has no number")
		for i, s := range c.Services() {
			numbers[s.Name] = int32(i + 1)
		}
		plan, err := CompilePlan(c, numbers, 1)
		require.NoError(t, err)
		require.Len(t, plan.Services, len(c.Services()))
		require.NoError(t, Check(c))
	}
}

// What only a sink can tell of its settings is a fault with a place.
func TestCheckAsksTheSinks(t *testing.T) {
	c := loadExample(t, "production")
	for _, s := range c.Services() {
		if k := s.Delivery.ClickHouse; k != nil {
			k.Columns = config.Columns{{Name: "weight", Path: "weight", Type: "Strin"}}
		}
	}
	var faults *config.Faults
	require.ErrorAs(t, Check(c), &faults)
	require.NotEmpty(t, faults.List)
	require.Contains(t, faults.List[0].Problem, "Strin")
	require.NotZero(t, faults.List[0].Line)
}

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
