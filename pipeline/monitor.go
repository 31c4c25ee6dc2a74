package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/transport/embedded"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/store"
)

// Values of label "reason": the conditions that block a process.
const (
	blockedSuperseded = "superseded" // another configuration is active
	blockedStore      = "store"      // it does not answer
	blockedDisk       = "disk"       // of the SQLite file, is full
	blockedHalted     = "halted"     // a decision cannot be made
	blockedTopic      = "topic"      // an internal topic takes no record, or no broker answers
)

// monitor observes a running process: its gauges, its probes and its outages.
type monitor struct {
	cfg     *config.Config // as the process was started with
	roles   Roles
	log     *slog.Logger
	store   assemble.Store
	logs    assemble.Logs
	gate    gate.Gate
	keys    *auth.Keyring // nil without API
	active  *activation
	inbox   *inboxManager
	ingest  *ingestStage
	work    *workStage
	metrics stageMetrics
	gauges  *gauges

	started  atomic.Bool
	checked  atomic.Bool // every server was asked at least once
	outages  outages
	blockage blockage
	backfill atomic.Pointer[operate.Item] // nil: none is due
	repairs  atomic.Pointer[[]operate.Item]
	unmet    atomic.Pointer[[]operate.Item] // required sources; nil before the first check
	unmetAt  time.Time                      // of checkUnmet alone: of the next check
	missing  map[string]bool                // used by checkTopics only; topics that were missing at the last check
}

// ready is blocked, or that the process has not started and checked its servers yet.
func (m *monitor) ready() (reason string, err error) {
	if reason, err = m.blocked(); err == nil && !(m.started.Load() && m.checked.Load()) {
		return "starting", errors.New("starting")
	}
	return reason, err
}

// blocked returns the error that blocks the process, with the first reason that applies, or nil.
func (m *monitor) blocked() (reason string, err error) {
	if m.active.superseded.Load() {
		return blockedSuperseded, store.ErrSuperseded
	}
	if err := m.outages.lasting("store", 0, time.Now()); err != nil {
		return blockedStore, err
	}
	if err := m.logs.Failing(); errors.Is(err, embedded.ErrFull) {
		return blockedDisk, err
	} else if err != nil {
		return blockedStore, err
	}
	if reason, err := m.work.halted(); err != nil {
		return reason, err
	}
	if err := m.topicsBlocked(time.Now()); err != nil {
		return blockedTopic, err
	}
	return "", nil
}

// takes returns why requests cannot be accepted now. A halted decider is no reason, since the
// inbox keeps undecided events. Neither is a topic, of which only one partition may fail.
func (m *monitor) takes() error {
	if !m.started.Load() {
		return errors.New("starting")
	}
	if reason, err := m.blocked(); err != nil && reason != blockedHalted && reason != blockedTopic {
		return err
	}
	return nil
}

// showZeros creates the series of rare counters: to Prometheus the first increment of a
// new series is no increase.
func (m *monitor) showZeros() {
	if m.roles.Work {
		m.metrics.decide.Expect(m.active.config().ServiceNames())
	}
	if m.roles.Ingest {
		all := m.active.config().Checks
		for i := range all {
			m.metrics.checks.Expect(all[i].Service())
		}
	}
	topics := []string{m.cfg.Kafka.Inbox.Topic}
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
	checks := []func(context.Context){m.checkStore, m.checkTopics, m.updateGauges}
	if m.roles.Ingest {
		checks = append(checks, m.checkGate, func(context.Context) { m.noteSources(time.Now()) })
	}
	m.watch(ctx, checks...)
}

// watch runs checks concurrently every watchPeriod until ctx ends, each for at most watchPeriod.
// So an outage is reported within two periods.
func (m *monitor) watch(ctx context.Context, checks ...func(context.Context)) {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		var all sync.WaitGroup // an unreachable server delays no other check
		for _, check := range checks {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, watchPeriod)
				defer cancel()
				check(ctx)
			})
		}
		all.Wait()
		m.checked.Store(true)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *monitor) checkStore(ctx context.Context) {
	if err := m.store.Ping(ctx); !errors.Is(context.Cause(ctx), context.Canceled) { // else the process ends
		m.outages.note("store", err, "", time.Now())
	}
}

func (m *monitor) checkGate(running context.Context) {
	ctx, cancel := context.WithTimeout(running, gateTimeout)
	defer cancel()
	err := m.gate.Ping(ctx)
	if running.Err() != nil {
		return
	}
	do := ""
	if err != nil {
		do = remedy.Of("gate", err) + " (gate.valkey); until then repeated events pass the gate and are stopped later"
	}
	m.outages.note("gate", err, do, time.Now())
}

func (m *monitor) updateGauges(ctx context.Context) {
	if now, active, err := m.active.current(ctx); err == nil {
		is := bytes.Equal(active.Fingerprint, now.identity)
		m.active.superseded.Store(!is)
		if is && m.roles.Work {
			m.noteBackfill(ctx, now.plan.Fingerprint)
		}
	}
	if m.keys != nil {
		m.keys.Refresh()
	}
	m.work.applyPauses(ctx)
	m.showProbes()
	m.showBacklogs(ctx)
	m.inbox.note()
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

// showProbes updates the probes with the problems of the process and its services.
func (m *monitor) showProbes() {
	found, err := m.ready()
	m.gauges.ready.Set(0)
	if err == nil {
		m.gauges.ready.Set(1)
	}
	for _, reason := range []string{blockedSuperseded, blockedStore, blockedDisk, blockedHalted, blockedTopic} {
		m.gauges.blocked.WithLabelValues(reason).Set(0)
		if reason == found {
			m.gauges.blocked.WithLabelValues(reason).Set(1)
		}
	}
	behind := map[string]int{}
	if stage := m.work.stage.Load(); stage != nil {
		behind = stage.Behind()
	}
	m.gauges.conditions(m.work.conditions(), behind, m.healthNow().Services)
}

// showBacklogs shows pending records and changes, as far as the servers answer.
func (m *monitor) showBacklogs(ctx context.Context) {
	// An unknown lag has no value: the last one would look well while nothing moves.
	lags, _, err := m.inbox.lag(ctx)
	shown := map[string]float64{}
	if err == nil {
		for n, lag := range lags {
			shown[strconv.Itoa(int(n))] = float64(lag)
		}
	}
	m.gauges.inboxLag.set(shown)
	if reached, err := operate.ReadProgress(ctx, m.store); err == nil {
		services := m.active.plan().Services
		m.gauges.deliveries(reached, services, time.Now())
		names := make(map[int32]string, len(services))
		for _, s := range services {
			names[s.Number] = s.Name
		}
		repairs := reached.Repairs(names)
		m.repairs.Store(&repairs)
		m.checkUnmet(ctx, reached)
	}
	for _, s := range m.ingest.sources() {
		_, failing := s.failing()
		if queue, ok := s.Source.(sources.Queue); ok && failing == nil { // else it would be waited for here
			if lag, err := queue.Backlog(ctx); err == nil {
				m.gauges.outbox.WithLabelValues(s.name).Set(float64(lag.Rows))
				m.gauges.outboxAge.WithLabelValues(s.name).Set(lag.Oldest.Seconds())
			}
		}
		if log, ok := s.Source.(sources.Log); ok {
			if pending, err := log.Pending(ctx); err == nil {
				m.gauges.sourceLag.WithLabelValues(s.name).Set(float64(pending))
			} else {
				m.gauges.sourceLag.DeleteLabelValues(s.name)
			}
		}
		if r, ok := s.Source.(sources.Retaining); ok {
			m.gauges.slotBytes.WithLabelValues(s.name).Set(float64(r.Retained()))
		}
		if t, ok := s.Source.(sources.Transactional); ok {
			records, _ := t.Held()
			m.gauges.sourceHeld.WithLabelValues(s.name).Set(float64(records))
		}
	}
	if stats, err := m.store.LedgerStats(ctx); err == nil {
		m.gauges.ledgerHeld.Set(float64(stats.Held))
		m.gauges.ledgerOverdue.Set(overdue(stats.OldestMonth, m.cfg.API.Idempotency.Retention.D(), time.Now()).Seconds())
	}
	if counts, err := m.store.CountLetters(ctx); err == nil {
		for _, stage := range store.Stages {
			m.gauges.letters.WithLabelValues(string(stage)).Set(float64(counts[stage]))
		}
	}
}

const (
	unmetAfter  = 1000 // decided records
	unmetPeriod = time.Minute
)

// checkUnmet looks for required sources that share no entity with another one, after the first
// thousand records and until all do.
func (m *monitor) checkUnmet(ctx context.Context, reached *operate.DeliveryProgress) {
	required, last := m.active.config().Merge.Required, m.unmet.Load()
	var decided int64
	for _, mark := range reached.Marks {
		decided += mark.Watermark.Offset()
	}
	if !m.roles.Work || len(required) == 0 || decided < unmetAfter || last != nil && len(*last) == 0 || time.Now().Before(m.unmetAt) {
		return
	}
	items, err := operate.Unmet(ctx, m.store, required)
	if err != nil {
		return // the store's outage is shown
	}
	if last == nil {
		for _, i := range items {
			m.log.Warn("a required source shares no entity with another", "event", "source.unmet", "what", i.What, "why", i.Why, "do", i.Do)
		}
	}
	m.unmet.Store(&items)
	m.unmetAt = time.Now().Add(unmetPeriod)
}

// overdue is how long all keys of the oldest month have been expired, 0 without such a month.
func overdue(month time.Time, keep time.Duration, now time.Time) time.Duration {
	if month.IsZero() {
		return 0
	}
	return max(0, now.Sub(month.AddDate(0, 1, 0).Add(keep)))
}
