package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A moving backlog is as old as its oldest row at that time, though another row is the oldest at
// every check.
func TestWaitsOfABacklogThatMoves(t *testing.T) {
	var w waits
	at := time.Unix(1_000_000, 0)
	look := func(oldest, newest string, probeWaits bool) time.Duration {
		defer func() { at = at.Add(time.Minute) }()
		return w.seen(oldest, newest, probeWaits, at)
	}
	require.Zero(t, look("1", "100", false))
	require.Equal(t, time.Minute, look("10", "200", true))
	require.Equal(t, 2*time.Minute, look("90", "300", true))
	require.Zero(t, look("150", "400", false), "what was there at the first look is read: 400 is the next to wait for")
	require.Equal(t, time.Minute, look("150", "500", true))
	require.Equal(t, 2*time.Minute, look("150", "500", false), "one row stays, whatever else is read")
	require.Zero(t, look("", "", false))
}
