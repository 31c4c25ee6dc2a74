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

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, store.Store) {
		a, url := migrated(t)
		return a, handle(t, url)
	})
}

func TestOperatorConformance(t *testing.T) {
	storetest.RunOperator(t, func(t *testing.T) (store.Operator, store.Operator) {
		a, url := migrated(t)
		return a, handle(t, url)
	})
}
