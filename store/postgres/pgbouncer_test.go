package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		return pooled(t, through), pooled(t, through)
	}
	t.Run("stages", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (store.Store, store.Store) { return open(t) })
	})
	t.Run("operators", func(t *testing.T) {
		storetest.RunOperator(t, func(t *testing.T) (storetest.Operated, storetest.Operated) { return open(t) })
	})
}

func TestMigrateThroughPgBouncer(t *testing.T) {
	s := pooled(t, servers.PgBouncer(t, servers.Postgres(t)))
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.CheckSchema(t.Context()))
}

// A parameter that the pooler would drop is refused with the reason.
func TestParametersThatAPoolerDropsAreRefused(t *testing.T) {
	_, err := Open(t.Context(), Options{URL: "postgres://weir@127.0.0.1/weir?search_path=elsewhere", Pooled: true})
	require.ErrorContains(t, err, "search_path does not pass a pooler")
	require.Equal(t, store.Fatal, store.ClassOf(err))
}

// A pooler that the configuration does not name is found before anything is written: it
// refuses the start-up parameters, or drops them.
func TestAPoolerNamesItsKey(t *testing.T) {
	location := servers.Postgres(t)
	for _, ignored := range []string{"", "ignore_startup_parameters = enable_hashjoin, enable_mergejoin, enable_seqscan, enable_sort, jit, plan_cache_mode, idle_in_transaction_session_timeout, tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count, options"} {
		err := handle(t, servers.PgBouncer(t, location, ignored)).Ping(t.Context())
		require.ErrorContains(t, err, "store.postgres.pooled: true", ignored)
		require.Equal(t, store.Fatal, store.ClassOf(err))
	}
}

// pooled opens a handle behind a pooler.
func pooled(t testing.TB, url string) *Store {
	t.Helper()
	return opened(t, Options{URL: url, MaxConns: 20, Pooled: true})
}

// Every transaction has the settings that the plans and the promises need, on a session of
// its own and on any of a pooler's, with any defaults of server, role and database.
func TestSettingsHoldInEveryTransaction(t *testing.T) {
	_, location := migrated(t)
	for name, s := range map[string]*Store{"direct": handle(t, location), "through PgBouncer": pooled(t, servers.PgBouncer(t, location))} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{"synchronous_commit": "on", "idle_in_transaction_session_timeout": "1min"}
			for name, value := range planSettings {
				want[name] = value
			}
			for name, value := range want {
				var got, in string
				b := new(pgx.Batch)
				b.Queue(`SELECT current_setting($1)`, name).QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
				require.NoError(t, s.sendBatch(t.Context(), b))
				assert.Equal(t, value, got, name)
				require.NoError(t, s.inTx(t.Context(), "test", func(t pgx.Tx) error {
					return t.QueryRow(context.Background(), `SELECT current_setting($1)`, name).Scan(&in)
				}))
				assert.Equal(t, value, in, name)
			}
		})
	}
}
