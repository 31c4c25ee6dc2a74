package sqlite

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
)

func TestLedgerConformance(t *testing.T) {
	storetest.RunLedger(t, func(t *testing.T) (store.Operator, store.Operator, func(string, string, time.Duration)) {
		a, path := migrated(t)
		return a, open(t, path), func(tenant, key string, by time.Duration) {
			result, err := a.writer.ExecContext(t.Context(), monthOf(a.now()).sql(`UPDATE $ledger SET made_at = made_at - ? WHERE tenant = ? AND key = ?`), by.Microseconds(), tenant, key)
			require.NoError(t, err)
			n, err := result.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		}
	})
}
