package imports

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestEndsAreCounted(t *testing.T) {
	w := newWorld(t)
	m, registry := w.importer(), prometheus.NewRegistry()
	m.opt.Metrics = NewMetrics(registry)
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
	_, err := m.Run(t.Context(), lab(JSONL, Options{}, `{"id":"a"}`), strings.NewReader(`{"id":"a"}`))
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"done": 1, "failed": 0}, ended())
	_, err = m.Run(t.Context(), lab(JSONL, Options{}, `{"id":"b"}`), strings.NewReader(`{"id":"c"}`))
	require.Error(t, err)
	require.Equal(t, map[string]float64{"done": 1, "failed": 1}, ended())
}
