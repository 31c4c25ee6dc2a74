package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process has the counters of a process.
type process struct {
	*Recorder
	sent, delivered *prometheus.CounterVec
	age             *prometheus.HistogramVec
	pending, lag    *prometheus.GaugeVec
	taken, looked   *prometheus.CounterVec
}

func newProcess(s store.Reports, now *time.Time) *process {
	reg := prometheus.NewRegistry()
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "x"}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "x"}, labels)
		reg.MustRegister(g)
		return g
	}
	p := &process{
		sent: counter("weir_decisions_total", "service", "decision"), delivered: counter("weir_deliveries_total", "service", "outcome"),
		taken: counter("weir_ingest_events_total", "source", "outcome"), looked: counter("weir_decide_cache_lookups_total", "result"), pending: gauge("weir_delivery_queued", "service"), lag: gauge("weir_source_lag", "source"),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weir_delivery_age_seconds", Help: "x"}, []string{"service"}),
	}
	reg.MustRegister(p.age)
	p.Recorder = New(Options{Registry: reg, Store: s, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return *now }})
	return p
}

func open(t *testing.T) *sqlite.Store {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

func of(name string) Range {
	for _, r := range Ranges() {
		if r.Name == name {
			return r
		}
	}
	panic(name)
}

func sum(steps []Step) (p Point) {
	for _, s := range steps {
		p.add(s.Point)
	}
	return p
}

// Two processes add to one history, a third that starts later has it, and a
// restart loses nothing that was written down.
func TestAHistoryIsThatOfTheDeployment(t *testing.T) {
	s := open(t)
	now := time.Date(2026, 3, 4, 10, 58, 30, 0, time.UTC)
	a, b := newProcess(s, &now), newProcess(s, &now)
	for range 4 { // over the border of an hour
		a.sent.WithLabelValues("acme/all@out", "sent").Add(3)
		a.sent.WithLabelValues("acme/all@out", "held_back").Add(2)
		b.delivered.WithLabelValues("acme/all@out", "delivered").Add(3)
		b.age.WithLabelValues("acme/all@out").Observe(0.5)
		a.taken.WithLabelValues("lab", "taken").Add(10)
		a.pending.WithLabelValues("acme/all@out").Set(7)
		b.pending.WithLabelValues("acme/all@out").Set(5)
		a.lag.WithLabelValues("lab").Set(9)
		require.NoError(t, a.Sample())
		require.NoError(t, b.Sample())
		a.save(t.Context())
		b.save(t.Context())
		now = now.Add(time.Minute)
	}
	later := newProcess(s, &now)
	later.load(t.Context())
	a.load(t.Context())
	for _, p := range []*process{a, later} {
		for _, r := range []string{"1h", "6h", "24h"} {
			require.Equal(t, Point{In: 12, Held: 8, Out: 12, AgeMillis: 2000, Aged: 4, Waiting: 7}, sum(p.Series(ServiceSeries("acme/all@out"), of(r))), r)
			require.Equal(t, Point{In: 40, Waiting: 9}, sum(p.Series(SourceSeries("lab"), of(r))), r)
			require.Equal(t, int64(40), sum(p.Series(AllSources, of(r))).In)
			require.Equal(t, int64(12), sum(p.Series(AllServices, of(r))).Out)
		}
	}
	steps := a.Series(ServiceSeries("acme/all@out"), of("1h"))
	require.Len(t, steps, 60)
	require.Equal(t, now.Truncate(time.Minute), steps[59].At)
	require.Equal(t, int64(3), steps[58].In)
	require.Equal(t, 500*time.Millisecond, steps[58].Age())
	require.Equal(t, int64(12), sum(a.Series(ServiceSeries("acme/all@out"), of("15m"))).In)
	require.Zero(t, sum(later.Series(ServiceSeries("acme/all@out"), of("15m"))), "the finer one is of a process alone")

	now = now.Add(Kept + 2*time.Hour)
	require.NoError(t, a.Sample())
	require.Equal(t, Point{Waiting: 7}, sum(a.Series(ServiceSeries("acme/all@out"), of("24h"))), "what waits still waits, all else is over")
	require.LessOrEqual(t, len(a.saved)+len(a.unsaved), 1)
}

// failing refuses to write.
type failing struct {
	store.Reports
	err error
}

func (f *failing) UpdateReport(ctx context.Context, kind, name string, g func([]byte) ([]byte, error)) error {
	if f.err != nil {
		return f.err
	}
	return f.Reports.UpdateReport(ctx, kind, name, g)
}

// An increase that certainly was not stored is stored later, once; one of unknown outcome is
// not stored again. Both are shown.
func TestAStoreThatIsAwayCostsNoHistory(t *testing.T) {
	for class, want := range map[store.Class]int64{store.Retry: 5, store.Unknown: 3} {
		s := &failing{Reports: open(t), err: store.WithClass(errors.New("away"), class)}
		now := time.Date(2026, 3, 4, 10, 20, 0, 0, time.UTC)
		p := newProcess(s, &now)
		p.taken.WithLabelValues("lab", "taken").Add(2)
		require.NoError(t, p.Sample())
		p.save(t.Context())
		require.Equal(t, int64(2), sum(p.Series(SourceSeries("lab"), of("1h"))).In)
		s.err = nil
		p.taken.WithLabelValues("lab", "taken").Add(3)
		require.NoError(t, p.Sample())
		p.save(t.Context())
		later := newProcess(s, &now)
		later.load(t.Context())
		require.Equal(t, want, sum(later.Series(SourceSeries("lab"), of("1h"))).In, class)
	}
}

// Series are bounded; those beyond are in the sums.
func TestAHistoryIsBounded(t *testing.T) {
	now := time.Date(2026, 3, 4, 10, 20, 0, 0, time.UTC)
	p := newProcess(nil, &now)
	for i := range 2 * MaxSeries {
		p.taken.WithLabelValues(fmt.Sprint("s", i), "taken").Inc()
	}
	require.NoError(t, p.Sample())
	require.Equal(t, int64(2*MaxSeries), sum(p.Series(AllSources, of("1h"))).In)
	require.Equal(t, int64(2*MaxSeries), sum(p.Series(AllSources, of("15m"))).In)
	for _, c := range p.unsaved {
		require.Len(t, c.series, MaxSeries)
	}
	for _, points := range p.fine {
		require.Len(t, points, MaxSeries)
	}
}

func TestChunksComeBack(t *testing.T) {
	point := rapid.Custom(func(t *rapid.T) Point {
		n := rapid.Int64Range(0, 1<<40)
		return Point{n.Draw(t, "in"), n.Draw(t, "held"), n.Draw(t, "out"), n.Draw(t, "failed"), n.Draw(t, "age"), n.Draw(t, "aged"), n.Draw(t, "waiting")}
	})
	rapid.Check(t, func(t *rapid.T) {
		c := newChunk()
		for range rapid.IntRange(0, 30).Draw(t, "points") {
			c.add(rapid.StringN(1, 5, -1).Draw(t, "series"), rapid.IntRange(0, 59).Draw(t, "minute"), point.Draw(t, "point"))
		}
		c.mark(Mark{At: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "at"), 0).UTC(), Kind: Failed, Of: "kafka", Text: "connection refused"})
		body, err := c.encode()
		require.NoError(t, err)
		back, err := decode(body)
		require.NoError(t, err)
		require.Equal(t, c, back)
	})
	for _, body := range []string{"x", "\x00"} {
		_, err := decode([]byte(body))
		require.Error(t, err)
	}
}

// How a process is doing is in the list when it changes, and not only now and then.
func TestAProcessTellsOfATurn(t *testing.T) {
	s := open(t)
	now := time.Now()
	p := newProcess(s, &now)
	is := operate.Process{Name: "here:1", Health: operate.Health{Level: operate.LevelDown, Error: "starting"}}
	p.opt.Process = func() operate.Process { return is }
	require.NoError(t, p.Sample())
	p.announce(t.Context(), false)
	is.Health = operate.Health{Level: operate.LevelOK}
	p.looked.WithLabelValues("hit").Add(60)
	p.looked.WithLabelValues("miss").Add(40)
	now = now.Add(time.Second)
	require.NoError(t, p.Sample())
	p.announce(t.Context(), false)
	all, err := operate.Processes(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, operate.LevelOK, all[0].Level)
	require.Equal(t, []float64{60, 40}, []float64{all[0].Cached, all[0].Loaded})
	for _, what := range []string{"gate", "kafka"} { // the second one at the same level
		is.Level, is.Problems = operate.LevelDegraded, append(is.Problems, operate.Item{What: what, Level: operate.LevelDegraded, Why: "refused"})
		now = now.Add(time.Second)
		p.announce(t.Context(), false)
		all, err = operate.Processes(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, is.Problems, all[0].Problems)
	}
	require.Len(t, p.Marks(time.Time{}), 5, "start, two turns, two outages")
	now = now.Add(time.Second)
	require.NoError(t, p.Sample())
	p.announce(t.Context(), false)
	all, err = operate.Processes(t.Context(), s)
	require.NoError(t, err)
	require.True(t, all[0].Seen.Equal(now.Add(-time.Second)), "the same again is not news")
}

// A process is in the list while it runs, says when it stops, and writes its last
// minute down then.
func TestAProcessTellsOfItself(t *testing.T) {
	s := open(t)
	now := time.Now()
	p := newProcess(s, &now)
	p.opt.Process = func() operate.Process { return operate.Process{Name: "here:1", Roles: "ingest", Revision: 3} }
	p.taken.WithLabelValues("lab", "taken").Add(2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	require.Eventually(t, func() bool {
		all, err := operate.Processes(t.Context(), s)
		return err == nil && len(all) == 1 && all[0].Name == "here:1" && !all[0].Stopped && all[0].Seen.Equal(now)
	}, time.Minute, 10*time.Millisecond)
	cancel()
	<-done
	all, err := operate.Processes(t.Context(), s)
	require.NoError(t, err)
	require.True(t, all[0].Stopped)
	later := newProcess(s, &now)
	later.load(t.Context())
	require.Equal(t, int64(2), sum(later.Series(SourceSeries("lab"), of("1h"))).In)
}

// Starts, reloads and outages are marked for all processes, and a step without any running
// process is unknown, not zero.
func TestMarksAndGaps(t *testing.T) {
	s := open(t)
	now := time.Date(2026, 3, 4, 10, 20, 0, 0, time.UTC)
	p := newProcess(s, &now)
	is := operate.Process{Name: "here:1", Version: "1.2", Health: operate.Health{Level: operate.LevelDown, Reason: "starting", Error: "starting"}}
	p.opt.Process = func() operate.Process { return is }
	minute := func(stopped bool) {
		require.NoError(t, p.Sample())
		p.announce(t.Context(), stopped)
		now = now.Add(time.Minute)
	}
	minute(false)
	is.Revision, is.Health = 1, operate.Health{Level: operate.LevelDegraded, Services: []operate.ServiceHealth{{Service: "acme/all@out", Level: operate.LevelDown, Error: "401"}}}
	minute(false)
	minute(false)
	is.Revision, is.Health = 2, operate.Health{Level: operate.LevelDown, Reason: "store", Error: "connection refused"}
	minute(false)
	is.Health = operate.Health{Level: operate.LevelOK}
	minute(true)
	p.save(t.Context())
	now = now.Add(5 * time.Minute)
	later := newProcess(s, &now)
	later.load(t.Context())
	var found []string
	for _, m := range later.Marks(now.Add(-time.Hour)) {
		found = append(found, fmt.Sprintf("%s %s %s %s", m.At.Format("04"), m.Kind, m.Of, m.Text))
	}
	require.Equal(t, []string{
		"20 start here:1 version 1.2", "21 outage acme/all@out 401", "23 recovery acme/all@out ", "23 reload here:1 revision 2", "23 outage here:1 connection refused",
		"24 recovery here:1 ", "24 stop here:1 ",
	}, found)
	require.Empty(t, later.Marks(now))
	known := ""
	for _, step := range later.Series(AllSources, of("1h"))[59-12:] {
		known += map[bool]string{true: "k", false: "."}[step.Known]
	}
	require.Equal(t, "..kkkkk......", known)
}
