package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
)

func TestLedgerConformance(t *testing.T) {
	storetest.RunLedger(t, func(t *testing.T) (store.Operator, store.Operator, func(string, string, time.Duration)) {
		a, url := migrated(t)
		return a, handle(t, url), func(tenant, key string, by time.Duration) {
			tag, err := a.pool.Exec(t.Context(), `UPDATE ledger SET made_at = made_at - $3::int8 * interval '1 microsecond' WHERE tenant = $1 AND key = $2`, tenant, key, by.Microseconds())
			require.NoError(t, err)
			require.EqualValues(t, 1, tag.RowsAffected())
		}
	})
}
