package pipeline

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/stretchr/testify/require"
)

type snapshotting struct {
	sources.Source
	read, rows int64
}

func (s snapshotting) Snapshot() (read, rows int64, running bool) { return s.read, s.rows, true }

func TestSnapshotProgress(t *testing.T) {
	item, running := sourceItem("orders", snapshotting{read: 12_000, rows: 40_000})
	require.True(t, running)
	require.Equal(t, operate.Item{
		What: "source orders", Level: operate.LevelOK, Queued: 28_000, Why: "reading the rows of its table: 12,000 of about 40,000 (30 %)",
	}, item)
	item, _ = sourceItem("orders", snapshotting{})
	require.Contains(t, item.Why, "0 of about 0 (0 %)")
	_, running = sourceItem("orders", nil)
	require.False(t, running, "not open yet")
}

type standby struct{ sources.Source }

func (standby) ReadBy() string { return "another process reads it" }

func (standby) Drained(context.Context) (bool, error) { return false, nil }

// A process whose source another one reads says so, in status and while it waits for the end.
func TestASourceThatAnotherProcessReads(t *testing.T) {
	item, shown := sourceItem("orders", standby{})
	require.True(t, shown)
	require.Equal(t, operate.Item{What: "source orders", Level: operate.LevelOK, Why: "another process reads it"}, item)
	w, waiting := (&source{Source: standby{}, name: "orders", stage: ingest.New(ingest.Options{Logger: slog.New(slog.DiscardHandler), Metrics: ingest.NewMetrics(prometheus.NewRegistry())})}).waits(t.Context())
	require.True(t, waiting)
	require.Equal(t, "another process reads it", w.Because)
}
