package operate_test

import (
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
)

// The status of a process has the problems of other live processes, once, beside its own.
func TestElsewhere(t *testing.T) {
	now := time.Now()
	file := operate.ServiceHealth{Service: "acme/p@file", Level: operate.LevelDegraded, State: deliver.StateRetrying, Error: "another process writes this file", Do: "stop the other one"}
	own := operate.ServiceHealth{Service: "acme/p@hook", Level: operate.LevelDown, State: deliver.StateRetrying, Error: "502"}
	paused := operate.ServiceHealth{Service: "acme/p@paused", Level: operate.LevelDegraded, State: deliver.StatePaused, Cause: deliver.PausedByOperator}
	report := func(name string, seen time.Time, services ...operate.ServiceHealth) operate.Process {
		return operate.Process{Name: name, Seen: seen, Health: operate.Health{Level: operate.LevelDegraded, Services: services}}
	}
	stopped := report("d:4", now, operate.ServiceHealth{Service: "acme/p@gone", Level: operate.LevelDown})
	stopped.Stopped = true
	blocked := report("e:5", now)
	blocked.Reason, blocked.Error, blocked.Do = "store", "connection refused", "start it"
	h := operate.Health{Level: operate.LevelOK, Services: []operate.ServiceHealth{own}}
	h.AddElsewhere([]operate.Process{
		report("a:1", now, operate.ServiceHealth{Service: "acme/p@mine", Level: operate.LevelDown}),
		report("b:2", now, own, file, paused), report("c:3", now, file),
		report("f:6", now.Add(-time.Hour), operate.ServiceHealth{Service: "acme/p@silent", Level: operate.LevelDown}), stopped, blocked,
	}, "a:1", now)
	require.Equal(t, []operate.Item{
		{What: "acme/p@file", Level: operate.LevelDegraded, Why: "in process b:2: another process writes this file", Do: "stop the other one"},
		{What: "process e:5", Level: operate.LevelDegraded, Why: "in process e:5: connection refused", Do: "start it"},
	}, h.Pending)
	require.Equal(t, operate.LevelDegraded, h.Level)
	s := operate.StatusOf(h, nil, now)
	require.Len(t, s.Items, 3)
	require.Equal(t, "3 problems", s.Verdict())
}
