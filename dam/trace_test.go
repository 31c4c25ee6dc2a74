package dam

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

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

// traces returns the trace contexts of the changes that were published so far,
// by the service, "" for one that is not traced.
func (p *published) traces(t *testing.T) map[int32][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[int32][]string{}
	for _, r := range p.records {
		f, err := change.ParseFrame(r.Value)
		require.NoError(t, err)
		for i := range f.Slices {
			for c, err := range f.Slices[i].All("") {
				require.NoError(t, err)
				trace := ""
				if c.Trace != nil {
					trace = c.Trace.Parent + " " + c.Trace.State
				}
				all[f.Slices[i].Service] = append(all[f.Slices[i].Service], trace)
			}
		}
	}
	return all
}

func (p *published) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.records)
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
			ChangesTopic: "weir.changes", Limit: limit, Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()), Tracer: tracer,
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
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var frame []transport.Received
	for i, entity := range []string{"B-007", "B-008"} {
		key, head, value, err := inbox.Encode(inbox.Record{Entity: entity, Event: &inbox.Event{
			Origin: inbox.Origin{Source: "registry", Topic: "t", Offset: int64(i)}, Op: inbox.Upsert, Payload: []byte(`{"id":1,"ripeness_level":2}`),
		}})
		require.NoError(t, err)
		r := transport.Received{Key: key, Value: value, Headers: []transport.Header{{Key: inbox.Header, Value: head}}, Offset: int64(i), Time: time.UnixMilli(1)}
		if i == 0 {
			r.Headers = transport.WithTrace(r.Headers, &change.Trace{Parent: parent, State: "vendor=1"})
		}
		frame = append(frame, r)
	}
	f := transport.NewFrame("weir.inbox", "id", 0, transport.LastAssignment()+1, frame)
	require.NoError(t, first.Handle(transport.NewMessage(t.Context(), f)))
	require.Eventually(t, func() bool { return before.count() == 1 }, time.Minute, time.Millisecond, "one frame of all services")
	decided := before.traces(t)
	one, two := decided[plan.Services[0].Number], decided[plan.Services[1].Number]
	require.Len(t, one, 2)
	require.Contains(t, one[0], "00-4bf92f3577b34da6a3ce929d0e0e4736-")
	require.Contains(t, one[0], " vendor=1")
	require.NotContains(t, one[0], "00f067aa0ba902b7", "a span of its own")
	require.Empty(t, one[1], "the second event is not traced")
	require.Equal(t, one, two, "the changes of one decision stand side by side")

	for _, tracer := range []*tracing.Tracer{tracer, nil} {
		_, after := owner(tracer, true)
		require.Equal(t, 1, after.count())
		for i, r := range after.records {
			require.Equal(t, before.records[i].Value, r.Value, "the same bytes")
			require.Equal(t, []transport.Header{{Key: change.RepublishedHeader, Value: []byte("1")}}, r.Headers)
		}
	}
}
