package pipeline

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/stretchr/testify/require"
)

var (
	rateSeconds = flag.Float64("rate-seconds", 6, "how long BenchmarkRate keeps up one rate")
	rateSteps   = flag.Int("rate-steps", 6, "rates that BenchmarkRate tries")
)

// BenchmarkRate finds the rate that lasts: the highest at which events may come,
// whether or not those before them are done, without more and more of them waiting.
// A rate lasts if, when the load ends, the backlog is done within a tenth of the
// time that it took, or half a second. Then it offers half of the rate that lasted and
// reports how old changes are when they are delivered, from their event's entry into
// the inbox. One operation is one search.
func BenchmarkRate(b *testing.B) {
	for _, services := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("embedded/services=%d", services), func(b *testing.B) {
			dir := b.TempDir()
			w := embeddedWorld(b, dir)
			w.main = "sources:\n  registry:\n    http: {}" + benchSource
			searchRate(b, dir, w, services, push)
		})
		b.Run(fmt.Sprintf("servers/services=%d", services), func(b *testing.B) {
			w := realWorld(b, "kafka")
			searchRate(b, b.TempDir(), w, services, func(*Pipeline) func([]event) {
				return func(events []event) { w.fill(b, events) }
			})
		})
	}
}

// push hands events to the first source, over HTTP's way in.
func push(p *Pipeline) func([]event) {
	return func(events []event) {
		messages := make([]*message.Message, len(events))
		for i, e := range events {
			messages[i] = message.NewMessage(watermill.NewUUID(), e.json)
		}
		for _, err := range p.ingest.sources()[0].Source.(sources.Pusher).Push(context.Background(), messages...) {
			if err != nil {
				panic(err) // a benchmark has no faults
			}
		}
	}
}

// BenchmarkDeadSinks compares 180 services that deliver to files beside 20 that do so too,
// and beside 20 whose server is unreachable, in turns: events per second until the 180 have
// everything.
func BenchmarkDeadSinks(b *testing.B) {
	const services = 200
	dead := func(customer string) bool { return strings.HasSuffix(customer, "0") } // c0, c10, …
	for _, away := range []bool{false, true, false, true} {
		b.Run(fmt.Sprintf("dead=%v", away), func(b *testing.B) {
			dir := b.TempDir()
			w := embeddedWorld(b, dir)
			w.main = "sources:\n  registry:\n    http: {}" + benchSource
			healthy, gone := w.sink, hook("http://127.0.0.1:1/") // nobody listens there
			w.sink = func(i int) string {
				if away && dead(fmt.Sprint("c", i)) {
					return gone(i)
				}
				return healthy(i)
			}
			l := startLoad(b, dir, w, newStream(dense, *benchEntities, services), push, dead)
			var took time.Duration
			before := usedCPU(b)
			for b.Loop() {
				took += l.offerAll(l.s.more(*benchEvents))
			}
			b.ReportMetric((usedCPU(b)["weir"]-before["weir"]).Seconds()/float64(*benchEvents*b.N)*1000, "weir-cpu-s/kev")
			b.ReportMetric(float64(*benchEvents*b.N)/took.Seconds(), "events/s")
		})
	}
}

// load offers events to a pipeline that runs.
type load struct {
	b    *testing.B
	p    *Pipeline
	s    *stream
	send func([]event)
	sent int64
	dead func(customer string) bool // those whose changes are not waited for; nil: none
}

// startLoad runs a pipeline in a world until the benchmark ends, and returns every
// entity its first event.
func startLoad(b *testing.B, dir string, w world, s *stream, sender func(*Pipeline) func([]event), dead func(customer string) bool) *load {
	if w.prepare != nil {
		w.prepare(b, s.services)
	}
	p := w.open(b, dir, s)
	runs(b, p)
	l := &load{b: b, p: p, s: s, send: sender(p), dead: dead}
	l.offerAll(s.first())
	return l
}

func searchRate(b *testing.B, dir string, w world, services int, sender func(*Pipeline) func([]event)) {
	s := newStream(dense, *benchEntities, services)
	l := startLoad(b, dir, w, s, sender, nil)
	// The first guess is the rate of an unlimited load.
	most := float64(*benchEvents) / l.offerAll(s.more(*benchEvents)).Seconds()
	for b.Loop() {
		low, high, rate := 0.0, 2*most, most
		for range *rateSteps {
			took := time.Duration(*rateSeconds * float64(time.Second))
			left, _ := l.offer(rate, took)
			lasts := left <= max(took/10, 500*time.Millisecond)
			b.Logf("%.0f events/s for %v: the rest took %v, lasts: %v", rate, took, left, lasts)
			if lasts {
				low = rate
			} else {
				high = rate
			}
			rate = (low + high) / 2
		}
		require.Positive(b, low, "no rate lasted: try more of them")
		_, ages := l.offer(low/2, time.Duration(*rateSeconds*float64(time.Second)))
		b.ReportMetric(low, "events/s")
		b.ReportMetric(1000*quantile(ages, 0.5), "p50-ms")
		b.ReportMetric(1000*quantile(ages, 0.99), "p99-ms")
	}
}

// offer sends events at a rate for a time, each when it is due, however those before
// it fare. It returns how long it took from the last one until nothing was left to
// do, and the ages at delivery.
func (l *load) offer(rate float64, during time.Duration) (left time.Duration, ages map[float64]uint64) {
	events := l.s.more(int(rate * during.Seconds()))
	before := l.ages()
	const tick = 10 * time.Millisecond
	var sending sync.WaitGroup
	start := time.Now()
	for n := 0; n < len(events); {
		<-time.After(tick)
		to := min(len(events), int(rate*time.Since(start).Seconds()))
		if to > n {
			some := events[n:to]
			sending.Go(func() { l.send(some) }) // neither the clock nor the next ones wait for whoever takes them
			n = to
		}
	}
	end := time.Now()
	sending.Wait()
	l.sent += int64(len(events))
	left = l.drained(end)
	ages = l.ages()
	for age, n := range before {
		ages[age] -= n
	}
	return left, ages
}

// offerAll sends events as fast as they are taken, and returns how long all took.
func (l *load) offerAll(events []event) time.Duration {
	start := time.Now()
	for some := range slices.Chunk(events, 1000) {
		l.send(some)
	}
	l.sent += int64(len(events))
	return l.drained(start)
}

// drained waits until every event is decided and every change delivered, and returns
// the time since start.
func (l *load) drained(start time.Time) time.Duration {
	done := func() bool {
		sum, err := snapshot.Summarize(l.p.opt.Registry)
		require.NoError(l.b, err)
		var waiting int64
		for _, c := range sum.Customers {
			if l.dead == nil || !l.dead(c.Customer) {
				waiting += c.Sent - c.Delivered
			}
		}
		return sum.Noise+sum.Merged >= l.sent && waiting == 0
	}
	// Counters are not read at one moment: the last decisions show at the second look.
	require.Eventually(l.b, func() bool { first := done(); return done() && first }, 10*time.Minute, 20*time.Millisecond)
	return time.Since(start)
}

// ages returns how many changes of all services were at most so many seconds old.
func (l *load) ages() map[float64]uint64 {
	families, err := l.p.opt.Registry.Gather()
	require.NoError(l.b, err)
	found := map[float64]uint64{}
	for _, f := range families {
		if f.GetName() != "weir_delivery_age_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			index, count := int32(0), int64(0)
			deltas := h.GetPositiveDelta()
			for _, span := range h.GetPositiveSpan() {
				index += span.GetOffset()
				for range span.GetLength() {
					count += deltas[0]
					deltas = deltas[1:]
					found[math.Exp2(float64(index)*math.Exp2(-float64(h.GetSchema())))] += uint64(count)
					index++
				}
			}
		}
	}
	return found
}

// quantile returns the age that a part of the changes had at most.
func quantile(ages map[float64]uint64, part float64) float64 {
	var all uint64
	for _, n := range ages {
		all += n
	}
	var seen uint64
	for _, age := range slices.Sorted(maps.Keys(ages)) {
		if seen += ages[age]; float64(seen) >= part*float64(all) {
			return age
		}
	}
	return math.NaN()
}
