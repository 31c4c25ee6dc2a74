package pipeline

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/stretchr/testify/require"
)

// Sizes of the benchmarks of the whole flow. The defaults are for a look;
// scripts/bench-e2e measures with more.
var (
	benchEvents   = flag.Int("events", 10_000, "events of one run of a benchmark of the whole flow")
	benchEntities = flag.Int("entities", 10_000, "entities of a benchmark of the whole flow")
)

// BenchmarkEndToEnd takes events from the source to delivered and confirmed.
// One operation is one run over -events events of the source, after a warm-up with the first
// event of every entity. The clock starts at the first ingested event and stops when nothing
// is left to do.
//
// events/s and changes/s depend on the machine and on what else runs there;
// the seconds of processor time per 1,000 events (weir-cpu-s/kev: this process,
// the others: the servers) do so much less, and allocations per event hardly at all.
// changes/s counts changes that passed the dam, delivered/s those that reached the sinks: of
// pending changes of one entity a state sink (postgres, clickhouse) gets the newest.
func BenchmarkEndToEnd(b *testing.B) {
	places := []struct {
		name string
		make func(b *testing.B, dir string) world
	}{
		{"embedded", embeddedWorld},
		{"kafka", func(b *testing.B, _ string) world { return realWorld(b, "kafka") }},
		{"postgres", func(b *testing.B, _ string) world { return realWorld(b, "postgres") }},
		{"clickhouse", func(b *testing.B, _ string) world { return realWorld(b, "clickhouse") }},
	}
	for _, place := range places {
		for _, w := range []workload{sparse, dense} {
			for _, services := range []int{1, 20, 200} {
				b.Run(fmt.Sprintf("%s/%s/services=%d", place.name, w.name, services), func(b *testing.B) {
					dir := b.TempDir()
					endToEnd(b, dir, place.make(b, dir), newStream(w, *benchEntities, services))
				})
			}
		}
	}
}

// run sums the measured runs.
type run struct {
	took         time.Duration
	cpu          cpu
	allocated    uint64 // bytes
	allocations  uint64
	events       int64 // decided; what a source reads again is stale and not counted
	passed, sent int64 // changes through the dam, and those that reached a sink
}

func endToEnd(b *testing.B, dir string, w world, s *stream) {
	if w.prepare != nil {
		w.prepare(b, s.services)
	}
	w.fill(b, s.first())
	var first, total run
	measure(b, dir, w, s, &first) // the warm-up
	b.StartTimer()
	for b.Loop() {
		b.StopTimer()
		w.fill(b, s.more(*benchEvents))
		measure(b, dir, w, s, &total)
		b.StartTimer()
	}
	report(b, total)
	b.ReportMetric(float64(first.passed)/first.took.Seconds(), "first-changes/s")
	b.ReportMetric(resident(b, os.Getpid()), "MiB-resident") // with the events
}

// measure opens the pipeline, runs it until it is idle and adds what that took
// to total, unless it is nil. The benchmark's timer runs for as long as the
// clock does.
func measure(b *testing.B, dir string, w world, s *stream, total *run) {
	p := w.open(b, dir, s)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(b.Context()) }()
	look := func(every time.Duration, done func() bool) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for !done() {
			select {
			case err := <-ended:
				ended <- err
				return
			case <-tick.C:
			}
		}
	}
	summary := func() snapshot.Summary {
		sum, err := snapshot.Summarize(p.opt.Registry)
		require.NoError(b, err)
		return sum
	}
	look(2*time.Millisecond, func() bool { return summary().Read > 0 })
	var memory, later runtime.MemStats
	runtime.ReadMemStats(&memory)
	start, before := time.Now(), usedCPU(b, w.servers...)
	if total != nil {
		b.StartTimer()
	}
	look(20*time.Millisecond, func() bool { return p.monitor.started.Load() && len(p.idle.waits(b.Context())) == 0 })
	if total != nil {
		b.StopTimer()
		total.add(time.Since(start), before, usedCPU(b, w.servers...), summary())
		runtime.ReadMemStats(&later)
		total.allocated += later.TotalAlloc - memory.TotalAlloc
		total.allocations += later.Mallocs - memory.Mallocs
	}
	require.NoError(b, <-ended)
	if sum := summary(); sum.Dead > 0 {
		b.Fatalf("%d dead letters", sum.Dead)
	}
}

func (t *run) add(took time.Duration, before, after cpu, sum snapshot.Summary) {
	t.took += took
	if t.cpu == nil {
		t.cpu = cpu{}
	}
	for who, used := range after {
		t.cpu[who] += used - before[who]
	}
	t.events += sum.Noise + sum.Merged
	for _, c := range sum.Customers {
		t.passed += c.Sent
		t.sent += c.Delivered
	}
}

func report(b *testing.B, t run) {
	seconds, events := t.took.Seconds(), float64(t.events)
	b.ReportMetric(events/seconds, "events/s")
	b.ReportMetric(float64(t.passed)/seconds, "changes/s")
	b.ReportMetric(float64(t.passed)/events, "changes/event")
	b.ReportMetric(float64(t.sent)/seconds, "delivered/s")
	for who, used := range t.cpu {
		b.ReportMetric(used.Seconds()/events*1000, who+"-cpu-s/kev")
	}
	b.ReportMetric(float64(t.allocated)/events/1024, "KiB-allocated/event")
	b.ReportMetric(float64(t.allocations)/events, "allocations/event")
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	b.Logf("load average %s", first)
}

// BenchmarkLatency sends one event after the other through an idle pipeline,
// each when the one before has arrived: one operation is the way from the
// source to the customer's web server.
func BenchmarkLatency(b *testing.B) {
	b.Run("embedded", func(b *testing.B) {
		dir := b.TempDir()
		w := embeddedWorld(b, dir)
		w.main = "sources:\n  registry:\n    http: {}" + benchSource
		latency(b, dir, w, func(p *Pipeline) func(event) {
			return func(e event) {
				require.NoError(b, p.ingest.sources()[0].Source.(sources.Pusher).Push(b.Context(), message.NewMessage(watermill.NewUUID(), e.json))[0])
			}
		})
	})
	b.Run("servers", func(b *testing.B) {
		w := realWorld(b, "kafka")
		latency(b, b.TempDir(), w, func(*Pipeline) func(event) {
			return func(e event) { w.fill(b, []event{e}) }
		})
	})
}

func latency(b *testing.B, dir string, w world, sender func(*Pipeline) func(event)) {
	arrived := make(chan struct{}, 1)
	customer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
	}))
	b.Cleanup(customer.Close)
	w.sink = hook(customer.URL)
	s := newStream(sparse, 1, 1)
	if w.prepare != nil {
		w.prepare(b, 1)
	}
	p := w.open(b, dir, s)
	ended := runs(b, p)
	send := sender(p)
	next := func() time.Duration {
		s.entities[0][0] += 1 << 8 // six hex digits of it are sent
		e := s.event(0)
		start := time.Now()
		send(e)
		select {
		case <-arrived:
		case err := <-ended:
			ended <- err
			b.Fatal("the pipeline ended")
		}
		return time.Since(start)
	}
	for range 20 {
		next()
	}
	var all []time.Duration
	for b.Loop() {
		all = append(all, next())
	}
	slices.Sort(all)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50-ms", 0.5}, {"p99-ms", 0.99}, {"max-ms", 1}} {
		b.ReportMetric(float64(all[min(len(all)-1, int(q.at*float64(len(all))))].Microseconds())/1000, q.name)
	}
}

// runs starts p until the benchmark ends, and returns when it has started. ended has the
// result of a Run that ends earlier.
func runs(b *testing.B, p *Pipeline) (ended chan error) {
	b.Helper()
	p.opt.UntilIdle = false
	ended = make(chan error, 1)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	b.Cleanup(func() {
		stop()
		require.NoError(b, <-ended)
	})
	go func() { ended <- p.Run(ctx) }()
	require.Eventually(b, p.monitor.started.Load, time.Minute, time.Millisecond)
	return ended
}
