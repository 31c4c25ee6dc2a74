package decide

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/store"
)

// Metrics of decide. Counters move after the commit of what they count, so a
// transaction that is repeated counts once. Labels are bounded by the
// configuration: sources, services and fixed words.
type Metrics struct {
	events    *prometheus.CounterVec // source, outcome
	decisions *prometheus.CounterVec // service, decision
	letters   *prometheus.CounterVec // code
	takeOvers prometheus.Counter
	fenced    prometheus.Counter
	seconds   prometheus.Histogram
	batch     prometheus.Histogram
}

// Decisions, the values of label "decision".
const (
	DecisionPassed = "passed" // sent on: the projection changed
	DecisionHeld   = "held"   // evaluated, and equal to what the service has
	DecisionPruned = "pruned" // not evaluated: nothing that it reads changed
)

// NewMetrics registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_events_total", Help: "Inbox records by source and what became of them: stale, noise, merged, control, dead.",
		}, []string{"source", "outcome"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decisions_total", Help: "Decisions by service: passed (changed), held (equal), pruned (not evaluated).",
		}, []string{"service", "decision"}),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decide_dead_letters_total", Help: "Records and projections that could not be decided, by reason.",
		}, []string{"code"}),
		takeOvers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_take_overs_total", Help: "Inbox partitions taken over.",
		}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_fenced_total", Help: "Decisions that found the partition's state moved, or of unknown outcome.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_decide_seconds", Help: "Duration of decision transactions, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_decide_batch_records", Help: "Records in one decision transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
	}
	reg.MustRegister(m.events, m.decisions, m.letters, m.takeOvers, m.fenced, m.seconds, m.batch)
	return m
}

// Expect makes the series of services before anything happens, so that the
// first increment is seen as one.
func (m *Metrics) Expect(services []string) {
	for _, s := range services {
		for _, d := range []string{DecisionPassed, DecisionHeld, DecisionPruned} {
			m.decisions.WithLabelValues(s, d)
		}
	}
}

func newCounts() evaluationCounts {
	return evaluationCounts{outcomes: map[outcomeOf]int{}, pruned: map[int]int{}}
}

func (c evaluationCounts) add(o evaluationCounts) {
	for k, n := range o.outcomes {
		c.outcomes[k] += n
	}
	for k, n := range o.pruned {
		c.pruned[k] += n
	}
}

func (m *Metrics) decided(p *Plan, tally evaluationCounts, s settled, letters []store.DeadLetter, records int, took time.Duration) {
	for k, n := range tally.outcomes {
		m.events.WithLabelValues(k.source, string(k.outcome)).Add(float64(n))
	}
	for i, n := range s.passed {
		m.decisions.WithLabelValues(p.Services[i].Name, DecisionPassed).Add(float64(n))
	}
	for i, n := range s.held {
		m.decisions.WithLabelValues(p.Services[i].Name, DecisionHeld).Add(float64(n))
	}
	for i, n := range tally.pruned {
		m.decisions.WithLabelValues(p.Services[i].Name, DecisionPruned).Add(float64(n))
	}
	for _, l := range letters {
		m.letters.WithLabelValues(l.Code).Inc()
	}
	m.batch.Observe(float64(records))
	m.seconds.Observe(took.Seconds())
}
