package deliver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// another is the partition beside the world's.
const another = 1

// farther is a store in which another partition was decided, too.
type farther struct{ recording }

func (s farther) HistorySnapshot(ctx context.Context) (store.HistorySnapshot, error) {
	look, err := s.recording.HistorySnapshot(ctx)
	mark := look.Marks[0]
	mark.LastTo = at(9)
	look.Marks[another] = mark
	return look, err
}

// halfSilent is a log of which the broker of another partition says nothing.
type halfSilent struct {
	deliver.Log
	asked chan struct{} // capacity 1
}

func (l halfSilent) Offsets(ctx context.Context, partition int32) (start, end int64, err error) {
	if partition != another {
		return l.Log.Offsets(ctx, partition)
	}
	select {
	case l.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return 0, 0, ctx.Err()
}

// A partition whose log does not answer keeps no other from being repaired.
func TestAPartitionWhoseLogIsAwayHoldsUpNoRepair(t *testing.T) {
	w := newWorld(t, service)
	log := halfSilent{w.log, make(chan struct{}, 1)}
	p := w.start(map[string]sinks.Traits{service: state}, func(o *deliver.Options) { o.Store, o.Log = farther{recording{w.store, w}}, log })
	_, err := p.stage.Assigned(t.Context(), "changes", []int32{another})
	require.NoError(t, err)
	select {
	case <-log.asked:
	case <-time.After(patience):
		require.FailNow(t, "nobody looks")
	}
	p.decide(of(service, "a", 0)) // it never comes
	require.Eventually(t, func() bool { return len(p.order()) > 0 }, patience, time.Millisecond)
	require.Equal(t, []string{"redecide a"}, p.order())
	require.NoError(t, p.stop())
}
