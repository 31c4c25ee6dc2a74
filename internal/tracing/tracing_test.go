package tracing

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/otlptest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	theirTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theirSpan  = "00f067aa0ba902b7"
	sampled    = "00-" + theirTrace + "-" + theirSpan + "-01"
	unsampled  = "00-" + theirTrace + "-" + theirSpan + "-00"
)

// log may be written from any goroutine.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start makes a tracer that is shut down, and by that flushed, by the given function.
func start(t testing.TB, opt Options) (*Tracer, func()) {
	t.Helper()
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	opt.Metrics = NewMetrics(prometheus.NewRegistry())
	tracer, err := New(opt)
	require.NoError(t, err)
	stop := func() { _ = tracer.Shutdown(t.Context()) }
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = tracer.Shutdown(ctx)
	})
	return tracer, stop
}

func count(c prometheus.Counter) float64 {
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, _ := reg.Gather()
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

func headers(t *change.Trace) map[string]string {
	return map[string]string{change.TraceParentHeader: t.Parent, change.TraceStateHeader: t.State}
}

// One event through all stages is one trace, each stage below the one before.
func TestOneTraceThroughAllStages(t *testing.T) {
	r := otlptest.New(t)
	tracer, flush := start(t, Options{Exporter: r.Exporter(), Sample: 0})
	in := tracer.Ingest(t.Context(), "registry", HeaderMap(map[string]string{"traceparent": sampled, "tracestate": "vendor=1"}))
	require.NotNil(t, in, "the producer's decision counts, not the share")
	in.Set(OutcomeKey.String("taken"), tracer.Entity("B-007"))
	in.End()
	decide := tracer.Decide(HeaderMap(headers(in.Trace())))
	decide.Fail("not decided")
	decide.End()
	deliver := tracer.Deliver(decide.Trace(), "acme/ripeness@hook")
	deliver.End()
	require.Equal(t, "vendor=1", deliver.Trace().State)
	require.Equal(t, theirTrace, deliver.ID())
	require.Equal(t, theirTrace, ID(headers(deliver.Trace())))
	flush()

	spans := r.Spans()
	require.Len(t, spans, 3)
	above := theirSpan
	for i, name := range []string{"ingest", "decide", "deliver"} {
		s := spans[i]
		require.Equal(t, name, s.Name)
		require.Equal(t, "weir", s.Service)
		require.Equal(t, theirTrace, s.Trace)
		require.Equal(t, above, s.Parent, name)
		require.Equal(t, "vendor=1", s.State, name)
		above = s.ID
	}
	require.Equal(t, map[string]string{"weir.source": "registry", "weir.outcome": "taken", "weir.entity.hash": "0fe2cd5573ee1982"}, spans[0].Attributes)
	require.True(t, spans[1].Failed)
	require.Equal(t, "not decided", spans[1].Failure)
	require.Equal(t, map[string]string{"weir.service": "acme/ripeness@hook"}, spans[2].Attributes)
}

func TestWhoIsTraced(t *testing.T) {
	r := otlptest.New(t)
	all, _ := start(t, Options{Exporter: r.Exporter(), Sample: 1})
	none, _ := start(t, Options{Exporter: r.Exporter(), Sample: 0})
	for name, c := range map[string]struct {
		headers       map[string]string
		all, none     bool // traced by each
		belongsToThem bool
	}{
		"no context":          {nil, true, false, false},
		"sampled":             {map[string]string{"traceparent": sampled}, true, true, true},
		"not sampled":         {map[string]string{"traceparent": unsampled}, false, false, false},
		"a later version":     {map[string]string{"traceparent": "01" + sampled[2:] + "-more"}, true, true, true},
		"unknown flags":       {map[string]string{"traceparent": sampled[:len(sampled)-2] + "ff"}, true, true, true},
		"unknown, unsampled":  {map[string]string{"traceparent": sampled[:len(sampled)-2] + "fe"}, false, false, false},
		"malformed":           {map[string]string{"traceparent": "00-" + theirTrace}, true, false, false},
		"no trace id":         {map[string]string{"traceparent": "00-" + strings.Repeat("0", 32) + "-" + theirSpan + "-01"}, true, false, false},
		"a state alone":       {map[string]string{"tracestate": "vendor=1"}, true, false, false},
		"a state that is bad": {map[string]string{"traceparent": sampled, "tracestate": "=,="}, true, true, true},
	} {
		a, n := all.Ingest(t.Context(), "s", HeaderMap(c.headers)), none.Ingest(t.Context(), "s", HeaderMap(c.headers))
		require.Equal(t, c.all, a != nil, name)
		require.Equal(t, c.none, n != nil, name)
		require.Equal(t, c.belongsToThem, a.ID() == theirTrace, name)
		// Later stages decide nothing again: only a traced event has a context.
		require.Equal(t, c.belongsToThem, all.Decide(HeaderMap(c.headers)) != nil, name)
	}
	require.Nil(t, all.Deliver(nil, "a/b@c"))
	require.Nil(t, all.Deliver(&change.Trace{Parent: "nonsense"}, "a/b@c"))
	require.Nil(t, all.Deliver(&change.Trace{Parent: unsampled}, "a/b@c"))

	half, _ := start(t, Options{Exporter: r.Exporter(), Sample: 0.5})
	traced := 0
	for range 10_000 {
		if half.Ingest(t.Context(), "s", HeaderMap(nil)) != nil {
			traced++
		}
	}
	// Further off than 10 standard deviations.
	require.InDelta(t, 5000, traced, 500)
}

// Repeated work has a trace of its own, linked with the first one.
func TestRepeat(t *testing.T) {
	r := otlptest.New(t)
	none, stop := start(t, Options{Exporter: r.Exporter(), Sample: 0})
	all, _ := start(t, Options{Exporter: r.Exporter(), Sample: 1})
	for name, original := range map[string]*change.Trace{
		"unknown": nil, "not sampled": {Parent: unsampled}, "malformed": {Parent: "nonsense"},
	} {
		require.Nil(t, none.Repeat("repair", "", original), name)
		require.NotNil(t, all.Repeat("repair", "", original), name)
	}
	require.Nil(t, (*Tracer)(nil).Repeat("repair", "", &change.Trace{Parent: sampled}))
	repeated := none.Repeat("dead letter", "", &change.Trace{Parent: sampled, State: "vendor=1"})
	require.NotEqual(t, theirTrace, repeated.ID())
	repeated.End()
	stop()
	spans := r.Spans()
	require.Len(t, spans, 1)
	require.Equal(t, []string{theirSpan}, spans[0].Links)
	require.Empty(t, spans[0].Parent)
	require.Equal(t, map[string]string{"weir.cause": "dead letter"}, spans[0].Attributes)
}

func TestContextOfARequest(t *testing.T) {
	tracer, _ := start(t, Options{Exporter: otlptest.New(t).Exporter(), Sample: 0})
	ask := func(parent string, ingest map[string]string) *Span {
		var s *Span
		h := tracer.Requests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			s = tracer.Ingest(r.Context(), "s", HeaderMap(ingest))
		}))
		req := httptest.NewRequest(http.MethodPost, "/", nil)
		req.Header.Set("Traceparent", parent)
		h.ServeHTTP(httptest.NewRecorder(), req)
		return s
	}
	require.Equal(t, theirTrace, ask(sampled, nil).ID())
	require.Equal(t, theirTrace, ask(sampled[:len(sampled)-2]+"ff", nil).ID(), "unknown flags")
	require.Nil(t, ask(unsampled, nil))
	require.Nil(t, ask("", nil))
	require.Nil(t, ask(sampled, map[string]string{"traceparent": unsampled}), "the event's own context comes first")
}

// A context must fit beside any document, so a state has a bound.
func TestLongStateIsLeftOut(t *testing.T) {
	tracer, _ := start(t, Options{Exporter: otlptest.New(t).Exporter()})
	for _, length := range []int{change.MaxTraceState, change.MaxTraceState + 1} {
		state := "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("y", 100) + ",c=" + strings.Repeat("z", length-350-8)
		require.Len(t, state, length)
		got := tracer.Ingest(t.Context(), "s", HeaderMap(map[string]string{"traceparent": sampled, "tracestate": state})).Trace()
		require.Contains(t, got.Parent, theirTrace)
		if length > change.MaxTraceState {
			state = ""
		}
		require.Equal(t, state, got.State)
	}
}

// A batch is linked with its events, both ways and bounded, and has a trace
// of its own.
func TestBatch(t *testing.T) {
	r := otlptest.New(t)
	tracer, flush := start(t, Options{Exporter: r.Exporter(), Sample: 1})
	require.Nil(t, tracer.Batch("decide batch", nil, 7), "nothing in it is traced")
	var events []*Span
	for range 40 {
		events = append(events, tracer.Ingest(t.Context(), "s", HeaderMap(nil)))
	}
	b := tracer.Batch("decide batch", events, 1000)
	b.End()
	for _, e := range events {
		e.End()
	}
	flush()
	var batch otlptest.Span
	var linked []string
	for _, s := range r.Spans() {
		if s.Name == "decide batch" {
			batch = s
		}
	}
	for _, s := range r.Spans() {
		require.Empty(t, s.Parent)
		if s.Name == "ingest" && len(s.Links) > 0 {
			require.Equal(t, []string{batch.ID}, s.Links)
			linked = append(linked, s.ID)
		}
		if s.Name == "ingest" {
			require.NotEqual(t, batch.Trace, s.Trace)
		}
	}
	require.Len(t, linked, 32)
	slices.Sort(linked)
	slices.Sort(batch.Links)
	require.Equal(t, linked, batch.Links)
	require.Equal(t, map[string]string{"weir.batch.size": "1000", "weir.batch.traced": "40"}, batch.Attributes)
}

func TestEntity(t *testing.T) {
	hashed, _ := start(t, Options{Exporter: tracetest.NewNoopExporter()})
	require.Equal(t, EntityHashKey.String("0fe2cd5573ee1982"), hashed.Entity("B-007"))
	plain, _ := start(t, Options{Exporter: tracetest.NewNoopExporter(), EntityIDs: true})
	require.Equal(t, EntityKey.String("B-007"), plain.Entity("B-007"))
}

// A receiver that hangs costs dropped spans and nothing else: ending one never
// waits, each is counted, and a stop does not wait longer than it may.
func TestReceiverThatHangs(t *testing.T) {
	r := otlptest.New(t)
	release, asked := make(chan struct{}), make(chan struct{}, 1000)
	t.Cleanup(func() { close(release) })
	r.Answers(func() int { asked <- struct{}{}; <-release; return http.StatusOK })
	tracer, _ := start(t, Options{Exporter: r.Exporter(), Sample: 1})
	// More spans than one request takes, so that the receiver is asked at once.
	const first = maxPerBatch
	for range first {
		tracer.Ingest(t.Context(), "s", HeaderMap(nil)).End()
	}
	<-asked
	// From here on nothing moves: the spans in the request wait too.
	const beyond = 1234
	for range maxWaiting - first + beyond {
		tracer.Ingest(t.Context(), "s", HeaderMap(nil)).End()
	}
	m := tracer.opt.Metrics
	require.EqualValues(t, beyond, count(m.dropped))
	require.Zero(t, count(m.exported))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, tracer.Shutdown(ctx), context.Canceled)
	require.Eventually(t, func() bool { return count(m.dropped) == maxWaiting+beyond }, time.Minute, time.Millisecond,
		"what was waiting is given up and counted")
}

// A receiver that is away is said once, and when it is back.
func TestReceiverThatRefuses(t *testing.T) {
	r := otlptest.New(t)
	status := http.StatusBadRequest
	var mu sync.Mutex
	r.Answers(func() int { mu.Lock(); defer mu.Unlock(); return status })
	var lines log
	tracer, flush := start(t, Options{Exporter: r.Exporter(), Sample: 1, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	m := tracer.opt.Metrics
	send := func() {
		tracer.Ingest(t.Context(), "s", HeaderMap(nil)).End()
		require.NoError(t, tracer.provider.ForceFlush(t.Context()))
	}
	send()
	send()
	require.EqualValues(t, 2, count(m.dropped))
	require.Equal(t, 1, strings.Count(lines.String(), "event=tracing.failing"))
	mu.Lock()
	status = http.StatusOK
	mu.Unlock()
	send()
	send()
	flush()
	require.EqualValues(t, 2, count(m.exported))
	require.EqualValues(t, 2, count(m.dropped))
	require.Equal(t, 1, strings.Count(lines.String(), "event=tracing.resumed"))
	require.Len(t, r.Spans(), 2)
}

// Without tracing, and for an event that is not traced, nothing is allocated.
func TestWhatIsNotTracedCostsNothing(t *testing.T) {
	on, _ := start(t, Options{Exporter: otlptest.New(t).Exporter(), Sample: 0})
	ctx := t.Context()
	header := HeaderMap(map[string]string{"weir-kafka-key": "B-007", "other": "header"})
	for name, tracer := range map[string]*Tracer{"off": nil, "not traced": on} {
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			in, decide, deliver := tracer.Ingest(ctx, "s", header), tracer.Decide(header), tracer.Deliver(nil, "a/b@c")
			batch := tracer.Batch("decide batch", nil, 1)
			for _, s := range []*Span{in, decide, deliver, batch} {
				if s.Trace() != nil || s.ID() != "" {
					panic("traced")
				}
				s.End()
			}
		}), name)
	}
	require.NoError(t, (*Tracer)(nil).Shutdown(ctx))
	h := http.NotFoundHandler()
	require.NotNil(t, (*Tracer)(nil).Requests(h))
}

// The attributes of a CloudEvent count where nothing nearer says something.
func TestContextOfACloudEvent(t *testing.T) {
	tracer, _ := start(t, Options{Exporter: otlptest.New(t).Exporter(), Sample: 0})
	const made = "0af7651916cd43dd8448eb211c80319c"
	event := map[string]string{"ce_traceparent": "00-" + made + "-b7ad6b7169203331-01", "ce_tracestate": "maker=1"}
	with := func(traceparent string) map[string]string {
		h := maps.Clone(event)
		h["traceparent"] = traceparent
		return h
	}
	own := tracer.Ingest(t.Context(), "s", HeaderMap(event))
	require.Equal(t, made, own.ID())
	require.Equal(t, "maker=1", own.Trace().State)
	record := tracer.Ingest(t.Context(), "s", HeaderMap(with(sampled)))
	require.Equal(t, theirTrace, record.ID())
	require.Empty(t, record.Trace().State, "the attribute's state belongs to the attribute's trace")
	require.Nil(t, tracer.Ingest(t.Context(), "s", HeaderMap(with(unsampled))))
	tracer.Requests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Nil(t, tracer.Ingest(r.Context(), "s", HeaderMap(event)), "the request is not sampled")
	})).ServeHTTP(httptest.NewRecorder(), func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Traceparent", unsampled)
		return r
	}())
	require.Nil(t, tracer.Ingest(t.Context(), "s", HeaderMap(map[string]string{"ce_traceparent": "00-no"})), "what cannot be read is none")
	own.End()
	record.End()
}
