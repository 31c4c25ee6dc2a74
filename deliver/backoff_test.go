package deliver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The wait after a failure doubles, as the configuration's documentation says.
func TestWaitsDouble(t *testing.T) {
	w := &target{retry: Retry{MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second}}
	b := w.backoff()
	b.RandomizationFactor = 0
	var waits []time.Duration
	for range 6 {
		waits = append(waits, b.NextBackOff())
	}
	ms := time.Millisecond
	require.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms}, waits)
}
