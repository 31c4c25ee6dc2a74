package imports

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/stretchr/testify/require"
)

func TestEndsAreCounted(t *testing.T) {
	w := newWorld(t)
	worker := w.worker()
	registry := prometheus.NewRegistry()
	worker.opt.Metrics = NewMetrics(registry)
	ended := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		counts := map[string]float64{}
		for _, family := range families {
			if family.GetName() == "weir_imports_ended_total" {
				for _, m := range family.GetMetric() {
					counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		return counts
	}
	require.Equal(t, map[string]float64{"done": 0, "failed": 0}, ended(), "the first of each is an increase")
	w.file(JSONL, Options{}, `{"id":"a"}`)
	w.step(worker)
	require.Equal(t, map[string]float64{"done": 1, "failed": 0}, ended())

	w.file(JSONL, Options{}, `{"id":"b"}`)
	worker.opt.Intake = &Taker{Shape: func(string) (*ingest.Extractor, error) { return nil, &GoneError{"there is no source lab"} }}
	w.step(worker)
	require.Equal(t, map[string]float64{"done": 1, "failed": 1}, ended())
}
