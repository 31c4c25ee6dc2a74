package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// A reader without write permission sees the stored data, beside a process and without one, and
// leaves nothing behind.
func TestReadOnly(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a # b?.db")
	look := func() *sqlite.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ReadOnly: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	_, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ReadOnly: true})
	require.Error(t, err)
	require.NoFileExists(t, path)

	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.AddAudits(t.Context(), []store.Audit{{Actor: "a", Action: "one"}}))
	beside := look()
	actions := func(s *sqlite.Store) (all []string) {
		rows, err := s.Audits(t.Context(), store.AuditFilter{Limit: 10})
		require.NoError(t, err)
		for _, r := range rows {
			all = append(all, r.Action)
		}
		return all
	}
	require.Equal(t, []string{"one"}, actions(beside), "what the log holds")
	require.NoError(t, s.AddAudits(t.Context(), []store.Audit{{Actor: "a", Action: "two"}}))
	require.Equal(t, []string{"one", "two"}, actions(beside), "what was committed since")
	require.NoError(t, beside.CheckSchema(t.Context()))
	require.NoError(t, beside.Close())
	require.NoError(t, s.Close())

	before, err := os.ReadDir(folder)
	require.NoError(t, err)
	alone := look()
	require.Equal(t, []string{"one", "two"}, actions(alone))
	require.ErrorContains(t, alone.AddAudits(t.Context(), []store.Audit{{Actor: "a", Action: "three"}}), "readonly")
	after, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, after, len(before))
}
