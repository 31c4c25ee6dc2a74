package pipeline

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// A month of keys is overdue from when all of its keys are over their time.
func TestOverdueMonthsOfKeys(t *testing.T) {
	const keep = 30 * 24 * time.Hour
	month := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	over := time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC) // 30 days after the end of January
	require.Zero(t, overdue(time.Time{}, keep, over))
	require.Zero(t, overdue(month, keep, over.Add(-time.Hour)))
	require.Zero(t, overdue(month, keep, over))
	require.Equal(t, time.Hour, overdue(month, keep, over.Add(time.Hour)))
}

// A service stalls while changes wait and its position stays where it is; it does
// not when it has nothing to do, or moves, however much there is.
func TestStalledDeliveries(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := newGauges(reg, nil)
	services := []decide.Service{{Name: "fast", Number: 1}, {Name: "stuck", Number: 2}, {Name: "slow", Number: 3}}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(minutes int, decided int64, positions ...int64) {
		var saved []store.ServicePosition
		for i, n := range positions {
			saved = append(saved, store.ServicePosition{Service: int32(i + 1), Version: change.NewVersion(1, n)})
		}
		mark := store.Mark{LastTo: change.NewVersion(1, decided)}
		reached, err := operate.ReadProgress(t.Context(), positions7{mark, saved})
		require.NoError(t, err)
		g.deliveries(reached, services, begin.Add(time.Duration(minutes)*time.Minute))
	}
	const pending, stalled, oldest = "weir_delivery_queued", "weir_delivery_stalled_seconds", "weir_delivery_oldest_timestamp_seconds"
	values := func(name string) map[string]float64 { return gaugeValues(t, reg, name) }
	at(0, 100, 100, 40, 40)
	require.Equal(t, map[string]float64{"fast": 0, "stuck": 60, "slow": 60}, values(pending))
	require.Equal(t, map[string]float64{"fast": 0, "stuck": 0, "slow": 0}, values(stalled), "seen for the first time")
	at(10, 200, 199, 40, 100)
	at(20, 300, 299, 40, 150)
	require.Equal(t, map[string]float64{"fast": 1, "stuck": 260, "slow": 150}, values(pending))
	require.Equal(t, map[string]float64{"fast": 0, "stuck": 20 * 60, "slow": 0}, values(stalled))
	require.Equal(t, map[string]float64{"fast": float64(begin.Add(20 * time.Minute).Unix()), "stuck": float64(begin.Unix()), "slow": float64(begin.Add(10 * time.Minute).Unix())}, values(oldest), "also of those that move")
	at(30, 300, 300, 300, 151)
	require.Equal(t, map[string]float64{"fast": 0, "stuck": 0, "slow": 0}, values(stalled))
	services = services[:2]
	at(40, 300, 300, 300, 151)
	require.Equal(t, map[string]float64{"fast": 0, "stuck": 0}, values(pending), "the third is not configured any more")
	require.Equal(t, map[string]float64{"fast": 0, "stuck": 0}, values(stalled))
}

// gaugeValues returns a gauge by its labels.
func gaugeValues(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	families, err := reg.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				found[strings.Join(labels, " ")] = m.GetGauge().GetValue()
			}
		}
	}
	return found
}

// Services that share a label show the sum of what can be added and else the worst of them.
func TestServicesThatShareALabel(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := newGauges(reg, servicelabel.New(1))
	g.conditions(map[string]deliver.Condition{"a/x@s": {}}, nil, nil)
	paused := deliver.Condition{State: deliver.StatePaused, Pause: &deliver.Pause{Cause: deliver.PausedByRefusal}}
	g.conditions(map[string]deliver.Condition{"a/x@s": {}, "b/x@s": paused, "b/y@s": paused, "b/z@s": {}}, map[string]int{"b/x@s": 2, "b/z@s": 3}, []operate.ServiceHealth{
		{Service: "b/x@s", Level: operate.LevelDown}, {Service: "b/z@s", Level: operate.LevelDegraded},
	})
	require.Equal(t, map[string]float64{
		"operator a/x@s": 0, "operator b/*": 0, "guard a/x@s": 0, "guard b/*": 0, "refused a/x@s": 0, "refused b/*": 2,
	}, gaugeValues(t, reg, "weir_service_paused"))
	require.Equal(t, map[string]float64{"a/x@s": 0, "b/*": 5}, gaugeValues(t, reg, "weir_service_behind"))
	require.Equal(t, map[string]float64{"a/x@s": 0, "b/*": float64(operate.LevelDown.Rank())}, gaugeValues(t, reg, "weir_service_health"))
	services := []decide.Service{{Name: "a/x@s", Number: 1}, {Name: "b/x@s", Number: 2}, {Name: "b/y@s", Number: 3}}
	reached, err := operate.ReadProgress(t.Context(), positions7{store.Mark{LastTo: change.NewVersion(1, 100)}, []store.ServicePosition{
		{Service: 1, Version: change.NewVersion(1, 90)}, {Service: 2, Version: change.NewVersion(1, 70)}, {Service: 3, Version: change.NewVersion(1, 60)},
	}})
	require.NoError(t, err)
	g.deliveries(reached, services, time.Unix(1000, 0))
	require.Equal(t, map[string]float64{"a/x@s": 10, "b/*": 70}, gaugeValues(t, reg, "weir_delivery_queued"))
}

// positions7 is progress of one partition, number 7.
type positions7 struct {
	mark      store.Mark
	positions []store.ServicePosition
}

func (p positions7) Marks(context.Context) (map[int32]store.Mark, error) {
	return map[int32]store.Mark{7: p.mark}, nil
}

func (p positions7) Inboxes(context.Context) ([]store.Inbox, error) { return nil, nil }

func (p positions7) AllProgress(context.Context) ([]store.Progress, error) {
	return []store.Progress{{Partition: 7, Positions: p.positions}}, nil
}

// pinged are servers of which some accept requests and never answer.
type pinged struct {
	mu    sync.Mutex
	hangs map[string]bool // guarded by mu
}

type (
	pingedStore struct {
		assemble.Store
		*pinged
	}
	pingedGate struct {
		gate.Gate
		*pinged
	}
	pingedLogs struct {
		assemble.Logs
		*pinged
	}
)

func (p *pinged) set(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs[name] = true
}

func (p *pinged) ask(ctx context.Context, name string) error {
	p.mu.Lock()
	hangs := p.hangs[name]
	p.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (p pingedStore) Ping(ctx context.Context) error { return p.ask(ctx, "store") }
func (p pingedGate) Ping(ctx context.Context) error  { return p.ask(ctx, "gate") }
func (p pingedLogs) Faults(ctx context.Context, _ ...string) ([]*transport.TopicFault, error) {
	return nil, p.ask(ctx, "kafka")
}

// Servers that hang are all named within ten seconds of a check that they passed: none delays
// the check of another. The mistake that this catches: the gate was asked in the time that the
// store had left, so it was named when the store hung.
func TestHungServersAreNamedWithinTenSeconds(t *testing.T) {
	for _, hung := range [][]string{{"store"}, {"gate"}, {"kafka"}, {"gate", "kafka", "store"}} {
		synctest.Test(t, func(t *testing.T) {
			w := &pinged{hangs: map[string]bool{}}
			m := &monitor{cfg: &config.Config{}, store: pingedStore{pinged: w}, gate: pingedGate{pinged: w}, logs: pingedLogs{pinged: w}, outages: outages{log: slog.New(slog.DiscardHandler)}}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { m.watch(ctx, m.checkStore, m.checkGate, m.checkTopics) })
			synctest.Wait()
			require.Empty(t, m.outages.now)
			<-time.After(1) // of the bubble: just after a check
			for _, name := range hung {
				w.set(name)
			}
			<-time.After(2 * watchPeriod)
			synctest.Wait()
			require.ElementsMatch(t, hung, slices.Collect(maps.Keys(m.outages.now)))
			stop()
			running.Wait()
			require.Len(t, m.outages.now, len(hung), "the end of the process is no outage")
		})
	}
}

// partlyAway is a log whose inbox has a partition without a leader.
type partlyAway struct {
	assemble.Logs
	away bool
}

func (l *partlyAway) AvailableOffsets(ctx context.Context, topic string) (starts, ends map[int32]int64, err error) {
	starts, ends, err = l.Logs.AvailableOffsets(ctx, topic)
	if l.away {
		delete(starts, 1)
		delete(ends, 1)
	}
	return starts, ends, err
}

// What an unavailable partition holds is not known. The mistake that this catches: its lag
// kept the last value, and the inbox counted as decided.
func TestLagOfAnUnavailablePartitionIsUnknown(t *testing.T) {
	p := openEmbedded(t, Roles{}, fileSource)
	l := &partlyAway{Logs: p.logs}
	m := p.monitor
	m.logs, p.inbox.logs = l, l
	partitions := p.cfg.Kafka.Inbox.Partitions
	require.Greater(t, partitions, 1)
	look := func() (shown int, waiting bool) {
		m.showBacklogs(t.Context())
		_, waiting = p.idle.inboxWaits(t.Context(), false)
		values := make(chan prometheus.Metric, partitions)
		m.gauges.inboxLag.vec.Collect(values)
		return len(values), waiting
	}
	shown, waiting := look()
	require.Equal(t, partitions, shown)
	require.False(t, waiting)
	l.away = true
	shown, waiting = look()
	require.Equal(t, partitions-1, shown)
	require.True(t, waiting)
	l.away = false
	shown, waiting = look()
	require.Equal(t, partitions, shown)
	require.False(t, waiting)
}

// Dead letters are read for who asks, not by every look at the backlogs.
func TestStatusReadsLettersWhenAsked(t *testing.T) {
	p := openEmbedded(t, Roles{}, fileSource)
	require.NoError(t, p.store.AddLetters(t.Context(), []store.DeadLetter{{Stage: store.StageIngest, Code: "no_id", Reason: "no id", State: store.LetterOpen, Source: "registry", DedupKey: "k"}}))
	p.monitor.showBacklogs(t.Context())
	require.Empty(t, p.Health().Pending)
	require.Len(t, p.Status().Pending, 1, "also while it starts")
}

// apartStore has entities that no two sources share, until they meet.
type apartStore struct {
	assemble.Store
	reads int
	met   bool
}

func (s *apartStore) Entities(_ context.Context, after string, _ int) ([]store.Entity, error) {
	s.reads++
	switch {
	case after != "":
		return nil, nil
	case s.met:
		return []store.Entity{{ID: "1", Docs: []byte(`{"customers":{},"orders":{}}`)}}, nil
	}
	return []store.Entity{{ID: "1", Docs: []byte(`{"customers":{}}`)}, {ID: "2", Docs: []byte(`{"orders":{}}`)}}, nil
}

// A required source that shares no entity is told after a thousand records, once in the log, and
// in the status until it does.
func TestARequiredSourceThatMeetsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &apartStore{}
		m := &monitor{store: s, roles: Roles{Work: true}, log: slog.New(slog.NewTextHandler(&log, nil)), active: &activation{}}
		m.active.now.Store(&settings{cfg: &config.Config{Merge: config.Merge{Required: []string{"orders"}}}})
		look := func(decided int64) {
			m.checkUnmet(t.Context(), &operate.DeliveryProgress{Marks: map[int32]store.Mark{0: {Watermark: change.NewVersion(1, decided-1)}, 1: {Watermark: change.NewVersion(1, 1)}}})
		}
		look(unmetAfter - 1)
		require.Zero(t, s.reads)
		look(unmetAfter)
		look(unmetAfter)
		<-time.After(unmetPeriod)
		look(unmetAfter)
		require.Equal(t, 1, strings.Count(log.String(), "event=source.unmet"))
		require.Equal(t, "source orders", (*m.unmet.Load())[0].What)
		s.met = true
		look(unmetAfter)
		require.Len(t, *m.unmet.Load(), 1, "it looks once a minute")
		<-time.After(unmetPeriod)
		look(unmetAfter)
		require.Empty(t, *m.unmet.Load())
	})
}
