package imports

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-86dfc502/weir/store"
)

// Metrics of imports; label values are bounded by the configuration.
type Metrics struct {
	rows  *prometheus.CounterVec // source, status
	ended *prometheus.CounterVec // state
	open  prometheus.Gauge
}

// NewMetrics registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_import_rows_total", Help: "Rows of imported files by source and status: accepted, duplicate, invalid, conflicting.",
		}, []string{"source", "status"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_imports_ended_total", Help: "Imports that ended in this process, by state: done, failed.",
		}, []string{"state"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_imports_open", Help: "Imports whose file this process is ingesting.",
		}),
	}
	reg.MustRegister(m.rows, m.ended, m.open)
	// The first failure is an increase only of a series that was there before.
	for _, state := range []store.ImportState{store.ImportDone, store.ImportFailed} {
		m.ended.WithLabelValues(string(state))
	}
	return m
}

// add counts the rows between two positions.
func (m *Metrics) add(source string, now, before store.ImportCounts) {
	for status, n := range map[string]int64{
		Accepted: now.Accepted - before.Accepted, Duplicate: now.Duplicate - before.Duplicate,
		Invalid: now.Invalid - before.Invalid, Conflicting: now.Conflicting - before.Conflicting,
	} {
		m.rows.WithLabelValues(source, status).Add(float64(n))
	}
}
