package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handle opens one more handle on url and closes it after the test. It waits for
// locks as long as a busy machine takes.
func handle(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{URL: url, MaxConns: 20})
	require.NoError(t, err)
	s.checkPatience = "1min"
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// migrated opens a handle on fresh tables.
func migrated(t testing.TB) (*Store, string) {
	t.Helper()
	url := servers.Postgres(t)
	s := handle(t, url)
	require.NoError(t, s.Migrate(t.Context()))
	return s, url
}

// behind waits until somebody waits for a session, and returns that one.
func behind(t *testing.T, s *Store, pid int32) (waiting int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := s.pool.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)) LIMIT 1`, pid).Scan(&waiting)
		return err == nil
	}, testPatience, testPoll)
	return waiting
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, store.Store) {
		a, url := migrated(t)
		return a, handle(t, url)
	})
}

func TestOperatorConformance(t *testing.T) {
	storetest.RunOperator(t, func(t *testing.T) (storetest.Operated, storetest.Operated) {
		a, url := migrated(t)
		return a, handle(t, url)
	})
}
