package deliver

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// A caller during a read gets the next one: the read may have begun before the frame was read.
func TestASnapshotBeginsAfterItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, release := int64(0), make(chan struct{})
		l := snapshotCache{sem: make(chan struct{}, 1), read: func(context.Context) (store.HistorySnapshot, error) {
			begun++
			read := store.HistorySnapshot{Active: begun}
			<-release
			return read, nil
		}}
		got := make([]int64, 3)
		var callers sync.WaitGroup
		for i := range got {
			callers.Go(func() {
				if read, err := l.latest(t.Context()); err == nil {
					got[i] = read.Active
				}
			})
			synctest.Wait()
		}
		release <- struct{}{}
		release <- struct{}{}
		callers.Wait()
		require.Equal(t, []int64{1, 2, 2}, got)
	})
}

// A read ends with its caller: Run may be over.
func TestASnapshotEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		l := snapshotCache{sem: make(chan struct{}, 1), read: func(ctx context.Context) (store.HistorySnapshot, error) {
			defer func() { ended = true }()
			<-ctx.Done()
			return store.HistorySnapshot{}, context.Cause(ctx)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := l.latest(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.True(t, ended)
	})
}

// taken is a store whose rows were read before a partition is taken over, and are
// answered after that.
type taken struct {
	Store
	meanwhile func()
}

func (s taken) TakeProgress(_ context.Context, partitions []int32, token store.Token) (rows []store.Progress, err error) {
	for _, p := range partitions {
		rows = append(rows, store.Progress{Partition: p, Token: token})
	}
	return rows, nil
}

func (s taken) AllProgress(context.Context) ([]store.Progress, error) {
	s.meanwhile()
	return []store.Progress{{Partition: 0, Token: store.Token{1}}}, nil
}

// A partition that is assigned during the read of the rows is not compared with them.
func TestAPartitionThatComesWhileTokensAreReadIsKept(t *testing.T) {
	var s *Stage
	s = New(Options{
		Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
		InboxEnd: func(context.Context, int32) (change.Version, error) { return 0, nil },
		Store: taken{meanwhile: func() {
			_, err := s.Assigned(t.Context(), "changes", []int32{0})
			require.NoError(t, err)
		}},
	})
	t.Cleanup(func() {
		s.stop()
		s.running.Wait()
	})
	require.NoError(t, s.saver.checkTokens(t.Context()))
	require.False(t, s.parts[0].Revoked())
}
