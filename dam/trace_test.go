package dam

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/tracing"
	"github.com/seed-86dfc502/weir/tracing/otlptest"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// published keeps what a decider publishes; it acknowledges that, or nothing.
type published struct {
	acknowledge bool

	mu      sync.Mutex
	records []transport.Record
	left    []func(error)
}

func (p *published) AppendAsync(_ context.Context, records []transport.Record, done func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, records...)
	if p.acknowledge {
		go done(nil)
	} else {
		p.left = append(p.left, done)
	}
}

func (p *published) Reset()                      {}
func (p *published) Close(context.Context) error { return nil }

// headers gives those of each record, by the record's topic.
func (p *published) headers() map[string]map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]map[string]string{}
	for _, r := range p.records {
		all[r.Topic] = map[string]string{}
		for _, h := range r.Headers {
			all[r.Topic][h.Key] = string(h.Value)
		}
	}
	return all
}

// A decision's outbox keeps the trace: whoever publishes it, the change belongs
// to it, whatever became of the process that decided.
func TestTakeOverKeepsTheTrace(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	plan := bananaPlan(t)
	var names []string
	for _, service := range plan.Services {
		names = append(names, service.Name)
	}
	numbers, err := s.Services(t.Context(), names)
	require.NoError(t, err)
	for i := range plan.Services {
		plan.Services[i].Number = numbers[plan.Services[i].Name]
	}
	revision, err := s.Activate(t.Context(), plan.Fingerprint, false)
	require.NoError(t, err)
	plan.Revision = revision.Number
	resolved, err := s.ResolveInbox(t.Context(), "weir.inbox", "id", 1, 1)
	require.NoError(t, err)

	spans := otlptest.New(t)
	tracer, err := tracing.New(tracing.Options{
		Endpoint: spans.URL(), Sample: 0, Service: "weir",
		Logger: slog.New(slog.DiscardHandler), Metrics: tracing.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })

	// owner takes the partition over.
	owner := func(tracer *tracing.Tracer, acknowledge bool) (*Decider, *published) {
		out := &published{acknowledge: acknowledge}
		limit, cut := context.WithCancel(context.Background())
		d, err := New(Options{
			Store: s, Inbox: resolved, Plan: plan, NewProducer: func() (Producer, error) { return out, nil }, Lanes: 1,
			Limit: limit, Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()), Tracer: tracer,
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = d.Run(ctx) })
		t.Cleanup(func() { cut(); stop(); running.Wait() })
		_, err = d.Assigned(t.Context(), "weir.inbox", []int32{0})
		require.NoError(t, err)
		return d, out
	}
	first, before := owner(tracer, false)
	for i, parent := range []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ""} {
		entity := []string{"B-007", "B-008"}[i]
		key, head, value, err := inbox.Encode(inbox.Record{Entity: entity, Event: &inbox.Event{
			Origin: inbox.Origin{Source: "registry", Topic: "t", Offset: int64(i)}, Op: inbox.Upsert, Payload: []byte(`{"id":1,"ripeness_level":2}`),
		}})
		require.NoError(t, err)
		m := message.NewMessage("", value)
		m.Metadata = message.Metadata{transport.KeyMetadata: string(key), inbox.Header: string(head)}
		if parent != "" {
			m.Metadata[change.TraceParentHeader], m.Metadata[change.TraceStateHeader] = parent, "vendor=1"
		}
		m.SetContext(transport.WithPosition(t.Context(), transport.Position{
			Topic: "weir.inbox", TopicID: "id", Offset: int64(i), Seq: uint64(i), Time: time.UnixMilli(1), Claim: transport.LastClaim() + 1,
		}))
		require.NoError(t, first.Handle(m))
	}
	require.Eventually(t, func() bool { before.mu.Lock(); defer before.mu.Unlock(); return len(before.records) == 4 }, time.Minute, time.Millisecond)
	// The second event, which is not traced, has the last records of both topics.
	require.Equal(t, map[string]map[string]string{"one": {}, "two": {}}, before.headers())
	before.records = before.records[:2]
	decided := before.headers()
	context1 := decided["one"]
	require.Contains(t, context1[change.TraceParentHeader], "00-4bf92f3577b34da6a3ce929d0e0e4736-")
	require.NotContains(t, context1[change.TraceParentHeader], "00f067aa0ba902b7", "a span of its own")
	require.Equal(t, map[string]string{change.TraceParentHeader: context1[change.TraceParentHeader], change.TraceStateHeader: "vendor=1"}, context1)
	require.Equal(t, context1, decided["two"], "the changes of one decision stand side by side")

	_, after := owner(tracer, true)
	require.Len(t, after.records, 4)
	untraced := after.records[2:]
	after.records = after.records[:2]
	for topic, headers := range after.headers() {
		want := map[string]string{change.AgainHeader: "1"}
		for k, v := range context1 {
			want[k] = v
		}
		require.Equal(t, want, headers, topic)
	}
	for i, r := range after.records {
		require.Equal(t, before.records[i].Value, r.Value, "the same bytes")
	}
	for _, r := range untraced {
		require.Equal(t, []transport.Header{{Key: change.AgainHeader, Value: []byte("1")}}, r.Headers)
	}

	_, off := owner(nil, true)
	require.Equal(t, map[string]map[string]string{"one": {change.AgainHeader: "1"}, "two": {change.AgainHeader: "1"}}, off.headers(),
		"a process without tracing writes no header")
}
