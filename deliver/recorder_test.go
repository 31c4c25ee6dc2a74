package deliver

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// A service that makes attempts faster than the store takes them loses its own: the share of
// another is free, each loss is counted, and a written group makes room.
func TestAttemptsWithoutRoomAreCounted(t *testing.T) {
	h := newRecorder(nil)
	fast, slow := prometheus.NewCounter(prometheus.CounterOpts{}), prometheus.NewCounter(prometheus.CounterOpts{})
	for range historyShare + 3 {
		h.add(unwritten{store.Attempt{Service: 1}, fast})
	}
	h.add(unwritten{store.Attempt{Service: 2}, slow})
	require.Len(t, h.hurried, 1)
	require.EqualValues(t, 3, value(t, fast))
	h.conclude(1, false)
	h.add(unwritten{store.Attempt{Service: 1}, fast})
	require.EqualValues(t, 3, value(t, fast))
	h.conclude(len(h.waits), true)
	require.EqualValues(t, 3+historyShare, value(t, fast))
	require.EqualValues(t, 1, value(t, slow))
}

func value(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.GetCounter().GetValue()
}
