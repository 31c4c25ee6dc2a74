package checks

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
)

// Metrics of checks.
type Metrics struct {
	// Labels bound the label "service". Nil means that each service has its own.
	Labels *servicelabel.Labels

	decisions *prometheus.CounterVec
	lost      prometheus.Counter
	batch     prometheus.Histogram
	seconds   prometheus.Histogram
}

// NewMetrics returns the metrics of check services, registered with reg unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	of := promauto.With(reg)
	return &Metrics{
		decisions: of.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_checks_total", Help: "Requests of check services by what they were answered: pass, repeated (a pass once more), duplicate, stale, confirmed, released, kept (a release of something that no longer stands), undecided (the caller was told to come again).",
		}, []string{"service", "decision"}),
		lost: of.NewCounter(prometheus.CounterOpts{
			Name: "weir_check_lost_swaps_total", Help: "Rows that another process changed between read and swap; they are decided again.",
		}),
		batch: of.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_check_batch_size", Help: "Requests that shared a transaction.", Buckets: prometheus.ExponentialBuckets(1, 4, 6),
		}),
		seconds: of.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_check_seconds", Help: "Time of a transaction of checks, read and swap.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
	}
}

// Expect makes the series of a service's requests that were not decided, so that
// the first one is an increase.
func (m *Metrics) Expect(service string) {
	m.decisions.WithLabelValues(m.Labels.Of(service), undecided)
}

// undecided counts requests that the caller has to send again.
const undecided = "undecided"

// failed counts requests that were not answered with a decision, unless the
// request itself was wrong.
func (m *Metrics) failed(service string, err error, n int) {
	if !errors.Is(err, ErrUnknownVersion) && !errors.Is(err, ErrEntity) {
		m.decisions.WithLabelValues(m.Labels.Of(service), undecided).Add(float64(n))
	}
}

func (m *Metrics) count(service, decision string) {
	m.decisions.WithLabelValues(m.Labels.Of(service), decision).Inc()
}
