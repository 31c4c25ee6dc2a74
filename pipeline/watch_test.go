package pipeline

import (
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// A month of keys is overdue from when all of its keys are over their time.
func TestOverdueMonthsOfKeys(t *testing.T) {
	const keep = 30 * 24 * time.Hour
	months := []store.LedgerMonth{
		{Month: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, {Month: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)},
	}
	over := time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC) // 30 days after the end of January
	require.Zero(t, overdue(nil, keep, over))
	require.Zero(t, overdue(months, keep, over.Add(-time.Hour)))
	require.Zero(t, overdue(months, keep, over))
	require.Equal(t, time.Hour, overdue(months, keep, over.Add(time.Hour)))
}
