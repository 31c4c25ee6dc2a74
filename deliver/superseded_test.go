package deliver

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// oneRevision is a store that accepts progress of its revision only.
type oneRevision struct {
	Store
	revision int64
}

func (o *oneRevision) SwapProgress(_ context.Context, revision int64, swaps []store.ProgressSwap) ([]bool, error) {
	if revision != o.revision {
		return nil, store.ErrSuperseded
	}
	done := make([]bool, len(swaps))
	for i := range done {
		done[i] = true
	}
	return done, nil
}

func (o *oneRevision) AllProgress(context.Context) ([]store.Progress, error) { return nil, nil }

// Progress that the store refuses during a reload is saved as soon as the stage has the new
// revision: workers wait for it.
func TestProgressIsSavedAtOnceUnderTheNewRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		superseded := make(chan struct{}, 10)
		s := New(Options{
			Store: &oneRevision{revision: 2}, Revision: 1, Superseded: func() { superseded <- struct{}{} },
			Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Limit: t.Context(),
			Services: []Service{{Name: "one", Number: 1, Sink: traitsOnly{}}},
		})
		s.step(func() { s.newPartition(&store.Progress{Partition: 0}) })
		saved := make(chan struct{})
		go func() {
			s.saver.saveAll(t.Context(), t.Context())
			close(saved)
		}()
		<-superseded
		synctest.Wait()
		start := time.Now()
		require.NoError(t, s.Reconfigure(t.Context(), Reconfiguration{Revision: 2}))
		<-saved
		require.Equal(t, start, time.Now(), "without a pause")
		require.Empty(t, superseded, "once")
	})
}
