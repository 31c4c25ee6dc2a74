package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The backlog is seen while reading is held up, and is gone when all is read.
func TestBacklog(t *testing.T) {
	a := newApp(t)
	r := a.read()
	r.drained()
	waits, err := r.source.Backlog(t.Context())
	require.NoError(t, err)
	require.Zero(t, waits)
	a.write("A", "B", "C")
	held := r.next() // nobody says that it is durable: the transaction stays open
	first, err := r.source.Backlog(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, first.Rows)
	require.Eventually(t, func() bool {
		waits, err := r.source.Backlog(t.Context())
		return err == nil && waits.Rows == 3 && waits.Oldest > first.Oldest
	}, patience, time.Millisecond)
	held.Ack()
	require.Eventually(t, func() bool {
		waits, err := r.source.Backlog(t.Context())
		return err == nil && waits.Rows == 0 && waits.Oldest == 0
	}, patience, time.Millisecond)
}

// Counting a long backlog ends early.
func TestBacklogIsCountedUpToABound(t *testing.T) {
	a := newApp(t)
	a.exec(fmt.Sprintf("INSERT INTO outbox (entity, payload) SELECT 'E' || n, '1' FROM generate_series(1, %d) n", 3*10_000))
	r := a.read()
	r.next()
	waits, err := r.source.Backlog(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10_001, waits.Rows)
}
