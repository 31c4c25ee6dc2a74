package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The lag is seen while reading is held up, and is gone when all is read.
func TestLag(t *testing.T) {
	a := newApp(t)
	r := a.read()
	r.drained()
	lag, err := r.source.Lag(t.Context())
	require.NoError(t, err)
	require.Zero(t, lag)
	a.write("A", "B", "C")
	held := r.next() // nobody says that it is durable: the transaction stays open
	first, err := r.source.Lag(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, first.Rows)
	require.Eventually(t, func() bool {
		lag, err := r.source.Lag(t.Context())
		return err == nil && lag.Rows == 3 && lag.Oldest > first.Oldest
	}, patience, time.Millisecond)
	held.Ack()
	require.Eventually(t, func() bool {
		lag, err := r.source.Lag(t.Context())
		return err == nil && lag.Rows == 0 && lag.Oldest == 0
	}, patience, time.Millisecond)
}

// Counting a long backlog ends early.
func TestLagIsCountedUpToABound(t *testing.T) {
	a := newApp(t)
	a.exec(fmt.Sprintf("INSERT INTO outbox (entity, payload) SELECT 'E' || n, '1' FROM generate_series(1, %d) n", 3*10_000))
	r := a.read()
	r.next()
	lag, err := r.source.Lag(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10_001, lag.Rows)
}
