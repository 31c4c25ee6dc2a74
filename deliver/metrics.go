package deliver

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
)

// Metrics of deliver; every label value is bounded by the configuration.
type Metrics struct {
	// Labels bound the label "service". Nil means that each service has its own.
	Labels *servicelabel.Labels

	deliveries *prometheus.CounterVec // service, outcome
	failures   *prometheus.CounterVec // service, class
	seconds    *prometheus.HistogramVec
	age        *prometheus.HistogramVec
	gaps       *prometheus.CounterVec
	malformed  prometheus.Counter
	offered    *prometheus.CounterVec
	unrecorded *prometheus.CounterVec
	found      *prometheus.CounterVec
	held       *prometheus.CounterVec
	paced      *prometheus.GaugeVec
}

// Outcomes, the values of label "outcome".
const (
	OutcomeDelivered = "delivered"
	OutcomeSkipped   = "skipped"   // repeated, or the target has its content
	OutcomeCoalesced = "coalesced" // a newer change in the same batch replaced it
	OutcomeOvertaken = "overtaken" // a newer decision replaced it before a retry
	OutcomeDiscarded = "discarded" // held by the guard: an operator discarded it
	OutcomeRedecided = "redecided" // refused, of an older configuration: decided again
	OutcomeParked    = "parked"    // failed alone: waits for another attempt, apart from the others
	OutcomeDead      = "dead"
)

// outcomes of core, as deliver counts them.
var outcomes = map[core.Outcome]string{
	core.Delivered: OutcomeDelivered, core.Skipped: OutcomeSkipped, core.Coalesced: OutcomeCoalesced,
	core.Overtaken: OutcomeOvertaken, core.Discarded: OutcomeDiscarded, core.Redecided: OutcomeRedecided, core.Dead: OutcomeDead,
}

// NewMetrics registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_deliveries_total", Help: "Changes by service and outcome: delivered, skipped, coalesced, overtaken, discarded, redecided, parked, dead.",
		}, []string{"service", "outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_delivery_failures_total", Help: "Failed attempts by service and class: retry, retry_bounded, reject, pause.",
		}, []string{"service", "class"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_sink_write_seconds", Help: "Duration of one write to the sink, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 14),
		}, []string{"service"}),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_delivery_age_seconds", Help: "Time from an event's entry into the inbox to its delivery, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 14), NativeHistogramBucketFactor: 1.1,
		}, []string{"service"}),
	}
	m.gaps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_delivery_gaps_total", Help: "Times that changes of the service were lost from the log before they were delivered; their entities are decided again.",
	}, []string{"service"})
	m.malformed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "weir_changes_malformed_total", Help: "Records of the changes log that are no frames; each is a dead letter.",
	})
	m.offered = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_delivery_offered_again_total", Help: "Dead letters of the service that were given up and offered again by retry.redrive_after.",
	}, []string{"service"})
	m.unrecorded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_delivery_history_lost_total", Help: "Attempts of the service that the delivery history lacks, since they came faster than the store took them.",
	}, []string{"service"})
	m.found = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_delivery_already_present_total", Help: "Changes of the service that were in its target already when a process took over or had lost an answer, and were skipped.",
	}, []string{"service"})
	m.held = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_guard_holds_total", Help: "Times that the guard held the service, as seen by this process.",
	}, []string{"service"})
	m.paced = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_delivery_paced", Help: "Changes of the service that wait on purpose in this process, for its pace.",
	}, []string{"service"})
	reg.MustRegister(m.held, m.paced, m.deliveries, m.failures, m.seconds, m.age, m.gaps, m.malformed, m.offered, m.unrecorded, m.found)
	return m
}

// serviceMetrics are the ones of one service, looked up once.
type serviceMetrics struct {
	outcomes                         map[string]prometheus.Counter // by outcome
	offered, unrecorded, found, held prometheus.Counter
	failures                         *prometheus.CounterVec // class
	seconds, age                     prometheus.Observer
	paced                            prometheus.Gauge
}

func (m *Metrics) of(service string) *serviceMetrics {
	m.gapsOf(service) // the first increment of a series that was not there is no increase to Prometheus
	service = m.Labels.Of(service)
	outcomes := map[string]prometheus.Counter{}
	for _, outcome := range []string{OutcomeDelivered, OutcomeSkipped, OutcomeCoalesced, OutcomeOvertaken, OutcomeDiscarded, OutcomeRedecided, OutcomeParked, OutcomeDead} {
		outcomes[outcome] = m.deliveries.WithLabelValues(service, outcome)
	}
	return &serviceMetrics{
		outcomes: outcomes, offered: m.offered.WithLabelValues(service), found: m.found.WithLabelValues(service), held: m.held.WithLabelValues(service), unrecorded: m.unrecorded.WithLabelValues(service),
		failures: m.failures.MustCurryWith(prometheus.Labels{"service": service}),
		paced:    m.paced.WithLabelValues(service),
		seconds:  m.seconds.WithLabelValues(service), age: m.age.WithLabelValues(service),
	}
}

func (m *Metrics) gapsOf(service string) prometheus.Counter {
	return m.gaps.WithLabelValues(m.Labels.Of(service))
}

func (m *serviceMetrics) count(outcome string) { m.outcomes[outcome].Inc() }
