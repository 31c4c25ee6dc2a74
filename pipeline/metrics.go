package pipeline

import (
	"cmp"
	"log/slog"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
	"github.com/seed-86dfc502/weir/operate"
)

// stageMetrics are the counters of the stages.
type stageMetrics struct {
	ingest  *ingest.Metrics
	events  *events.Metrics
	decide  *decide.Metrics
	deliver *deliver.Metrics
	checks  *checks.Metrics
}

func newStageMetrics(reg prometheus.Registerer, labels *servicelabel.Labels) stageMetrics {
	m := stageMetrics{
		ingest: ingest.NewMetrics(reg), events: events.NewMetrics(reg), decide: decide.NewMetrics(reg),
		deliver: deliver.NewMetrics(reg), checks: checks.NewMetrics(reg),
	}
	m.decide.Labels, m.deliver.Labels, m.checks.Labels = labels, labels, labels
	return m
}

// gauges are the metrics of the whole pipeline, beside its stages' counters.
type gauges struct {
	labels     *servicelabel.Labels // of services
	inboxLag   levels               // partition
	sourceLag  *prometheus.GaugeVec // source
	sourceHeld *prometheus.GaugeVec // source
	failing    levels               // source; 1 or 0
	slotBytes  *prometheus.GaugeVec // source
	outbox     *prometheus.GaugeVec // source; rows
	outboxAge  *prometheus.GaugeVec // source; seconds
	letters    *prometheus.GaugeVec // stage
	resets     *prometheus.CounterVec
	timed      message.HandlerMiddleware // of all routers
	rereads    prometheus.Counter
	ready      prometheus.Gauge
	blocked    *prometheus.GaugeVec           // reason
	pending    levels                         // service
	stalled    levels                         // service; seconds
	oldest     levels                         // service; a time
	clock      operate.QueueClock             // of the watcher alone
	health     levels                         // service; rank of a level
	paused     map[deliver.PauseCause]*levels // service
	behind     levels                         // service; partitions
	still      map[delivery]still             // what waits; of the watcher alone
	refused    prometheus.Gauge
	// Of the ledger of idempotency keys.
	ledgerHeld    prometheus.Gauge
	ledgerOverdue prometheus.Gauge
	ledgerDropped prometheus.Counter
	files         *prometheus.GaugeVec // file
	refusals      refusals
}

func newGauges(reg prometheus.Registerer, labels *servicelabel.Labels) *gauges {
	of := promauto.With(reg)
	// Watermill's own: a message is a frame, which may wait for a store or a target for long.
	router := metrics.NewPrometheusMetricsBuilder(reg, "weir", "router")
	router.HandlerBuckets = prometheus.ExponentialBuckets(0.001, 4, 10)
	vec := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return of.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return of.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	level := func(v *prometheus.GaugeVec) levels { return levels{vec: v} }
	return &gauges{
		labels:        labels,
		timed:         router.NewRouterMiddleware().Middleware,
		inboxLag:      level(vec("weir_inbox_lag", "Inbox records that are not decided yet, by partition.", "partition")),
		pending:       level(vec("weir_delivery_queued", "Changes that are not delivered yet, by service; an upper bound.", "service")),
		stalled:       level(vec("weir_delivery_stalled_seconds", "For how long changes of the service have waited without any being delivered, in the partition where that is longest, as far as this process has seen it, in seconds; 0 when none waits.", "service")),
		oldest:        level(vec("weir_delivery_oldest_timestamp_seconds", "When the oldest queued change of the service was first seen, in seconds since 1970; absent when none is queued.", "service")),
		health:        level(vec("weir_service_health", "How the delivery of the service is doing, where it is delivered: 0 ok, 1 degraded (tried again, a change was refused, or paused by an operator), 2 down (held by the guard, refused as a whole, away for 5 minutes, or every change refused).", "service")),
		paused:        pausedLevels(vec("weir_service_paused", "Services that are paused, by cause (operator, guard, or refused as a whole by the target): 1 or 0, or more where services share a label.", "service", "cause")),
		behind:        level(vec("weir_service_behind", "Partitions of this process in which the service is lagging and catches up separately.", "service")),
		failing:       level(vec("weir_source_failing", "1 while the source cannot be read.", "source")),
		sourceHeld:    vec("weir_source_held", "Records of a Kafka source behind the start of an open transaction, which cannot be read before it ends.", "source"),
		sourceLag:     vec("weir_source_lag", "Records of a Kafka source, or lines of a file, that are not ingested yet; of a file an estimate.", "source"),
		slotBytes:     vec("weir_source_slot_bytes", "Log that the server keeps for the replication slot of a PostgreSQL source, in bytes.", "source"),
		outbox:        vec("weir_outbox_rows", "Rows of an outbox that are not ingested yet, counted up to 10,001.", "source"),
		outboxAge:     vec("weir_outbox_oldest_seconds", "For how long the oldest row of an outbox has waited, as far as this process has seen it, in seconds; 0 when none waits.", "source"),
		letters:       vec("weir_dead_letters", "Open dead letters by stage, counted up to 10,001.", "stage"),
		resets:        of.NewCounterVec(prometheus.CounterOpts{Name: "weir_log_records_lost_total", Help: "Times that unread records were lost from a topic."}, []string{"topic"}),
		rereads:       of.NewCounter(prometheus.CounterOpts{Name: "weir_inbox_rereads_total", Help: "Inbox partitions that are read again because the store was restored to an earlier state."}),
		ready:         gauge("weir_ready", "1 when the process is ready."),
		blocked:       vec("weir_blocked", "1 while this keeps the process from its work: superseded, store, disk, halted, topic.", "reason"),
		refused:       gauge("weir_reload_refused", "1 when the last reload was refused, so that the process keeps what it had."),
		files:         vec("weir_file_refused", "1 when a file that changed cannot be used, so that the process keeps what it had.", "file"),
		ledgerHeld:    gauge("weir_ledger_held", "Idempotency keys that the ledger keeps; an estimate where there are many."),
		ledgerOverdue: gauge("weir_ledger_overdue_seconds", "For how long the oldest month of keys could have been dropped, in seconds; 0 when there is none."),
		ledgerDropped: of.NewCounter(prometheus.CounterOpts{Name: "weir_ledger_partitions_dropped_total", Help: "Months of the ledger that this process dropped because their keys were over their time."}),
	}
}

// delivery is a service in one partition.
type delivery struct{ service, partition int32 }

// still is where a delivery is, and since when.
type still struct {
	at    change.Version
	since time.Time
}

// levels are gauges by one label. Used by one goroutine.
type levels struct {
	vec   *prometheus.GaugeVec
	shown map[string]float64
}

// pausedLevels are the gauges of a vector by service and cause.
func pausedLevels(v *prometheus.GaugeVec) map[deliver.PauseCause]*levels {
	all := map[deliver.PauseCause]*levels{}
	for _, cause := range []deliver.PauseCause{deliver.PausedByOperator, deliver.PausedByGuard, deliver.PausedByRefusal} {
		all[cause] = &levels{vec: v.MustCurryWith(prometheus.Labels{"cause": string(cause)})}
	}
	return all
}

// set shows the values and no others.
func (l *levels) set(values map[string]float64) {
	for label, v := range values {
		l.vec.WithLabelValues(label).Set(v)
	}
	for label := range l.shown {
		if _, remains := values[label]; !remains {
			l.vec.DeleteLabelValues(label)
		}
	}
	l.shown = values
}

// deliveries shows the pending changes of services, and since when none was delivered.
func (g *gauges) deliveries(reached *operate.DeliveryProgress, services []decide.Service, now time.Time) {
	pending, stalled, oldest, waiting := map[string]float64{}, map[string]float64{}, map[string]float64{}, map[delivery]still{}
	g.clock.Note(reached, now)
	for _, s := range services {
		var changes int64
		var longest time.Duration
		for partition := range reached.Marks {
			n := reached.Waiting(partition, s.Number)
			if n == 0 {
				continue
			}
			changes += n
			key := delivery{s.Number, partition}
			last, at := g.still[key], reached.Position(partition, s.Number)
			if last.at != at || last.since.IsZero() {
				last = still{at, now}
			}
			waiting[key] = last
			longest = max(longest, now.Sub(last.since))
		}
		label := g.labels.Of(s.Name)
		pending[label] += float64(changes)
		stalled[label] = max(stalled[label], longest.Seconds())
		if at := g.clock.Oldest(reached, s.Number); !at.IsZero() {
			oldest[label] = min(cmp.Or(oldest[label], math.Inf(1)), float64(at.Unix()))
		}
	}
	g.pending.set(pending)
	g.stalled.set(stalled)
	g.oldest.set(oldest)
	g.still = waiting
}

// conditions shows how the delivery of services is doing.
func (g *gauges) conditions(of map[string]deliver.Condition, behind map[string]int, unwell []operate.ServiceHealth) {
	health, lagging, paused := map[string]float64{}, map[string]float64{}, map[deliver.PauseCause]map[string]float64{}
	for cause := range g.paused {
		paused[cause] = map[string]float64{}
	}
	for service, c := range of {
		label := g.labels.Of(service)
		health[label] += 0
		for cause, services := range paused {
			services[label] += 0
			if c.Pause != nil && c.Pause.Cause == cause {
				services[label]++
			}
		}
		partitions := behind[service]
		if c.State == deliver.StatePaced { // it lags on purpose
			partitions = 0
		}
		lagging[label] += float64(partitions)
	}
	for _, s := range unwell {
		label := g.labels.Of(s.Service)
		health[label] = max(health[label], float64(s.Level.Rank()))
	}
	g.health.set(health)
	for cause, services := range paused {
		g.paused[cause].set(services)
	}
	g.behind.set(lagging)
}

// noteReload records the outcome of a reload.
func (g *gauges) noteReload(err error) {
	g.refused.Set(0)
	if err != nil {
		g.refused.Set(1)
	}
	g.refusals.note("reload", err, "weir validate lists every fault; then weir reload")
}

// rereadLogger returns a callback for each later reading of a file.
func (g *gauges) rereadLogger(log *slog.Logger, what, path string) func(error) {
	refused := g.files.WithLabelValues(what)
	return func(err error) {
		refused.Set(0)
		g.refusals.note(what, err, "correct "+path+": it is read again after each change")
		if err != nil {
			refused.Set(1)
			log.Error("a changed file cannot be used; the process keeps its earlier content", "event", "file.refused", "file", path, "error", err)
			return
		}
		log.Info("a changed file is in force", "event", "file.reread", "file", path)
	}
}
