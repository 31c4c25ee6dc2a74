package operate_test

import (
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

// The store has the paused services for all processes, with actor and reason, and the
// audit has every step.
func TestPausesAreStored(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	names := func() (all []string) {
		found, err := operate.Paused(t.Context(), s)
		require.NoError(t, err)
		for name := range found {
			all = append(all, name)
		}
		return all
	}
	require.Empty(t, names())
	require.NoError(t, operate.PauseService(t.Context(), s, "acme/a@x", "ann@here", "they move"))
	require.NoError(t, operate.PauseService(t.Context(), s, "acme/b@x", "ann@here", ""))
	require.NoError(t, operate.PauseService(t.Context(), s, "acme/a@x", "bob@here", "again"))
	require.ElementsMatch(t, []string{"acme/a@x", "acme/b@x"}, names())
	found, err := operate.Paused(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, "ann@here", found["acme/a@x"].Actor, "the first stays")
	require.Equal(t, "they move", found["acme/a@x"].Reason)
	require.False(t, found["acme/a@x"].Since.IsZero())
	require.NoError(t, operate.ResumeService(t.Context(), s, "acme/a@x", "bob@here", "moved"))
	require.NoError(t, operate.ResumeService(t.Context(), s, "acme/none@x", "bob@here", ""))
	require.Equal(t, []string{"acme/b@x"}, names())
	audits, err := s.Audits(t.Context(), store.AuditFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, audits, 5)
	require.Equal(t, "pause", audits[0].Action)
	require.Equal(t, "acme/a@x", audits[0].Service)
	require.Equal(t, "resume", audits[3].Action)
	require.Equal(t, "moved", audits[3].Reason)
}
