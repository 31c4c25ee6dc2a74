package decide

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
)

// Metrics of decide. Counters move after the commit, so a
// transaction that is repeated counts once. Labels are bounded by the
// configuration: sources, services and fixed words.
type Metrics struct {
	// Labels bound the label "service". Nil means that each service has its own.
	Labels *servicelabel.Labels

	events    *prometheus.CounterVec // source, outcome
	decisions *prometheus.CounterVec // service, decision
	letters   *prometheus.CounterVec // code
	evaluated prometheus.Counter
	takeOvers prometheus.Counter
	fenced    prometheus.Counter
	seconds   prometheus.Histogram
	batch     prometheus.Histogram

	// The series of decisions of the services of a plan.
	resolving sync.Mutex
	plan      *Plan
	series    *planSeries

	cacheUsed                  *prometheus.CounterVec // result
	cacheEvicted, cacheDropped prometheus.Counter
	cacheEntities, cacheBytes  prometheus.Gauge
}

// The decisions about an event for a service, the values of label "decision".
const (
	DecisionPruned     = "pruned"     // not evaluated: nothing that it reads changed, or its filter requires another value
	DecisionFiltered   = "filtered"   // its filter, or a deletion, keeps the entity out, and it has nothing of it
	DecisionIncomplete = "incomplete" // a required source has no document yet
	DecisionHeldBack   = "held_back"  // equal to what the service has
	DecisionSent       = "sent"       // sent on: the projection changed
)

// Results, the values of label "result".
const (
	cacheHit  = "hit"
	cacheMiss = "miss"
)

var allDecisions = [decisionKinds]string{DecisionPruned, DecisionFiltered, DecisionIncomplete, DecisionHeldBack, DecisionSent}

// NewMetrics registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	m := &Metrics{
		events: with.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_events_total", Help: "Inbox records by source and what became of them: stale, noise, merged, control, dead, refused (at ingest).",
		}, []string{"source", "outcome"}),
		decisions: with.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decisions_total", Help: "Decisions by service: pruned (not evaluated), filtered (kept out), incomplete (a required source is missing), held_back (equal), sent (changed).",
		}, []string{"service", "decision"}),
		letters: with.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decide_dead_letters_total", Help: "Records and projections that could not be decided, by reason.",
		}, []string{"code"}),
		evaluated: with.NewCounter(prometheus.CounterOpts{
			Name: "weir_decide_evaluations_total", Help: "Projections that were evaluated; one for all services that show the same.",
		}),
		takeOvers: with.NewCounter(prometheus.CounterOpts{
			Name: "weir_take_overs_total", Help: "Inbox partitions taken over.",
		}),
		fenced: with.NewCounter(prometheus.CounterOpts{
			Name: "weir_decide_conflicts_total", Help: "Decisions that found the partition's state moved, or of unknown outcome.",
		}),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_decide_seconds", Help: "Duration of decision transactions, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		batch: with.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_decide_batch_records", Help: "Records in one decision transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
		cacheUsed: with.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decide_cache_lookups_total", Help: "Entities that decisions were about: hit (remembered by the owner of the partition) or miss (loaded).",
		}, []string{"result"}),
		cacheEvicted: with.NewCounter(prometheus.CounterOpts{
			Name: "weir_decide_cache_evicted_total", Help: "Entities that the owner's cache had no room for any more.",
		}),
		cacheDropped: with.NewCounter(prometheus.CounterOpts{
			Name: "weir_decide_cache_dropped_total", Help: "Entities that the owner's cache forgot with their partition: taken over, given up, or after anything but a clean commit.",
		}),
		cacheEntities: with.NewGauge(prometheus.GaugeOpts{
			Name: "weir_decide_cache_entities", Help: "Entities in the owner's cache.",
		}),
		cacheBytes: with.NewGauge(prometheus.GaugeOpts{
			Name: "weir_decide_cache_bytes", Help: "Estimated size of the owner's cache.",
		}),
	}
	for _, result := range []string{cacheHit, cacheMiss} {
		m.cacheUsed.WithLabelValues(result)
	}
	return m
}

// Expect makes the series of services before anything happens, so that the
// first increment is seen as one.
func (m *Metrics) Expect(services []string) {
	for _, s := range services {
		for _, d := range allDecisions {
			m.decisions.WithLabelValues(m.Labels.Of(s), d)
		}
	}
}

// planSeries are the series of a plan's decisions. Services may share theirs.
type planSeries struct {
	of     []int // by service: its group
	groups []seriesGroup
}

// seriesGroup are the series of services with one label.
type seriesGroup struct {
	services int
	counters [decisionKinds]prometheus.Counter
}

// seriesOf returns the series of a plan, which are looked up once.
func (m *Metrics) seriesOf(p *Plan) *planSeries {
	m.resolving.Lock()
	defer m.resolving.Unlock()
	if m.plan == p {
		return m.series
	}
	m.plan, m.series = p, &planSeries{of: make([]int, len(p.Services))}
	known := map[string]int{}
	for i, s := range p.Services {
		label := m.Labels.Of(s.Name)
		group, found := known[label]
		if !found {
			group = len(m.series.groups)
			known[label], m.series.groups = group, append(m.series.groups, seriesGroup{})
			for kind, decision := range allDecisions {
				m.series.groups[group].counters[kind] = m.decisions.WithLabelValues(label, decision)
			}
		}
		m.series.of[i] = group
		m.series.groups[group].services++
	}
	return m.series
}

// add adds the decisions of a batch.
func (s *planSeries) add(c *decisionCounts) {
	sums := slices.Grow(c.sums[:0], len(s.groups))[:len(s.groups)]
	clear(sums)
	c.sums = sums
	for _, service := range c.touched {
		for kind, n := range c.of[service] {
			sums[s.of[service]][kind] += n
		}
	}
	for i := range s.groups {
		g := &s.groups[i]
		for kind, n := range sums[i] {
			if n += c.all[kind] * g.services; n > 0 {
				g.counters[kind].Add(float64(n))
			}
		}
	}
}

// decided counts a decision that was committed.
func (m *Metrics) decided(v *verdict, records int, took time.Duration) {
	for k, n := range v.outcomes {
		m.events.WithLabelValues(k.source, string(k.outcome)).Add(float64(n))
	}
	m.seriesOf(v.plan).add(&v.decisions)
	for i := range v.out.Letters {
		m.letters.WithLabelValues(v.out.Letters[i].Code).Inc()
	}
	m.evaluated.Add(float64(v.evaluations))
	m.batch.Observe(float64(records))
	m.seconds.Observe(took.Seconds())
}
