package pipeline

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api/checkhttp"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

// I11: a store that is restored under a running process assigns a number
// again. Two customers' services never have the same one.
func TestNumbersOfCheckServicesAfterARestore(t *testing.T) {
	open := func() *sqlite.Store {
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.Migrate(t.Context()))
		return s
	}
	c := &config.Config{Checks: config.Checks{{Customer: "acme", Name: "crm"}, {Customer: "beta", Name: "erp"}}}
	services := newCheckServices(open(), func() *config.Config { return c })
	now := time.Now()
	services.now = func() time.Time { return now }

	acme, err := services.find(t.Context(), "acme/crm@check")
	require.NoError(t, err)
	again, err := services.find(t.Context(), "acme/crm@check")
	require.NoError(t, err)
	require.Equal(t, acme, again)

	// The backup is older than acme's first request, and beta asks first.
	services.store = open()
	now = now.Add(numbersAge)
	beta, err := services.find(t.Context(), "beta/erp@check")
	require.NoError(t, err)
	require.Equal(t, acme.Number, beta.Number, "the store gives the number again, so the test tests something")
	acme, err = services.find(t.Context(), "acme/crm@check")
	require.NoError(t, err)
	require.NotEqual(t, beta.Number, acme.Number)

	_, err = services.find(t.Context(), "acme/erp@check")
	require.ErrorIs(t, err, checkhttp.ErrNoService)
}
