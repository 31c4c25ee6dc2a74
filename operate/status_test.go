package operate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
)

func metrics(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	return families
}

// The worst is first, then the longest-lasting; open dead letters are problems, too.
func TestStatusHasTheWorstFirst(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	h := operate.HealthOf(operate.Observed{
		Configured: 5,
		Conditions: map[string]deliver.Condition{
			"c/p@late":   {State: deliver.StateRetrying, Since: now.Add(-10 * time.Minute), Error: "connection refused"},
			"c/p@early":  {State: deliver.StateRetrying, Since: now.Add(-time.Hour), Error: "connection refused"},
			"c/p@new":    {State: deliver.StateRetrying, Since: now.Add(-time.Second), Error: "timeout"},
			"c/p@well":   {State: deliver.StateRunning},
			"c/p@silent": {State: deliver.StateRunning},
		},
		Problems: []operate.Item{
			{What: "dead letters of c/p@late", Level: operate.LevelDegraded, Why: "2 open, refused", Do: "weir dlq list"},
			{What: "gate", Level: operate.LevelDegraded, Since: now.Add(-2 * time.Second), Why: "connection refused", Do: "bring it back"},
		},
	}, now)
	s := operate.StatusOf(h, metrics(t, `
# TYPE weir_delivery_queued gauge
weir_delivery_queued{service="c/p@early"} 7
weir_delivery_queued{service="c/p@late"} 5
weir_delivery_queued{service="c/p@new"} 1
weir_delivery_queued{service="c/p@silent"} 9
weir_delivery_queued{service="c/p@well"} 3
# TYPE weir_delivery_stalled_seconds gauge
weir_delivery_stalled_seconds{service="c/p@silent"} 90
weir_delivery_stalled_seconds{service="c/p@well"} 2
# TYPE weir_delivery_oldest_timestamp_seconds gauge
weir_delivery_oldest_timestamp_seconds{service="c/p@late"} 1769860200
weir_delivery_oldest_timestamp_seconds{service="c/p@well"} 1769860799
# TYPE weir_inbox_lag gauge
weir_inbox_lag{partition="0"} 20
weir_inbox_lag{partition="1"} 22
# TYPE weir_source_lag gauge
weir_source_lag{source="lab"} 0
weir_source_lag{source="registry"} 4
# TYPE weir_dead_letters gauge
weir_dead_letters{stage="deliver"} 2
weir_dead_letters{stage="ingest"} 0
`), now)
	require.Equal(t, operate.LevelDegraded, s.Level)
	require.Equal(t, 5, s.Services)
	require.Equal(t, map[string]int64{"deliver": 2}, s.Letters)
	type row struct {
		what   string
		level  operate.Level
		queued int64
	}
	var got []row
	oldest := map[string]time.Duration{}
	for _, i := range s.Items {
		got = append(got, row{i.What, i.Level, i.Queued})
		if !i.Oldest.IsZero() {
			oldest[i.What] = now.Sub(i.Oldest)
		}
		require.NotEmpty(t, i.Why, i.What)
		require.Equal(t, i.Level != operate.LevelOK, i.Do != "", "%s: a problem has a remedy", i.What)
	}
	require.Equal(t, []row{
		{"c/p@early", operate.LevelDown, 7},
		{"c/p@late", operate.LevelDown, 5},
		{"c/p@silent", operate.LevelDegraded, 9},
		{"gate", operate.LevelDegraded, 0},
		{"c/p@new", operate.LevelDegraded, 1},
		{"dead letters of c/p@late", operate.LevelDegraded, 0},
		{"inbox", operate.LevelOK, 42},
		{"source registry", operate.LevelOK, 4},
		{"c/p@well", operate.LevelOK, 3},
	}, got)
	require.Equal(t, "6 problems", s.Verdict())
	require.Equal(t, map[string]time.Duration{"c/p@late": 10 * time.Minute, "c/p@well": time.Second}, oldest)
}

// Queues that move need no attention.
func TestStatusOfAProcessThatWorks(t *testing.T) {
	text := "# TYPE weir_delivery_queued gauge\nweir_delivery_queued{service=\"c/p@a\"} 3\n"
	s := operate.StatusOf(operate.HealthOf(operate.Observed{}, time.Now()), metrics(t, text), time.Now())
	require.Equal(t, operate.LevelOK, s.Level)
	require.Equal(t, "all is well", s.Verdict())
	require.Equal(t, "changes are being delivered", s.Items[0].Why)

	text += "# TYPE weir_delivery_stalled_seconds gauge\nweir_delivery_stalled_seconds{service=\"c/p@a\"} 11\n"
	s = operate.StatusOf(operate.HealthOf(operate.Observed{}, time.Now()), metrics(t, text), time.Now())
	require.Equal(t, "all is well", s.Verdict(), "a write may take long")
	require.Equal(t, "nothing was delivered for 11s", s.Items[0].Why)

	text = strings.Replace(text, "} 11", "} 600", 1)
	paced := operate.Observed{Conditions: map[string]deliver.Condition{"c/p@a": {State: deliver.StatePaced, Paced: 3}}}
	s = operate.StatusOf(operate.HealthOf(paced, time.Now()), metrics(t, text), time.Now())
	require.Equal(t, "all is well", s.Verdict())
	require.Equal(t, "paced: changes wait on purpose", s.Items[0].Why)
}

// While the server that knows is unreachable, no queue is said to move.
func TestStatusDoesNotGuessTheProgressOfQueues(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	text := `
# TYPE weir_delivery_queued gauge
weir_delivery_queued{service="c/p@a"} 2
# TYPE weir_inbox_lag gauge
weir_inbox_lag{partition="0"} 20
`
	kafka := operate.Item{What: "kafka", Level: operate.LevelDegraded, Since: now, Why: "connection refused", Do: "bring the brokers back"}
	for name, o := range map[string]operate.Observed{
		"the process does not do its work: connection refused":      {Reason: "store", Blocked: errors.New("connection refused"), Since: now.Add(-time.Minute)},
		"the process does not do its work: no space left on device": {Reason: "disk", Blocked: errors.New("no space left on device"), Since: now.Add(-time.Minute)},
		"1 problem": {Problems: []operate.Item{kafka}},
	} {
		s := operate.StatusOf(operate.HealthOf(o, now), metrics(t, text), now)
		require.NotEqual(t, operate.LevelOK, s.Level)
		require.Equal(t, name, s.Verdict())
		require.Equal(t, o.Since.IsZero(), s.Since.IsZero(), "down has a since")
		queues := s.Items[len(s.Items)-2:]
		require.Equal(t, []string{"inbox", "c/p@a"}, []string{queues[0].What, queues[1].What})
		for _, i := range queues {
			require.Equal(t, operate.LevelUnknown, i.Level)
			require.Regexp(t, "progress is unknown.*(connection refused|no space left)", i.Why)
		}
	}
}
