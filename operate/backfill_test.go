package operate_test

import (
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

// After a reload with another configuration a backfill is due until it was requested for all entities.
func TestABackfillIsDueUntilItIsDone(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir() + "/state.db"})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Migrate(t.Context()))
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	due := func() *operate.Item {
		i, err := operate.BackfillItem(t.Context(), s)
		require.NoError(t, err)
		return i
	}
	note := func(fingerprint string, at time.Time) {
		require.NoError(t, operate.NoteConfiguration(t.Context(), s, []byte(fingerprint), at))
	}
	note("a", now)
	require.Nil(t, due(), "the first configuration")
	note("b", now)
	note("c", now.Add(time.Hour))
	require.Equal(t, now, due().Since, "since the first change")
	require.NoError(t, operate.BackfillDone(t.Context(), s, []byte("b")))
	require.NotNil(t, due(), "a backfill to an earlier configuration")
	require.NoError(t, operate.BackfillDone(t.Context(), s, []byte("c")))
	require.Nil(t, due())
	note("c", now.Add(2*time.Hour))
	require.Nil(t, due())
}
