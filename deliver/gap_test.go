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

// What is missing before a frame may be committed and not published yet: then it is
// taken from the outbox, and nothing is asked for.
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

// decideInParts decides changes at one position, and returns the frames that it is cut into.
func (w *world) decideInParts(changes ...change.Change) (first, last change.Frame) {
	first = change.Frame{From: at(w.next), Prev: w.prev, Revision: 1}
	w.decide(changes...)
	first.To = w.prev
	last = first
	last.Part, last.Last = 1, true
	return first, last
}

// A frame of an owner of before may stand in the middle of a position that was cut:
// the owner of today publishes the rest of it, and that frame again. Nothing is gone.
func TestAFrameInsideAPositionThatWasCut(t *testing.T) {
	for name, rest := range map[string]func(w *world, parts []transport.Received, next transport.Received){
		"all of it is in the outbox": func(w *world, parts []transport.Received, next transport.Received) {
			w.owe(append(parts, next)...)
			w.log.append(next)
		},
		"the rest of it is in the outbox": func(w *world, parts []transport.Received, next transport.Received) {
			w.owe(parts[1], next)
			w.log.append(parts[0])
			w.log.append(next)
		},
		"the rest of it stands behind": func(w *world, parts []transport.Received, next transport.Received) {
			for _, r := range []transport.Received{parts[0], next, parts[1], next} {
				w.log.append(r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const other = "one/b@file"
			w := newWorld(t, service, other)
			changes := []change.Change{of(service, "a", 0), of(other, "a", 0)}
			first, last := w.decideInParts(changes...)
			parts := []transport.Received{w.encodePart(first, changes[0]), w.encodePart(last, changes[1])}
			rest(w, parts, w.decide(of(service, "b", 1), of(other, "b", 1)))
			p := w.start(map[string]sinks.Traits{service: logOf(10), other: logOf(10)})
			p.delivered(service, other)
			require.Empty(t, p.order())
			for _, s := range p.sinks {
				require.Equal(t, []string{"a:0", "b:1"}, s.has())
			}
		})
	}
}

// putBack is a store whose second look is at one that was put back.
type putBack struct {
	recording
	looks *atomic.Int32
}

func (s putBack) HistorySnapshot(ctx context.Context) (store.HistorySnapshot, error) {
	look, err := s.recording.HistorySnapshot(ctx)
	if s.looks.Add(1) == 2 {
		look.Marks = nil
	}
	return look, err
}

// Decisions that the store does not know any more are not lost: they are made again. What a
// restored store shows is compared once more before anything is reported.
func TestWhatIsMissingInAStoreThatWasPutBack(t *testing.T) {
	w := newWorld(t, service)
	w.publish(of(service, "a", 0))
	w.publish(of(service, "b", 1))
	w.log.cut(1)
	var looks atomic.Int32
	p := w.start(map[string]sinks.Traits{service: state}, func(o *deliver.Options) { o.Store = putBack{recording{w.store, w}, &looks} })
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

// A save whose answer is lost is looked for in the store: what is there was this
// process's, and it goes on.
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

// A frame with other borders, of a store that was put back and decided again, is
// taken from the position on.
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

// Whoever cannot save what it did, since the row is another's, has lost the partition.
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

// What is in one part of a position that was cut is written once, whoever published
// the part again, and whether the service has to go back meanwhile.
func TestAPartThatComesAgainIsWrittenOnce(t *testing.T) {
	w := newWorld(t, service)
	a := of(service, "a", 0)
	first, last := w.decideInParts(a)
	part := w.encodePart(first, a)
	w.log.append(part)
	p := w.start(map[string]sinks.Traits{service: logOf(10)})
	require.Eventually(t, func() bool { return p.position(service).Version == first.To }, patience, time.Millisecond, "it waits for parts without changes for it")
	w.log.append(part)
	w.log.append(w.encodePart(last))
	p.publish(of(service, "b", 1))
	p.delivered()
	require.NoError(t, p.stop())
	next := w.start(map[string]sinks.Traits{service: logOf(10)})
	next.publish(of(service, "c", 2))
	next.delivered()
	require.Equal(t, []string{"a:0", "b:1"}, p.sinks[service].has())
	require.Equal(t, []string{"c:2"}, next.sinks[service].has())
}
