package deliver

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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

// The mistake that this catches: a partition that came while the rows were read was
// compared with what they had been before, taken for another's, and the stage began anew.
func TestAPartitionThatComesWhileTokensAreReadIsKept(t *testing.T) {
	var s *Stage
	s = New(Options{
		Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
		Store: taken{meanwhile: func() {
			_, err := s.Assigned(t.Context(), "changes", []int32{0})
			require.NoError(t, err)
		}},
	})
	t.Cleanup(func() {
		s.stop()
		s.running.Wait()
	})
	s.checkTokens(t.Context())
	require.False(t, s.parts[0].gone)
}
