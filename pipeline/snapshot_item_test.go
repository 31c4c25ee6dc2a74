package pipeline

import (
	"testing"

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
	item, running := snapshotItem("orders", snapshotting{read: 12_000, rows: 40_000})
	require.True(t, running)
	require.Equal(t, operate.Item{
		What: "source orders", Level: operate.LevelOK, Queued: 28_000, Why: "reading the rows of its table: 12,000 of about 40,000 (30 %)",
	}, item)
	item, _ = snapshotItem("orders", snapshotting{})
	require.Contains(t, item.Why, "0 of about 0 (0 %)")
	_, running = snapshotItem("orders", nil)
	require.False(t, running, "not open yet")
}
