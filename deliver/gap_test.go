package deliver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// The missing predecessor of a frame may be committed and unpublished: it is delivered from the
// outbox, and no change is decided again.
func TestWhatIsNotPublishedYetIsTakenFromTheOutbox(t *testing.T) {
	w := newWorld(t, service)
	w.publish(of(service, "a", 0))
	late := w.decide(of(service, "b", 1))
	w.owe(late)
	w.publish(of(service, "c", 2))
	p := w.start(map[string]sinks.Traits{service: logOf(10)})
	require.Eventually(t, func() bool { return len(p.sinks[service].has()) >= 3 || len(p.order()) > 0 }, patience, time.Millisecond)
	require.Equal(t, []string{"a:0", "b:1", "c:2"}, p.sinks[service].has())
	require.Empty(t, p.order())
}

// owe puts a record of a decision into the outbox.
func (w *world) owe(records ...transport.Received) {
	var out store.Outcome
	for _, r := range records {
		out.Outbox = append(out.Outbox, store.OutboxFrame{Partition: w.part, Frame: r.Value})
	}
	_, err := w.store.Decide(w.t.Context(), store.Decision{
		Revision: 1, Moves: []store.WatermarkStep{{Partition: w.part, From: w.next, To: w.next, Token: w.token}},
	}, func(store.Loaded) (store.Outcome, error) { return out, nil })
	require.NoError(w.t, err)
}

// restoredStore is a store whose second snapshot is that of a restored one.
type restoredStore struct {
	recording
	looks *atomic.Int32
}

func (s restoredStore) HistorySnapshot(ctx context.Context) (store.HistorySnapshot, error) {
	look, err := s.recording.HistorySnapshot(ctx)
	if s.looks.Add(1) == 2 {
		look.Marks = nil
	}
	return look, err
}

// A restored store decides missing changes again, so they are not lost: the search compares
// with a second snapshot before it reports anything.
func TestARestoredStoreLosesNoChanges(t *testing.T) {
	w := newWorld(t, service)
	w.publish(of(service, "a", 0))
	w.publish(of(service, "b", 1))
	w.log.cut(1)
	var looks atomic.Int32
	p := w.start(map[string]sinks.Traits{service: state}, func(o *deliver.Options) { o.Store = restoredStore{recording{w.store, w}, &looks} })
	require.Eventually(t, func() bool { return looks.Load() > 1 }, patience, time.Millisecond)
	p.publish(of(service, "c", 2))
	require.Eventually(t, func() bool { return len(p.order()) > 1 }, patience, time.Millisecond)
	require.Equal(t, []string{"redecide a", "redecide b"}, p.order())
	require.True(t, p.moveOn(map[string]bool{}))
	p.delivered()
	require.ElementsMatch(t, []string{"c:2", "a:3", "b:4"}, p.sinks[service].has())
}

// forgetful is a store whose first saved position has its effect without an answer.
type forgetful struct {
	recording
	answered *atomic.Bool
}

func (f forgetful) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) ([]bool, error) {
	done, err := f.recording.SwapProgress(ctx, revision, swaps)
	if err == nil && !f.answered.Swap(true) {
		return nil, store.WithClass(errors.New("the connection is gone"), store.Unknown)
	}
	return done, err
}

// A save without an answer is resolved by the token in the store: the process resumes with its
// own row.
func TestASaveWhoseAnswerIsLost(t *testing.T) {
	w := newWorld(t, service)
	var answered atomic.Bool
	p := w.start(map[string]sinks.Traits{service: logOf(10)}, func(o *deliver.Options) { o.Store = forgetful{recording{w.store, w}, &answered} })
	for i := range int64(2) {
		p.publish(of(service, "a", i))
		require.Eventually(t, func() bool {
			select {
			case <-p.ended:
				return true
			default:
				return p.position(service).Version >= p.prev
			}
		}, patience, time.Millisecond)
	}
	require.True(t, answered.Load())
	require.Equal(t, []string{"a:0", "a:1"}, p.sinks[service].has())
	require.NoError(t, p.stop())
}

// Of a frame with other borders, from a restored store, only the part above the position is
// delivered.
func TestAFrameThatOverlapsIsTakenInPart(t *testing.T) {
	p, s := only(t, logOf(10))
	changes, names := many(0, 3)
	p.publish(changes[:2]...)
	p.delivered()
	p.decide(changes[2])
	p.log.append(p.encode(change.Frame{From: at(1), To: at(3), Prev: at(1), Revision: 1}, changes[1:]...))
	p.delivered()
	require.Equal(t, names, s.has())
}

// blind is a store that does not say whose the rows are.
type blind struct{ recording }

func (blind) AllProgress(context.Context) ([]store.Progress, error) {
	return nil, errors.New("no answer")
}

// A process whose swap meets a foreign row has lost the partition.
func TestASwapThatFailsEndsTheOwner(t *testing.T) {
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: logOf(10)}, func(o *deliver.Options) { o.Store = blind{recording{w.store, w}} })
	p.publish(of(service, "a", 0))
	p.delivered()
	next := w.start(map[string]sinks.Traits{service: logOf(10)})
	p.publish(of(service, "a", 1))
	next.delivered()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(t, "it goes on")
	}
	require.ErrorIs(t, p.stop(), deliver.ErrLost)
}
