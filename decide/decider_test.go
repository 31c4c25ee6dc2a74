package decide

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
)

// published keeps the frames that a decider publishes; it acknowledges them, or nothing.
type published struct {
	acknowledge bool

	mu      sync.Mutex
	records []transport.Record
	left    []func(error)
}

func (p *published) AppendAsync(_ context.Context, _ *transport.Sequence, records []transport.Record, done func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, records...)
	if p.acknowledge {
		go done(nil)
	} else {
		p.left = append(p.left, done)
	}
}

func (p *published) Close(context.Context) error { return nil }

func (p *published) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.records)
}

// flow is a store and the decisions in it, of an inbox of two partitions.
type flow struct {
	store interface {
		store.Store
		store.CheckRows
		store.Ledger
	}
	plan  *Plan
	inbox store.Inbox
	// wrap, if given, wraps the decider's store.
	wrap       func(store.Decisions) store.Decisions
	maxOutcome int   // of the options
	cache      int64 // likewise
	metrics    *Metrics
	next       func(context.Context, *Plan) *Plan // of the options
}

func newFlow(t *testing.T) *flow {
	t.Helper()
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
	require.NoError(t, plan.Prepare())
	revision, err := s.Activate(t.Context(), plan.Fingerprint, false, store.Inbox{}, nil)
	require.NoError(t, err)
	plan.Revision = revision.Number
	resolved, err := s.ResolveInbox(t.Context(), "weir.inbox", "id", 2, nil)
	require.NoError(t, err)
	return &flow{store: s, plan: plan, inbox: resolved, cache: 1 << 20, metrics: NewMetrics(prometheus.NewRegistry())}
}

// owner runs a decider that takes the partitions over.
func (w *flow) owner(t *testing.T, tracer *tracing.Tracer, acknowledge bool) (*Decider, *published) {
	t.Helper()
	return w.ownerOf(t, []int32{0, 1}, tracer, acknowledge)
}

func (w *flow) ownerOf(t *testing.T, partitions []int32, tracer *tracing.Tracer, acknowledge bool) (*Decider, *published) {
	t.Helper()
	out := &published{acknowledge: acknowledge}
	limit, cut := context.WithCancel(context.Background())
	var s store.Decisions = w.store
	if w.wrap != nil {
		s = w.wrap(s)
	}
	d, err := New(Options{
		MaxOutcome: w.maxOutcome, Store: s, Inbox: w.inbox, Plan: w.plan, NewProducer: func() (Producer, error) { return out, nil }, Workers: 1,
		ChangesTopic: "weir.changes", Limit: limit, Logger: slog.New(slog.DiscardHandler), Metrics: w.metrics, Cache: w.cache, Tracer: tracer, Next: w.next,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	t.Cleanup(func() { cut(); stop(); running.Wait() })
	_, err = d.Assigned(t.Context(), "weir.inbox", partitions)
	require.NoError(t, err)
	return d, out
}

// event is the record of an event of the registry.
func event(t *testing.T, entity string, offset int64, payload string) transport.Received {
	t.Helper()
	key, head, value, err := change.EncodeRecord(change.Record{Entity: entity, Event: &change.Event{
		Origin: change.Origin{Source: "registry", Topic: "t", Offset: offset}, Op: change.Upsert, Payload: []byte(payload),
	}})
	require.NoError(t, err)
	return transport.Received{Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}, Offset: offset, Time: time.UnixMilli(1)}
}

// hand hands records of a partition to a decider, which decides them at once.
func hand(t *testing.T, d *Decider, partition int32, records ...transport.Received) {
	t.Helper()
	require.NoError(t, <-begin(t, d, partition, records...))
}

// begin hands records of a partition to a decider, and returns what becomes of them.
func begin(t *testing.T, d *Decider, partition int32, records ...transport.Received) <-chan error {
	t.Helper()
	f := transport.NewFrame("weir.inbox", "id", partition, transport.LastAssignment()+1, records)
	result := make(chan error, 1)
	go func() { result <- d.Handle(transport.NewMessage(t.Context(), f)) }()
	return result
}

// Under any owner, a first frame continues from the newest one of its partition:
// over batches that change nothing, and whether or not that frame was published.
func TestOwnersLinkTheirFrames(t *testing.T) {
	w := newFlow(t)
	log := map[int32]*logged{}
	for n := range int32(2) {
		log[n] = &logged{seen: map[string][]change.Change{}}
	}
	ripe, riper := `{"id":"B","ripeness_level":1}`, `{"id":"B","ripeness_level":2}`
	first, before := w.owner(t, nil, false)
	hand(t, first, 0, event(t, "B-007", 0, ripe), event(t, "B-007", 1, ripe))
	hand(t, first, 1, event(t, "B-008", 4, ripe)) // compaction or markers took the first
	hand(t, first, 0, event(t, "B-007", 2, ripe)) // noise
	hand(t, first, 0, event(t, "B-007", 3, riper))
	second, after := w.owner(t, nil, true)
	hand(t, second, 0, event(t, "B-007", 4, riper))
	hand(t, second, 0, event(t, "B-007", 5, ripe))
	require.Eventually(t, second.Idle, time.Minute, time.Millisecond)
	require.Equal(t, 3, before.count())
	require.Equal(t, 4, after.count(), "what the first could not say that it had published, and one of its own")
	for i, r := range after.records {
		require.Equal(t, "weir.changes", r.Topic)
		require.True(t, r.Pinned)
		require.Equal(t, i < 3, len(r.Headers) == 1, "what comes from an outbox says so")
		log[r.Partition].read(t, w.plan, r.Value, MaxFrame)
	}
	require.Len(t, log[0].seen["one/ripeness@a"], 3)
	require.Len(t, log[0].seen["two/list@a"], 1)
	require.Len(t, log[1].seen["one/ripeness@a"], 1)
	require.Equal(t, change.NewVersion(1, 6), log[0].end)
	require.Equal(t, change.NewVersion(1, 5), log[1].end)
}

// The inbox is re-created, with fewer partitions, when decisions were committed and
// not published. The mistake that this catches: a new generation that publishes
// its own partitions only leaves undelivered frames in the store.
func TestWhatAnOlderInboxLeftIsPublished(t *testing.T) {
	w := newFlow(t)
	ripe, riper := `{"id":"B","ripeness_level":1}`, `{"id":"B","ripeness_level":2}`
	killed, _ := w.owner(t, nil, false)
	hand(t, killed, 0, event(t, "B-007", 0, ripe), event(t, "B-007", 1, riper))
	hand(t, killed, 1, event(t, "B-008", 0, ripe))
	marks, err := w.store.Outboxes(t.Context())
	require.NoError(t, err)
	require.Len(t, marks, 2)

	w.inbox, err = w.store.ResolveInbox(t.Context(), "weir.inbox", "new", 1, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, w.inbox.Generation)
	next, out := w.ownerOf(t, []int32{0}, nil, true)
	sent := map[int32]map[string][]change.Change{}
	for _, r := range out.records {
		l := logged{seen: map[string][]change.Change{}}
		l.read(t, w.plan, r.Value, MaxFrame)
		require.Nil(t, sent[r.Partition], "once")
		sent[r.Partition] = l.seen
	}
	require.Len(t, sent[0]["one/ripeness@a"], 2)
	require.Len(t, sent[1]["one/ripeness@a"], 1)
	require.Equal(t, "B-008", sent[1]["one/ripeness@a"][0].Entity)

	f := transport.NewFrame("weir.inbox", "new", 0, transport.LastAssignment()+1, []transport.Received{event(t, "B-009", 0, ripe)})
	require.NoError(t, next.Handle(transport.NewMessage(t.Context(), f)))
	require.Eventually(t, func() bool {
		left, err := w.store.Outboxes(t.Context())
		require.NoError(t, err)
		return len(left) == 0
	}, time.Minute, time.Millisecond, "of the partition that is no more, too")
	_, err = w.store.TakeOver(t.Context(), []store.Partition{{Generation: 1, Number: 1}}, store.Token{1})
	require.ErrorIs(t, err, store.ErrFenced, "its owner has ended, also where nothing is decided any more")
}
