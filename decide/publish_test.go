package decide

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// held is a producer that answers when a test says so. It is used by one goroutine.
type held struct {
	at        bool    // answers at once
	says      []error // the next answers then; nil when there are no more
	calls     [][]transport.Record
	dones     []func(error) // of calls, by their numbers
	sequences []*transport.Sequence
}

func (p *held) AppendAsync(_ context.Context, sequence *transport.Sequence, records []transport.Record, done func(error)) {
	p.sequences = append(p.sequences, sequence)
	p.calls, p.dones = append(p.calls, records), append(p.dones, done)
	if !p.at {
		return
	}
	var err error
	if len(p.says) > 0 {
		err, p.says = p.says[0], p.says[1:]
	}
	done(err)
}

func (p *held) Close(context.Context) error { return nil }

// entities are those of the frames that were handed in, call by call.
func (p *held) entities(t *testing.T) (all []string) {
	t.Helper()
	for _, call := range p.calls {
		text := ""
		for _, r := range call {
			f, err := change.ParseFrame(r.Value)
			require.NoError(t, err)
			for c, err := range f.Slices[0].All("any") {
				require.NoError(t, err)
				text += c.Entity
			}
		}
		all = append(all, text)
	}
	return all
}

// single is a decider of one worker that does nothing by itself.
func (w *flow) single(t *testing.T, p Producer, partitions ...int32) (*Decider, *worker) {
	t.Helper()
	var s store.Decisions = w.store
	if w.wrap != nil {
		s = w.wrap(s)
	}
	d, err := New(Options{
		Store: s, Inbox: w.inbox, Plan: w.plan, NewProducer: func() (Producer, error) { return p, nil }, Workers: 1,
		ChangesTopic: "weir.changes", Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { d.halt(nil) })
	if len(partitions) > 0 {
		_, err = d.Assigned(t.Context(), "weir.inbox", partitions)
		require.NoError(t, err)
	}
	return d, d.workers[0]
}

// event makes a record of an event.
func (l *worker) event(t *testing.T, entity string, partition int32, offset int64) *record {
	t.Helper()
	payload := fmt.Sprintf(`{"id":"B","ripeness_level":%d}`, 1+offset)
	f := transport.NewFrame("weir.inbox", "id", partition, transport.LastAssignment()+1, []transport.Received{event(t, entity, offset, payload)})
	r := &record{}
	l.d.parse(r, f, 0)
	return r
}

// decides decides one event that changes an entity.
func (l *worker) decides(t *testing.T, entity string, partition int32, offset int64) {
	t.Helper()
	require.NoError(t, l.decide(t.Context(), []*record{l.event(t, entity, partition, offset)}))
}

func (w *flow) outbox(t *testing.T, partition int32) int {
	t.Helper()
	rows, err := w.store.Outbox(t.Context(), partition)
	require.NoError(t, err)
	return len(rows)
}

var errAway = errors.New("away")

// Records left out while their partition waited are decided before later ones,
// also if the partition does not wait any more by then: parts of one batch, one after the
// other.
func TestNothingOvertakesWhatWasLeftOut(t *testing.T) {
	for name, answer := range map[string]error{"published": nil, "taken over again": errAway} {
		t.Run(name, func(t *testing.T) {
			w := newFlow(t)
			p := &held{}
			d, l := w.single(t, p, 0)
			d.opt.MaxUnpublished = 1
			decided := func(offsets ...int64) int64 {
				var batch []*record
				for _, offset := range offsets {
					batch = append(batch, l.event(t, "A", 0, offset))
				}
				require.NoError(t, l.decide(t.Context(), batch))
				return d.Decided()[l.partition(0)]
			}
			require.EqualValues(t, 1, decided(0))
			require.EqualValues(t, 1, decided(1, 2), "the partition waits")
			p.at = true
			p.dones[0](answer)
			require.EqualValues(t, 1, decided(3, 4), "behind what was left out")
			require.EqualValues(t, 3, decided(1, 2))
			require.EqualValues(t, 5, decided(3, 4))
		})
	}
}

// An unpublished frame goes out, from the store, before the next decision.
func TestAFailedPublishIsRepeatedFromTheStore(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	_, l := w.single(t, p, 0)
	l.decides(t, "A", 0, 0)
	p.dones[0](errAway)
	p.at = true
	l.decides(t, "B", 0, 1)
	require.Equal(t, []string{"A", "A", "B"}, p.entities(t))
	require.NotSame(t, p.sequences[0], p.sequences[1])
	require.Same(t, p.sequences[1], p.sequences[2])
	l.discard(t.Context(), false)
	require.Zero(t, w.outbox(t, 0))
}

// A shutdown deletes acknowledged frames, and leaves failed ones to the next owner.
func TestAShutdownKeepsWhatFailed(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	_, l := w.single(t, p, 0)
	l.decides(t, "A", 0, 0)
	l.decides(t, "B", 0, 1)
	p.dones[0](nil)
	p.dones[1](errAway)
	l.close()
	require.Equal(t, 1, w.outbox(t, 0))
	next := &held{at: true}
	w.single(t, next, 0)
	require.Equal(t, []string{"B"}, next.entities(t))
}

// A partition is taken over again only when all its publishes are answered: one that is still
// under way could land behind the next. Other partitions continue meanwhile.
func TestATakeOverWaitsForTheAnswers(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	d, l := w.single(t, p, 0, 1)
	l.decides(t, "A", 0, 0)
	l.decides(t, "B", 0, 1)
	p.dones[0](errAway)
	p.at = true
	before := l.owned[0]
	l.decides(t, "X", 0, 2)
	l.decides(t, "C", 1, 0)
	require.Same(t, before, l.owned[0])
	require.Equal(t, []string{"A", "B", "C"}, p.entities(t))
	require.False(t, d.Idle())
	p.dones[1](transport.ErrBroken)
	require.NoError(t, l.retake(t.Context()))
	require.Equal(t, []string{"A", "B", "C", "AB"}, p.entities(t))
	require.True(t, d.Idle())
}

// A partition that comes back while something of it is under way is not decided before
// it is taken over once more.
func TestAnAssignmentWaitsForTheAnswersToo(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	d, l := w.single(t, p, 0)
	l.decides(t, "A", 0, 0)
	d.Revoked("weir.inbox", []int32{0})
	starts, err := d.Assigned(t.Context(), "weir.inbox", []int32{0})
	require.NoError(t, err)
	require.Equal(t, map[int32]int64{0: 1}, starts)
	p.at = true
	l.decides(t, "B", 0, 1)
	require.Equal(t, []string{"A"}, p.entities(t))
	p.dones[0](nil)
	l.decides(t, "B", 0, 1)
	require.Equal(t, []string{"A", "A", "B"}, p.entities(t))
}

// Unpublished bytes are bounded for the process: each worker has its part of them.
func TestWorkersShareWhatMayBeUnpublished(t *testing.T) {
	w := newFlow(t)
	d, err := New(Options{
		Store: w.store, Inbox: w.inbox, Plan: w.plan, NewProducer: func() (Producer, error) { return &held{}, nil }, Workers: 2, MaxUnpublished: 100,
		ChangesTopic: "weir.changes", Logger: slog.New(slog.DiscardHandler), Metrics: w.metrics,
	})
	require.NoError(t, err)
	_, err = d.Assigned(t.Context(), "weir.inbox", []int32{0, 1})
	require.NoError(t, err)
	for n, l := range d.workers {
		p := int32(n)
		l.unpublished[p] = 49
		require.True(t, l.accepts(p, l.owned[p]))
		l.unpublished[p] = 50
		require.False(t, l.accepts(p, l.owned[p]))
	}
}

// unclear is a store of which a decision has an unknown outcome when a test wants that.
type unclear struct {
	store.Decisions
	next bool
}

func (s *unclear) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) ([]int64, error) {
	if s.next {
		s.next = false
		return nil, store.WithClass(errAway, store.Unknown)
	}
	return s.Decisions.Decide(ctx, d, decide)
}

// A frame in hand when its partition begins to wait is decided when that is over, and
// not acknowledged before.
func TestAFrameWaitsForItsPartition(t *testing.T) {
	w := newFlow(t)
	s := &unclear{}
	w.wrap = func(inner store.Decisions) store.Decisions { s.Decisions = inner; return s }
	d, p := w.owner(t, nil, false)
	hand(t, d, 0, event(t, "A", 0, `{"id":"B","ripeness_level":1}`))
	s.next = true
	done := begin(t, d, 0, event(t, "A", 1, `{"id":"B","ripeness_level":2}`))
	l := d.workers[0]
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.owned[0].stale != nil
	}, time.Minute, time.Millisecond)
	hand(t, d, 1, event(t, "C", 0, `{"id":"C","ripeness_level":1}`))
	require.Empty(t, done)
	p.mu.Lock()
	answers := p.left
	p.mu.Unlock()
	for _, answer := range answers {
		answer(nil)
	}
	require.NoError(t, <-done)
	require.EqualValues(t, 2, d.Decided()[l.partition(0)])
}

// A takeover whose publish fails is made again, later each time, and says so.
func TestATakeOverWhosePublishFails(t *testing.T) {
	w := newFlow(t)
	_, killed := w.single(t, &held{}, 0)
	killed.decides(t, "A", 0, 0)
	p := &held{at: true, says: []error{errAway, errAway}}
	d, l := w.single(t, p, 0)
	require.NoError(t, d.Halted())
	require.NoError(t, l.retake(t.Context()))
	require.NoError(t, l.retake(t.Context()), "too early")
	require.Equal(t, []string{"A", "A"}, p.entities(t))
	require.ErrorIs(t, d.Halted(), errAway)
	require.ErrorContains(t, d.Halted(), "partition 0 of weir.changes")
	l.owned[0].due = time.Time{}
	require.NoError(t, l.retake(t.Context()))
	require.Equal(t, []string{"A", "A", "A"}, p.entities(t))
	require.NoError(t, d.Halted())
}

// watched notes which outbox rows each decision deletes.
type watched struct {
	store.Decisions
	deleted [][]int64
}

func (s *watched) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) ([]int64, error) {
	s.deleted = append(s.deleted, d.Published)
	return s.Decisions.Decide(ctx, d, decide)
}

// Every row is deleted by the decision after its acknowledgement, and named in no
// later one: a restored store uses ids again.
func TestAcknowledgedRowsAreDeletedOnce(t *testing.T) {
	w := newFlow(t)
	_, killed := w.single(t, &held{}, 0)
	killed.decides(t, "A", 0, 0)
	s := &watched{}
	w.wrap = func(inner store.Decisions) store.Decisions { s.Decisions = inner; return s }
	_, l := w.single(t, &held{at: true}, 0)
	for i, entity := range []string{"B", "C", "D"} {
		l.decides(t, entity, 0, int64(i+1))
		require.Equal(t, 1, w.outbox(t, 0))
	}
	seen := map[int64]bool{}
	for _, ids := range s.deleted {
		require.Len(t, ids, 1)
		require.False(t, seen[ids[0]], "twice")
		seen[ids[0]] = true
	}
}

// An owner that has nothing to decide keeps the outbox empty, and notices that it is
// not the owner any more.
func TestAnIdleOwnerDeletesWhatWasAcknowledged(t *testing.T) {
	w := newFlow(t)
	_, l := w.single(t, &held{at: true}, 0)
	l.decides(t, "A", 0, 0)
	require.Equal(t, 1, w.outbox(t, 0))
	l.idle(t.Context())
	require.Zero(t, w.outbox(t, 0))
	require.Empty(t, l.owned[0].published, "the next decision does not name them")
	w.single(t, &held{at: true}, 0)
	l.idle(t.Context())
	require.NoError(t, l.owned[0].stale, "too early")
	l.compared = l.compared.Add(-2 * ownTick)
	l.idle(t.Context())
	require.ErrorIs(t, l.owned[0].stale, store.ErrFenced)
}

// lostCommit is a store that loses a partition's decision, when a test says so.
type lostCommit struct {
	store.Decisions
	of   int32
	lost atomic.Bool
}

func (s *lostCommit) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) ([]int64, error) {
	if s.lost.Load() && slices.ContainsFunc(d.Moves, func(m store.WatermarkStep) bool { return m.Partition.Number == s.of }) {
		return nil, store.ErrFenced
	}
	return s.Decisions.Decide(ctx, d, decide)
}

func (s *lostCommit) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) ([]store.TakenOver, error) {
	taken, err := s.Decisions.TakeOver(ctx, partitions, token)
	for i := range taken {
		if s.lost.Load() && taken[i].Partition.Number == s.of {
			taken[i].NextOffset = 0
		}
	}
	return taken, err
}

// A partition that has nothing to decide is looked after, however little time its
// worker has between the events of another.
func TestAQuietPartitionBesideABusyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFlow(t)
		s := &lostCommit{of: 1}
		w.wrap = func(inner store.Decisions) store.Decisions { s.Decisions = inner; return s }
		d, _ := w.owner(t, nil, true)
		trickle := func(from int64) {
			for offset := from; offset < from+100 && d.stop.Err() == nil; offset++ {
				f := transport.NewFrame("weir.inbox", "id", 0, transport.LastAssignment()+1, []transport.Received{event(t, "A", offset, `{"id":"A"}`)})
				if err := d.Handle(transport.NewMessage(t.Context(), f)); d.stop.Err() == nil {
					require.NoError(t, err)
				}
				<-time.After(idleTick / 3)
			}
		}
		trickle(0)
		hand(t, d, 1, event(t, "B", 0, `{"id":"B"}`))
		trickle(100)
		require.Zero(t, w.outbox(t, 1))
		s.lost.Store(true)
		trickle(200)
		require.ErrorIs(t, context.Cause(d.stop), ErrReread)
	})
}

// I12: an owner without events learns that another configuration is active, also in a
// restored store. The mistake that this catches: it asked again and again, and
// decided nothing more when events came.
func TestAnIdleOwnerOfAnOlderRevisionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFlow(t)
		d, _ := w.owner(t, nil, true)
		_, err := w.store.Activate(t.Context(), []byte("another"), false, store.Inbox{}, nil)
		require.NoError(t, err)
		<-time.After(ownTick + 2*idleTick)
		require.ErrorIs(t, context.Cause(d.stop), store.ErrSuperseded)
	})
}

// wentBack is a store restored to before the first decision.
type wentBack struct{ store.Decisions }

func (s wentBack) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) ([]store.TakenOver, error) {
	taken, err := s.Decisions.TakeOver(ctx, partitions, token)
	for i := range taken {
		taken[i].NextOffset = 0
	}
	return taken, err
}

// Inbox records whose decisions were lost have to be read again.
func TestAStoreThatWentBackEndsTheSubscription(t *testing.T) {
	w := newFlow(t)
	w.wrap = func(s store.Decisions) store.Decisions { return wentBack{s} }
	d, l := w.single(t, &held{at: true}, 0)
	l.decides(t, "A", 0, 0)
	l.markStale(0, store.WithClass(errAway, store.Unknown))
	require.ErrorIs(t, l.retake(t.Context()), ErrReread)
	require.ErrorIs(t, context.Cause(d.stop), ErrReread)
}

// An assignment that ends halfway leaves no owner: the group does not report that its
// partitions were revoked.
func TestAnAssignmentThatEndsHalfwayOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFlow(t)
		d, err := New(Options{
			Store: w.store, Inbox: w.inbox, Plan: w.plan, NewProducer: func() (Producer, error) { return &held{at: true}, nil }, Workers: 2,
			ChangesTopic: "weir.changes", Logger: slog.New(slog.DiscardHandler), Metrics: w.metrics,
		})
		require.NoError(t, err)
		d.workers[1].work <- struct{}{}
		for range 20 { // the workers come in any order
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := d.Assigned(ctx, "weir.inbox", []int32{0, 1})
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, d.Decided())
		}
	})
}

// The inbox of another topic has other offsets, and partitions that were added to
// it hold nothing that may be decided.
func TestAnotherInboxIsNotDecided(t *testing.T) {
	w := newFlow(t)
	d, _ := w.single(t, &held{at: true}, 0)
	f := transport.NewFrame("weir.inbox", "another", 0, transport.LastAssignment()+1, []transport.Received{event(t, "A", 0, `{}`)})
	ended, end := context.WithCancel(t.Context())
	end() // it would wait for a decision
	require.ErrorIs(t, d.Handle(transport.NewMessage(ended, f)), ErrInboxReplaced)
	_, err := d.Assigned(t.Context(), "weir.inbox", []int32{2})
	require.ErrorIs(t, err, store.ErrRepartitioned)
}
