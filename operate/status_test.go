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

// The worst is first, and of these what has lasted longest.
func TestStatusHasTheWorstFirst(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	h := operate.HealthOf("", nil, map[string]deliver.Condition{
		"c/p@late":   {State: deliver.StateRetrying, Since: now.Add(-10 * time.Minute), Error: "connection refused"},
		"c/p@early":  {State: deliver.StateRetrying, Since: now.Add(-time.Hour), Error: "connection refused"},
		"c/p@new":    {State: deliver.StateRetrying, Since: now.Add(-time.Second), Error: "timeout"},
		"c/p@well":   {State: deliver.StateRunning},
		"c/p@silent": {State: deliver.StateRunning},
	}, now)
	s := operate.StatusOf(h, metrics(t, `
# TYPE weir_delivery_pending gauge
weir_delivery_pending{service="c/p@early"} 7
weir_delivery_pending{service="c/p@late"} 5
weir_delivery_pending{service="c/p@new"} 1
weir_delivery_pending{service="c/p@silent"} 9
weir_delivery_pending{service="c/p@well"} 3
# TYPE weir_delivery_stalled_seconds gauge
weir_delivery_stalled_seconds{service="c/p@silent"} 90
weir_delivery_stalled_seconds{service="c/p@well"} 2
# TYPE weir_inbox_lag gauge
weir_inbox_lag{partition="0"} 20
weir_inbox_lag{partition="1"} 22
# TYPE weir_source_lag gauge
weir_source_lag{source="lab"} 0
weir_source_lag{source="registry"} 4
# TYPE weir_dead_letters gauge
weir_dead_letters{stage="deliver"} 2
weir_dead_letters{stage="ingest"} 0
# TYPE weir_file_refused gauge
weir_file_refused{file="tokens"} 1
# TYPE weir_reload_refused gauge
weir_reload_refused 0
`), now)
	require.Equal(t, operate.LevelDegraded, s.Level)
	require.Equal(t, 5, s.Services)
	require.Equal(t, map[string]int64{"deliver": 2}, s.Letters)
	type row struct {
		what    string
		level   operate.Level
		waiting int64
	}
	var got []row
	for _, b := range s.Behind {
		got = append(got, row{b.What, b.Level, b.Waiting})
		require.NotEmpty(t, b.Why, b.What)
		require.Equal(t, b.Level != operate.LevelOK, b.Do != "", "%s: who can do something is told what", b.What)
	}
	require.Equal(t, []row{
		{"c/p@early", operate.LevelDown, 7},
		{"c/p@late", operate.LevelDown, 5},
		{"c/p@silent", operate.LevelDegraded, 9},
		{"c/p@new", operate.LevelDegraded, 1},
		{"tokens", operate.LevelDegraded, 0},
		{"inbox", operate.LevelOK, 42},
		{"source registry", operate.LevelOK, 4},
		{"c/p@well", operate.LevelOK, 3},
	}, got)
	require.Equal(t, "5 things are not well", s.Verdict())
}

// What waits a little, and goes on, needs nobody.
func TestStatusOfAProcessThatWorks(t *testing.T) {
	text := "# TYPE weir_delivery_pending gauge\nweir_delivery_pending{service=\"c/p@a\"} 3\n"
	s := operate.StatusOf(operate.HealthOf("", nil, nil, time.Now()), metrics(t, text), time.Now())
	require.Equal(t, operate.LevelOK, s.Level)
	require.Equal(t, "all is well", s.Verdict())
	s = operate.StatusOf(operate.HealthOf("store", errors.New("it does not answer"), nil, time.Now()), nil, time.Now())
	require.Equal(t, operate.LevelDown, s.Level)
	require.Equal(t, "the process does not do its work: it does not answer", s.Verdict())
	require.Contains(t, s.Do, "bring the store back")
}
