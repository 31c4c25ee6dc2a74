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
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// handed are the frames that a decider handed over.
type handed struct {
	mu     sync.Mutex
	frames []store.Frame
}

func (h *handed) take(f *store.Frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frames = append(h.frames, *f)
}

func (h *handed) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.frames)
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
	// Of the options.
	next        func(context.Context, *Plan) *Plan
	ends        func(int32, change.Version)
	retakeDelay time.Duration
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
func (w *flow) owner(t *testing.T, tracer *tracing.Tracer) (*Decider, *handed) {
	t.Helper()
	d, out := w.made(t, Options{Workers: 1, Cache: w.cache, Tracer: tracer})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	w.assign(t, d)
	return d, out
}

// single is a decider of one worker that does nothing by itself.
func (w *flow) single(t *testing.T) (*Decider, *worker, *handed) {
	t.Helper()
	d, out := w.made(t, Options{Workers: 1})
	w.assign(t, d)
	return d, d.workers[0], out
}

func (w *flow) made(t *testing.T, o Options) (*Decider, *handed) {
	t.Helper()
	out := &handed{}
	limit, cut := context.WithCancel(context.Background())
	o.Store, o.Inbox, o.Plan, o.Next, o.MaxOutcome, o.RetakeDelay = w.store, w.inbox, w.plan, w.next, w.maxOutcome, w.retakeDelay
	if w.wrap != nil {
		o.Store = w.wrap(w.store)
	}
	o.Limit, o.Logger, o.Metrics, o.HandOver, o.Ends = limit, slog.New(slog.DiscardHandler), w.metrics, out.take, w.ends
	d := New(o)
	t.Cleanup(func() { cut(); d.halt(nil) })
	return d, out
}

// assign has a decider take all partitions of the inbox over.
func (w *flow) assign(t *testing.T, d *Decider) {
	t.Helper()
	_, err := d.Assigned(t.Context(), w.inbox.Topic, []int32{0, 1}[:w.inbox.Partitions])
	require.NoError(t, err)
}

// log returns the frames of a partition that are in the store.
func (w *flow) log(t *testing.T, partition int32) []store.Frame {
	t.Helper()
	tail, err := w.store.Frames(t.Context(), partition, 0, 1<<30)
	require.NoError(t, err)
	return tail.Frames
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
// over batches that change nothing, and over generations of the inbox.
func TestOwnersLinkTheirFrames(t *testing.T) {
	w := newFlow(t)
	ripe, riper := `{"id":"B","ripeness_level":1}`, `{"id":"B","ripeness_level":2}`
	first, before := w.owner(t, nil)
	hand(t, first, 0, event(t, "B-007", 0, ripe), event(t, "B-007", 1, ripe))
	hand(t, first, 1, event(t, "B-008", 4, ripe)) // compaction or markers took the first
	hand(t, first, 0, event(t, "B-007", 2, ripe)) // noise
	hand(t, first, 0, event(t, "B-007", 3, riper))
	second, after := w.owner(t, nil)
	hand(t, second, 0, event(t, "B-007", 4, riper))
	hand(t, second, 0, event(t, "B-007", 5, ripe))
	require.Equal(t, 3, before.count())
	require.Equal(t, 1, after.count(), "its own")

	// The inbox is made again with fewer partitions.
	var err error
	w.inbox, err = w.store.ResolveInbox(t.Context(), "weir.inbox", "new", 1, nil)
	require.NoError(t, err)
	third, last := w.owner(t, nil)
	require.Equal(t, []int32{0, 1}, third.Owned([]int32{0}), "that of the larger one, too")
	f := transport.NewFrame("weir.inbox", "new", 0, transport.LastAssignment()+1, []transport.Received{event(t, "B-009", 0, ripe)})
	require.NoError(t, third.Handle(transport.NewMessage(t.Context(), f)))
	require.Equal(t, 1, last.count())
	_, err = w.store.TakeOver(t.Context(), []store.Partition{{Generation: 1, Number: 1}}, store.Token{1})
	require.ErrorIs(t, err, store.ErrFenced, "its owner has ended, also where nothing is decided any more")

	for n, want := range map[int32]struct {
		end      change.Version
		one, two int
	}{0: {change.NewVersion(2, 1), 4, 2}, 1: {change.NewVersion(1, 5), 1, 1}} {
		l := logged{seen: map[string][]change.Change{}}
		for _, f := range w.log(t, n) {
			l.read(t, w.plan, &f, MaxFrame)
		}
		require.Equal(t, want.end, l.end)
		require.Len(t, l.seen["one/ripeness@a"], want.one)
		require.Len(t, l.seen["two/list@a"], want.two)
	}
}

// I1: frames are handed over when they are in the store, those of a partition in their order,
// and as they are there.
func TestFramesAreHandedOverAfterTheirCommit(t *testing.T) {
	w := newFlow(t)
	s := &unclear{}
	w.wrap = func(inner store.Decisions) store.Decisions { s.Decisions = inner; return s }
	_, l, out := w.single(t)
	s.during = func() { require.Zero(t, out.count()) }
	require.NoError(t, l.decide(t.Context(), []*record{l.event(t, "A", 0, 0), l.event(t, "B", 1, 0), l.event(t, "A", 0, 1)}))
	s.during = nil
	l.d.opt.MaxFrame = 1
	require.NoError(t, l.decide(t.Context(), []*record{l.event(t, "A", 0, 2), l.event(t, "A", 0, 3)}))
	byPartition := [2][]store.Frame{}
	for _, f := range out.frames {
		n := f.Partition.Number
		f.Partition = store.Partition{}
		byPartition[n] = append(byPartition[n], f)
	}
	require.Len(t, byPartition[0], 3)
	require.Len(t, byPartition[1], 1)
	for n, frames := range byPartition {
		require.Equal(t, w.log(t, int32(n)), frames)
	}
}

// L1: the frame of a commit of unknown outcome is in the store alone: who delivers is told where the
// log ends, and the next frame continues from there.
func TestFramesOfAnUnknownOutcomeAreNotHandedOver(t *testing.T) {
	w := newFlow(t)
	ends := map[int32]change.Version{}
	w.ends = func(partition int32, to change.Version) { ends[partition] = to }
	s := &unclear{}
	w.wrap = func(inner store.Decisions) store.Decisions { s.Decisions = inner; return s }
	_, l, out := w.single(t)
	l.decides(t, "A", 0, 0)
	s.answer, s.writes = store.WithClass(errAway, store.Unknown), true
	l.decides(t, "A", 0, 1)
	require.Equal(t, 1, out.count())
	require.Equal(t, map[int32]change.Version{0: change.NewVersion(1, 2)}, ends)
	l.decides(t, "A", 0, 2)
	require.Equal(t, 2, out.count())
	frames := w.log(t, 0)
	require.Len(t, frames, 3)
	f, err := change.ParseFrameHeader(out.frames[1].Body)
	require.NoError(t, err)
	require.Equal(t, frames[1].To, f.Prev)
}

// A decision that ends after its partition was revoked, or assigned once more, is durable, and its
// frames are for the next owner.
func TestFramesOfARevokedPartitionAreNotHandedOver(t *testing.T) {
	w := newFlow(t)
	s := &unclear{}
	w.wrap = func(inner store.Decisions) store.Decisions { s.Decisions = inner; return s }
	d, l, out := w.single(t)
	s.during = func() { d.Revoked("weir.inbox", []int32{0}) }
	require.NoError(t, l.decide(t.Context(), []*record{l.event(t, "A", 0, 0), l.event(t, "B", 1, 0)}))
	require.Len(t, w.log(t, 0), 1)
	require.Equal(t, 1, out.count())
	require.EqualValues(t, 1, out.frames[0].Partition.Number)
}
