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

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

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

var errAway = errors.New("away")

// unclear is a store that answers a decision as a test says, written or not.
type unclear struct {
	store.Decisions
	during func() // called when the outcome is known, before it is written
	answer error  // of the next decision that moves
	writes bool   // although it answers so
}

func (s *unclear) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	answer := s.answer
	if d.Moves[0].From == d.Moves[0].To {
		answer = nil // it is idle
	} else if s.answer = nil; answer != nil && !s.writes {
		return answer
	}
	err := s.Decisions.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
		out, err := decide(loaded)
		if s.during != nil {
			s.during()
		}
		return out, err
	})
	if err == nil {
		err = answer
	}
	return err
}

// Records left out while their partition waited are decided before later ones,
// also if the partition does not wait any more by then: parts of one batch, one after the
// other.
func TestNothingOvertakesWhatWasLeftOut(t *testing.T) {
	w := newFlow(t)
	d, l, _ := w.single(t)
	decided := func(offsets ...int64) int64 {
		var batch []*record
		for _, offset := range offsets {
			batch = append(batch, l.event(t, "A", 0, offset))
		}
		require.NoError(t, l.decide(t.Context(), batch))
		return d.Decided()[l.partition(0)]
	}
	require.EqualValues(t, 1, decided(0))
	l.markStale(0, store.ErrFenced)
	require.EqualValues(t, 1, decided(1, 2), "the partition waits")
	l.owned[0].due = time.Time{}
	require.EqualValues(t, 1, decided(3, 4), "behind what was left out")
	require.EqualValues(t, 3, decided(1, 2))
	require.EqualValues(t, 5, decided(3, 4))
}

// A frame in hand when its partition begins to wait is decided when that is over, and
// not acknowledged before. Other partitions continue meanwhile.
func TestAFrameWaitsForItsPartition(t *testing.T) {
	w := newFlow(t)
	w.retakeDelay = time.Hour
	s := &unclear{answer: store.ErrFenced}
	w.wrap = func(inner store.Decisions) store.Decisions { s.Decisions = inner; return s }
	d, _ := w.owner(t, nil)
	done := begin(t, d, 0, event(t, "A", 0, `{"id":"B","ripeness_level":2}`))
	l := d.workers[0]
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.owned[0].stale != nil
	}, time.Minute, time.Millisecond)
	hand(t, d, 1, event(t, "C", 0, `{"id":"C","ripeness_level":1}`))
	require.Empty(t, done)
	require.False(t, d.Idle())
	l.mu.Lock()
	l.owned[0].due = time.Time{}
	l.signal()
	l.mu.Unlock()
	require.NoError(t, <-done)
	require.EqualValues(t, 1, d.Decided()[l.partition(0)])
}

// An owner that has nothing to decide notices that it is not the owner any more.
func TestAnIdleOwnerIsFenced(t *testing.T) {
	w := newFlow(t)
	_, l, _ := w.single(t)
	l.decides(t, "A", 0, 0)
	l.idle(t.Context())
	w.single(t)
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

func (s *lostCommit) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	if s.lost.Load() && slices.ContainsFunc(d.Moves, func(m store.WatermarkStep) bool { return m.Partition.Number == s.of }) {
		return store.ErrFenced
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
		d, _ := w.owner(t, nil)
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
		d, _ := w.owner(t, nil)
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
	d, l, _ := w.single(t)
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
		d, _ := w.made(t, Options{Workers: 2})
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
	d, _, _ := w.single(t)
	f := transport.NewFrame("weir.inbox", "another", 0, transport.LastAssignment()+1, []transport.Received{event(t, "A", 0, `{}`)})
	ended, end := context.WithCancel(t.Context())
	end() // it would wait for a decision
	require.ErrorIs(t, d.Handle(transport.NewMessage(ended, f)), ErrInboxReplaced)
	_, err := d.Assigned(t.Context(), "weir.inbox", []int32{2})
	require.ErrorIs(t, err, store.ErrRepartitioned)
}

// Two owners that fence each other must not do so in turns: one that was fenced waits
// before it takes over again.
func TestAFencedOwnerWaitsBeforeItTakesOver(t *testing.T) {
	for class, waits := range map[store.Class]bool{store.Fenced: true, store.Retry: false} {
		w := &worker{d: &Decider{opt: Options{RetakeDelay: time.Hour}}, log: slog.New(slog.DiscardHandler), owned: map[int32]*ownership{3: {}}}
		w.markStale(3, store.WithClass(errors.New("no"), class))
		require.Equal(t, !waits, w.owned[3].retakeDue(), class)
		w.owned[3].due = w.owned[3].due.Add(-2 * time.Hour)
		require.True(t, w.owned[3].retakeDue())
	}
}
