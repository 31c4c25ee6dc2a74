package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// The whole contract holds through PgBouncer in transaction mode, where each
// transaction has another session: it refuses start-up parameters and knows no prepared
// statements.
func TestConformanceThroughPgBouncer(t *testing.T) {
	direct, location := migrated(t)
	through := servers.PgBouncer(t, location)
	open := func(t *testing.T) (a, b *Store) {
		_, err := direct.pool.Exec(t.Context(), emptied)
		require.NoError(t, err)
		return handle(t, through), handle(t, through)
	}
	t.Run("stages", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (store.Store, store.Store) { return open(t) })
	})
	t.Run("operators", func(t *testing.T) {
		storetest.RunOperator(t, func(t *testing.T) (storetest.Operated, storetest.Operated) { return open(t) })
	})
}

func TestMigrateThroughPgBouncer(t *testing.T) {
	s := handle(t, servers.PgBouncer(t, servers.Postgres(t)))
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.CheckSchema(t.Context()))
}

// A parameter that the pooler would drop is refused with the reason.
func TestParametersThatAPoolerDropsAreRefused(t *testing.T) {
	s := handle(t, servers.PgBouncer(t, servers.Postgres(t))+"&search_path=elsewhere")
	err := s.Ping(t.Context())
	require.ErrorIs(t, err, pgpool.ErrPooled)
	require.ErrorContains(t, err, "search_path")
	require.Equal(t, store.Fatal, store.ClassOf(err))
}

// Every transaction has the settings that the plans and the promises need, on a session of
// its own and on any of a pooler's, with any defaults of server, role and database.
func TestSettingsHoldInEveryTransaction(t *testing.T) {
	_, location := migrated(t)
	for name, url := range map[string]string{"direct": location, "through PgBouncer": servers.PgBouncer(t, location)} {
		t.Run(name, func(t *testing.T) {
			s := handle(t, url)
			want := map[string]string{"synchronous_commit": "on", "idle_in_transaction_session_timeout": "1min"}
			for name, value := range planSettings {
				want[name] = value
			}
			for name, value := range want {
				var got, in string
				require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got))
				assert.Equal(t, value, got, name)
				require.NoError(t, s.inTx(t.Context(), "test", func(t pgx.Tx) error {
					return t.QueryRow(context.Background(), `SELECT current_setting($1)`, name).Scan(&in)
				}))
				assert.Equal(t, value, in, name)
			}
		})
	}
}
