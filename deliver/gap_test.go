package deliver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// A frame that was committed and not handed over, as after a commit of unknown outcome, is read from the
// store: with the next frame, or once the stage is told where the log ends.
func TestAFrameThatWasNotHandedOver(t *testing.T) {
	p, s := only(t, logOf(10))
	p.publish(of(service, "a", 0))
	p.delivered()
	p.decide(of(service, "b", 1))
	p.publish(of(service, "c", 2))
	p.delivered()
	f := p.decide(of(service, "d", 3))
	p.stage.Ends(0, f.To)
	p.delivered()
	require.Equal(t, []string{"a:0", "b:1", "c:2", "d:3"}, s.has())
	require.Empty(t, p.order())
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
				return p.position(service) >= p.prev
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
	p.handOver(p.decideFrom(1, changes[1:]...))
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
