package operate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
)

// The mistake that this catches: all is green while one service is paused, one is
// refused, and one rejects everything.
func TestHealthNamesTheWorstServiceFirst(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	conditions := map[string]deliver.Condition{
		"a/p@well":    {State: deliver.StateRunning},
		"b/p@refused": {State: deliver.StateRunning, Refused: 1, Since: ago(time.Minute), Error: "422 no such room"},
		"c/p@rejects": {State: deliver.StateRunning, Refused: 40, Since: ago(time.Minute), Error: "422 never"},
		"d/p@paused":  {State: deliver.StatePaused, Pause: &deliver.Pause{Cause: deliver.PausedByRefusal}, Since: ago(time.Hour), Error: "401 Unauthorized"},
		"e/p@blinks":  {State: deliver.StateRetrying, Since: ago(time.Second), Error: "connection refused"},
		"g/p@full":    {State: deliver.StateRunning, Parked: deliver.Parked{Entities: 1000, Oldest: ago(time.Hour), Error: "502 try later", Full: true}},
		"f/p@gone":    {State: deliver.StateRetrying, Since: ago(2 * time.Hour), Error: "connection refused"},
	}
	h := operate.HealthOf(operate.Observed{Conditions: conditions}, now)
	require.Equal(t, operate.LevelDegraded, h.Level, "the process itself works")
	require.Empty(t, h.Error)
	var order []string
	for _, s := range h.Services {
		require.NotEmpty(t, s.Do, s.Service)
		require.NotEmpty(t, s.Error, s.Service)
		require.False(t, s.Since.IsZero(), s.Service)
		order = append(order, string(s.Level)+" "+s.Service)
	}
	require.Equal(t, []string{"down f/p@gone", "down d/p@paused", "down g/p@full", "down c/p@rejects", "degraded b/p@refused", "degraded e/p@blinks"}, order)
	require.Contains(t, h.Services[3].Do, "weir dlq list --service c/p@rejects")

	h = operate.HealthOf(operate.Observed{Reason: "store", Blocked: errors.New("connection refused"), Since: ago(time.Minute), Conditions: conditions}, now)
	require.Equal(t, operate.LevelDown, h.Level)
	require.Equal(t, "connection refused", h.Error)
	require.Equal(t, ago(time.Minute), h.Since)
	require.Contains(t, h.Do, "the process resumes by itself")
	letters := []operate.Item{{What: "dead letters of acme", Level: operate.LevelDegraded}}
	h = operate.HealthOf(operate.Observed{Pending: letters}, now)
	require.Equal(t, operate.Health{Level: operate.LevelOK, Pending: letters}, h, "work for operators does not degrade the process")
	require.Equal(t, operate.LevelDegraded, operate.StatusOf(h, nil, now).Level, "the status has it")
	require.Equal(t, operate.Health{Level: operate.LevelOK}, operate.HealthOf(operate.Observed{Conditions: map[string]deliver.Condition{"a/p@well": {State: deliver.StateRunning}}}, now))
}
