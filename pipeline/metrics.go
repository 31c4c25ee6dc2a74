package pipeline

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/checks"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/ingest"
)

// stageMetrics are the counters of the stages.
type stageMetrics struct {
	ingest  *ingest.Metrics
	events  *events.Metrics
	decide  *decide.Metrics
	deliver *deliver.Metrics
	imports *imports.Metrics
	checks  *checks.Metrics
}

func newStageMetrics(reg prometheus.Registerer) stageMetrics {
	return stageMetrics{
		ingest: ingest.NewMetrics(reg), events: events.NewMetrics(reg), decide: decide.NewMetrics(reg),
		deliver: deliver.NewMetrics(reg), imports: imports.NewMetrics(reg), checks: checks.NewMetrics(reg),
	}
}
