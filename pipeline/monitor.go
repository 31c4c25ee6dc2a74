package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport/embedded"
)

// gauges are the metrics of the whole pipeline, beside its stages' counters.
type gauges struct {
	inboxLag  *prometheus.GaugeVec // partition
	pending   *prometheus.GaugeVec // service
	sourceLag *prometheus.GaugeVec // source

	sourceHeld *prometheus.GaugeVec // source
	outbox     *prometheus.GaugeVec // source; rows
	oldest     *prometheus.GaugeVec // source; seconds
	letters    *prometheus.GaugeVec // stage
	resets     *prometheus.CounterVec
	rereads    prometheus.Counter
	ready      prometheus.Gauge
	blocked    *prometheus.GaugeVec // reason
	stalled    *prometheus.GaugeVec // service; seconds
	health     *prometheus.GaugeVec // service; rank of a level
	shown      map[string]bool      // services of pending; of the watcher alone
	still      map[delivery]still   // what waits; of the watcher alone
	refused    prometheus.Gauge
	// Of the ledger of idempotency keys.
	ledgerHeld    prometheus.Gauge
	ledgerOldest  prometheus.Gauge
	ledgerOverdue prometheus.Gauge
	ledgerDropped prometheus.Counter
	files         *prometheus.GaugeVec // file
}

// What keeps a process from its work, the values of label "reason".
const (
	blockedSuperseded = "superseded" // another configuration is active
	blockedStore      = "store"      // it does not answer
	blockedDisk       = "disk"       // of the SQLite file, is full
	blockedHalted     = "halted"     // a decision cannot be made
	blockedSource     = "source"     // the database of an outbox does not answer, or a topic cannot be read
	blockedTopic      = "topic"      // an internal topic takes no record, or no broker answers
)

func newGauges(reg prometheus.Registerer) *gauges {
	of := promauto.With(reg)
	vec := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return of.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return of.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &gauges{
		inboxLag:      vec("weir_inbox_lag", "Inbox records that are not decided yet, by partition.", "partition"),
		pending:       vec("weir_delivery_pending", "Changes that are not delivered yet, by service; an upper bound.", "service"),
		stalled:       vec("weir_delivery_stalled_seconds", "For how long changes of the service have waited without any being delivered, in the partition where that is longest, as far as this process has seen it, in seconds; 0 when none waits.", "service"),
		health:        vec("weir_service_health", "How the delivery of the service is doing, where it is delivered: 0 ok, 1 degraded (tried again, or a change was refused), 2 down (paused, away for 5 minutes, or every change refused).", "service"),
		sourceHeld:    vec("weir_source_held", "Records of a Kafka source behind the start of an open transaction, which cannot be read before it ends.", "source"),
		sourceLag:     vec("weir_source_lag", "Records of a Kafka source, or lines of a file, that are not taken in yet; of a file an estimate.", "source"),
		outbox:        vec("weir_outbox_rows", "Rows of an outbox that are not taken in yet, counted up to 10,001.", "source"),
		oldest:        vec("weir_outbox_oldest_seconds", "For how long the oldest row of an outbox has waited, as far as this process has seen it, in seconds; 0 when none waits.", "source"),
		letters:       vec("weir_dead_letters", "Open dead letters by stage, counted up to 10,001.", "stage"),
		resets:        of.NewCounterVec(prometheus.CounterOpts{Name: "weir_records_gone_total", Help: "Times that records which were still wanted were gone from a topic."}, []string{"topic"}),
		rereads:       of.NewCounter(prometheus.CounterOpts{Name: "weir_inbox_rereads_total", Help: "Inbox partitions that are read again because the store went back behind what was decided."}),
		ready:         gauge("weir_ready", "1 when the process is ready."),
		blocked:       vec("weir_blocked", "1 while this keeps the process from its work: superseded, store, disk, halted, topic, source.", "reason"),
		refused:       gauge("weir_reload_refused", "1 when the last reload was refused, so that the process runs on with what it had."),
		files:         vec("weir_file_refused", "1 when a file that changed cannot be used, so that the process runs on with what it had.", "file"),
		ledgerHeld:    gauge("weir_ledger_held", "Idempotency keys that the ledger keeps; an estimate where there are many."),
		ledgerOldest:  gauge("weir_ledger_oldest_in_progress_seconds", "Age of the oldest idempotency key that an attempt is under way for, in seconds; 0 when there is none."),
		ledgerOverdue: gauge("weir_ledger_overdue_seconds", "For how long the oldest month of keys could have been dropped, in seconds; 0 when there is none."),
		ledgerDropped: of.NewCounter(prometheus.CounterOpts{Name: "weir_ledger_partitions_dropped_total", Help: "Months of the ledger that this process dropped because their keys were over their time."}),
	}
}

// monitor observes a running process: its gauges, its probes, and the remaining work of
// a run until idle.
type monitor struct {
	*process
	inbox  *inboxManager
	stages *stageSet
	topics topicHealth
	// Its health beside the conditions of services.
	outages  outages
	blockage blockage
	backfill atomic.Pointer[operate.Item] // nil: none is due
	letters  atomic.Pointer[[]operate.Item]

	left atomic.Pointer[[]Wait] // of UntilIdle; see Pipeline.Waits
	idle atomic.Bool            // of UntilIdle: nothing is left to do
}

// health is the state behind the probes.
type health struct {
	started    atomic.Bool
	superseded atomic.Bool // this process has stopped deciding
	outdated   atomic.Bool // another configuration is active, seen from outside of a decision
	storeDown  atomic.Pointer[error]
}

// ready is blocked, or that the process has not started yet.
func (m *monitor) ready() (reason string, err error) {
	if reason, err = m.blocked(); err == nil && !m.health.started.Load() {
		return "starting", errors.New("starting")
	}
	return reason, err
}

// blocked returns what keeps the process from its work, the first reason that
// there is; nil when nothing does.
func (m *monitor) blocked() (reason string, err error) {
	if m.health.superseded.Load() || m.health.outdated.Load() {
		return blockedSuperseded, store.ErrSuperseded
	}
	if err := m.health.storeDown.Load(); err != nil && *err != nil {
		return blockedStore, *err
	}
	if err := m.logs.Failing(); errors.Is(err, embedded.ErrFull) {
		return blockedDisk, err
	} else if err != nil {
		return blockedStore, err
	}
	if d := m.stages.decider.Load(); d != nil {
		if err := d.Halted(); err != nil {
			return blockedHalted, err
		}
	}
	if err := m.topics.blocked(time.Now()); err != nil {
		return blockedTopic, err
	}
	for _, s := range m.stages.sources() {
		if err := s.failing(); err != nil && s.Source.(sources.Failing).Blocks() {
			return blockedSource, fmt.Errorf("source %s: %w", s.name, err)
		}
	}
	return "", nil
}

// takes returns why no requests can be taken now. What keeps only the stage of
// decisions from its work does not, since the inbox holds what it has not decided
// yet, nor does a source that is not the callers', or a topic: what takes no record
// may be one partition.
func (m *monitor) takes() error {
	if !m.health.started.Load() {
		return errors.New("starting")
	}
	if reason, err := m.blocked(); err != nil && reason != blockedHalted && reason != blockedSource && reason != blockedTopic {
		return err
	}
	return nil
}

// showZeros creates the series of rare counters: to Prometheus the first increment of a
// new series is no increase.
func (m *monitor) showZeros() {
	if m.opt.Roles.Decide {
		m.metrics.decide.Expect(m.Config().ServiceNames())
	}
	if m.opt.Roles.Ingest {
		all := m.Config().Checks
		for i := range all {
			m.metrics.checks.Expect(all[i].Service())
		}
	}
	topics := []string{m.cfg.Kafka.Inbox.Topic, m.cfg.Kafka.Changes.Topic}
	for i := range m.cfg.Sources {
		if k, ok := m.cfg.Sources[i].Input.(config.TopicReader); ok {
			topics = append(topics, k.ReadsTopic())
		}
	}
	for _, topic := range topics {
		m.gauges.resets.WithLabelValues(topic)
	}
}

const (
	watchPeriod = 5 * time.Second
	gateTimeout = time.Second
)

// run updates the gauges and checks the servers periodically until ctx ends.
func (m *monitor) run(ctx context.Context) {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		var both sync.WaitGroup // an unreachable server must not delay the news of another
		both.Go(func() { m.updateGauges(ctx) })
		both.Go(func() { m.lookAtTopics(ctx) })
		both.Wait()
		m.inbox.note()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *monitor) updateGauges(running context.Context) {
	ctx, cancel := context.WithTimeout(running, watchPeriod)
	defer cancel()
	err := m.store.Ping(ctx)
	if running.Err() == nil { // a store that does not answer in time is down, too
		m.health.storeDown.Store(&err)
		m.outages.note("store", err, "", time.Now())
	}
	if m.opt.Roles.Ingest {
		ask, done := context.WithTimeout(ctx, gateTimeout)
		err := m.gate.Ping(ask)
		done()
		if running.Err() == nil {
			m.outages.note("gate", err, "bring Valkey back, or correct gate.valkey; until then repeated events pass the gate and are stopped later", time.Now())
		}
		m.noteSources(time.Now())
	}
	if now, active, err := m.active.current(ctx); err == nil {
		is := bytes.Equal(active.Fingerprint, now.identity)
		m.health.outdated.Store(!is)
		if is && m.opt.Roles.Decide {
			m.noteBackfill(ctx, now.plan.Fingerprint)
		}
	}
	if m.keys != nil {
		m.keys.Refresh()
	}
	m.stages.suspendServices(ctx)
	m.showProbes()
	m.showBacklogs(ctx)
}

// noteBackfill records the configuration in force, and whether a backfill to it is due.
func (m *monitor) noteBackfill(ctx context.Context, fingerprint []byte) {
	if err := operate.NoteConfiguration(ctx, m.store, fingerprint, time.Now()); err != nil {
		return // the store's outage is shown
	}
	if due, err := operate.BackfillItem(ctx, m.store); err == nil {
		m.backfill.Store(due)
	}
}

// showProbes shows what keeps the process and its services from their work.
func (m *monitor) showProbes() {
	found, err := m.ready()
	m.gauges.ready.Set(0)
	if err == nil {
		m.gauges.ready.Set(1)
	}
	for _, reason := range []string{blockedSuperseded, blockedStore, blockedDisk, blockedHalted, blockedTopic, blockedSource} {
		m.gauges.blocked.WithLabelValues(reason).Set(0)
		if reason == found {
			m.gauges.blocked.WithLabelValues(reason).Set(1)
		}
	}
	m.gauges.health.Reset()
	for name := range m.stages.conditions() {
		m.gauges.health.WithLabelValues(name).Set(0)
	}
	for _, s := range m.healthNow().Services {
		m.gauges.health.WithLabelValues(s.Service).Set(float64(s.Level.Rank()))
	}
}

// showBacklogs shows pending records and changes, as far as the servers answer.
func (m *monitor) showBacklogs(ctx context.Context) {
	// What is not known has no value: the last one would look well while nothing moves.
	lags, _, err := m.inboxLag(ctx)
	m.gauges.inboxLag.Reset()
	if err == nil {
		for n, lag := range lags {
			m.gauges.inboxLag.WithLabelValues(strconv.Itoa(int(n))).Set(float64(lag))
		}
	}
	if reached, err := operate.ReadProgress(ctx, m.store); err == nil {
		m.gauges.deliveries(reached, m.active.plan().Services, time.Now())
	}
	for _, s := range m.stages.sources() {
		if queue, ok := s.Source.(sources.Queue); ok && s.failing() == nil { // else it would be waited for here
			if lag, err := queue.Backlog(ctx); err == nil {
				m.gauges.outbox.WithLabelValues(s.name).Set(float64(lag.Rows))
				m.gauges.oldest.WithLabelValues(s.name).Set(lag.Oldest.Seconds())
			}
		}
		if log, ok := s.Source.(sources.Log); ok {
			if pending, err := log.Pending(ctx); err == nil {
				m.gauges.sourceLag.WithLabelValues(s.name).Set(float64(pending))
			} else {
				m.gauges.sourceLag.DeleteLabelValues(s.name)
			}
		}
		if t, ok := s.Source.(sources.Transactional); ok {
			records, _ := t.Held()
			m.gauges.sourceHeld.WithLabelValues(s.name).Set(float64(records))
		}
	}
	if n, err := m.store.OpenImports(ctx); err == nil {
		m.metrics.imports.Open(n)
	}
	if stats, err := m.store.LedgerStats(ctx); err == nil {
		m.gauges.ledgerHeld.Set(float64(stats.Held))
		age := time.Duration(0)
		if !stats.OldestInProgress.IsZero() {
			age = max(0, time.Since(stats.OldestInProgress))
		}
		m.gauges.ledgerOldest.Set(age.Seconds())
		m.gauges.ledgerOverdue.Set(overdue(stats.Months, m.cfg.API.Keys.Retention.D(), time.Now()).Seconds())
	}
	if items, err := operate.LetterItems(ctx, m.store); err == nil {
		m.letters.Store(&items)
	}
	if counts, err := m.store.CountLetters(ctx); err == nil {
		for _, stage := range store.Stages {
			m.gauges.letters.WithLabelValues(string(stage)).Set(float64(counts[stage]))
		}
	}
}

// delivery is a service in one partition.
type delivery struct{ service, partition int32 }

// still is where a delivery is, and since when.
type still struct {
	at    change.Version
	since time.Time
}

// deliveries shows what waits to be delivered, and for how long nothing of it was.
func (g *gauges) deliveries(reached *operate.DeliveryProgress, services []decide.Service, now time.Time) {
	shown, waiting := make(map[string]bool, len(services)), map[delivery]still{}
	for _, s := range services {
		var pending int64
		var longest time.Duration
		for partition := range reached.Marks {
			n := reached.Waiting(partition, s.Number)
			if n == 0 {
				continue
			}
			pending += n
			key := delivery{s.Number, partition}
			stands, at := g.still[key], reached.Position(partition, s.Number).Version
			if stands.at != at || stands.since.IsZero() {
				stands = still{at, now}
			}
			waiting[key] = stands
			longest = max(longest, now.Sub(stands.since))
		}
		g.pending.WithLabelValues(s.Name).Set(float64(pending))
		g.stalled.WithLabelValues(s.Name).Set(longest.Seconds())
		shown[s.Name] = true
		delete(g.shown, s.Name)
	}
	for service := range g.shown { // no longer configured
		g.pending.DeleteLabelValues(service)
		g.stalled.DeleteLabelValues(service)
	}
	g.shown, g.still = shown, waiting
}

// overdue is for how long the oldest month has been over its time; 0 when none is.
func overdue(months []store.LedgerMonth, keep time.Duration, now time.Time) time.Duration {
	if len(months) == 0 {
		return 0
	}
	return max(0, now.Sub(months[0].End().Add(keep)))
}

// failing returns why nothing is read of the source at present, else nil.
func (s *source) failing() error {
	if f, ok := s.Source.(sources.Failing); ok {
		return f.Failing()
	}
	return nil
}

func (st *stageSet) sources() []*source {
	if all := st.ingests.Load(); all != nil {
		return *all
	}
	return nil
}

// inboxLag is what the store's watermarks are behind the inbox, by partition, without those
// of unavailable partitions.
func (m *monitor) inboxLag(ctx context.Context) (lags map[int32]int64, unavailable []int32, err error) {
	starts, ends, err := m.logs.AvailableOffsets(ctx, m.cfg.Kafka.Inbox.Topic)
	if err != nil {
		return nil, nil, err
	}
	marks, err := m.store.Watermarks(ctx)
	if err != nil {
		return nil, nil, err
	}
	inboxes, err := m.store.Inboxes(ctx)
	if err != nil {
		return nil, nil, err
	}
	if n := len(inboxes); n > 0 {
		m.inbox.stored.Store(&inboxes[n-1])
	}
	lags = make(map[int32]int64, len(ends))
	for n, end := range ends {
		// What retention removed no longer waits.
		next := max(starts[n], marks[store.Partition{Generation: m.inbox.now().Generation, Number: n}])
		lags[n] = max(0, end-next)
	}
	for n := range int32(m.cfg.Kafka.Inbox.Partitions) {
		if _, known := lags[n]; !known {
			unavailable = append(unavailable, n)
		}
	}
	return lags, unavailable, nil
}

// outboxesOwned reports whether every outbox with rows is of a partition that this
// process owns: it has published them then, or is about to and not settled. What
// others hold may be what a process left that died after its last commit; nothing
// else tells of it until the partition is taken over, which may take a session.
func (m *monitor) outboxesOwned(ctx context.Context, d *decide.Decider) bool {
	outboxes, err := m.store.Outboxes(ctx)
	if err != nil {
		return false
	}
	owned := d.Decided()
	for part := range outboxes {
		if _, mine := owned[part]; !mine && part.Generation == m.inbox.now().Generation {
			return false
		}
	}
	return true
}

// onRecordsLost is called when a topic has lost records before they were read.
func (st *stageSet) onRecordsLost(topic string, partition int32, wanted, got int64) {
	st.gauges.resets.WithLabelValues(topic).Inc()
	st.log.Error("unread records are lost from the topic", "event", "topic.records_lost", "topic", topic, "partition", partition, "wanted_offset", wanted, "resumed_at", got)
}

// onStoreRewound is called when the watermark is below an offset that was decided before: the
// store was restored, or failed over without its last commits.
func (st *stageSet) onStoreRewound(_ string, partition int32, decided, watermark int64) {
	st.gauges.rereads.Inc()
	st.log.Warn("store was restored to an earlier state; re-reading the inbox", "event", "store.restored", "partition", partition, "decided_to", decided, "reading_from", watermark)
}
