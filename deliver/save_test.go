package deliver

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

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
			require.NoError(t, s.Assigned(t.Context(), []int32{0}))
		}},
	})
	t.Cleanup(func() {
		s.stop()
		s.running.Wait()
	})
	require.NoError(t, s.saver.checkTokens(t.Context()))
	require.False(t, s.parts[0].Revoked())
}
