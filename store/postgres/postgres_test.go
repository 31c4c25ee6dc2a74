package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
	"github.com/seed-86dfc502/weir/store/storetest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handle opens one more handle on url and closes it after the test. It waits for
// locks as long as a busy machine takes.
func handle(t testing.TB, url string) *Store {
	t.Helper()
	return opened(t, Options{URL: url, MaxConns: 20})
}

func opened(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	require.NoError(t, err)
	s.lockTimeout = "1min"
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

// behind waits until a session is blocked by another, and returns the blocked one.
func behind(t *testing.T, s *Store, pid int32) (waiting int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := s.pool.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)) LIMIT 1`, pid).Scan(&waiting)
		return err == nil
	}, testPatience, testPoll)
	return waiting
}

// sharing makes the open of a conformance suite: its cases have the tables of url one after the other,
// since to make and drop tables takes far longer than most cases do.
func sharing(url string) func(t *testing.T) (a, b *Store) {
	return func(t *testing.T) (a, b *Store) {
		a = handle(t, url)
		_, err := a.pool.Exec(t.Context(), emptied)
		require.NoError(t, err)
		return a, handle(t, url)
	}
}

// emptied takes tables back to what Migrate leaves: without rows, with the months and days of the
// ledger gone, and numbered from one.
const emptied = `DO $$
DECLARE name regclass;
BEGIN
	FOR name IN SELECT c.oid FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' LOOP
		EXECUTE format('DROP TABLE %s', name);
	END LOOP;
	FOR name IN SELECT c.oid FROM pg_class c
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> '` + shared.VersionTable + `' LOOP
		EXECUTE format('DELETE FROM %s', name);
	END LOOP;
	FOR name IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'S'
		AND c.relname <> '` + shared.VersionTable + `_id_seq' LOOP
		PERFORM setval(name, 1, false);
	END LOOP;
END $$`

func TestConformance(t *testing.T) {
	_, url := migrated(t)
	open := sharing(url)
	storetest.Run(t, func(t *testing.T) (store.Store, store.Store) { return open(t) })
}

func TestDoubt(t *testing.T) {
	storetest.RunDoubt(t, func(t *testing.T) (store.Store, func()) {
		s, _ := migrated(t)
		return s, func() {
			_, err := s.pool.Exec(t.Context(), `WITH w AS (UPDATE watermarks SET session = session - interval '1 hour') UPDATE inboxes SET session = session - interval '1 hour'`)
			require.NoError(t, err)
		}
	})
}

func TestOperatorConformance(t *testing.T) {
	_, url := migrated(t)
	open := sharing(url)
	storetest.RunOperator(t, func(t *testing.T) (storetest.Operated, storetest.Operated) { return open(t) })
}

// The conformance suites rely on it.
func TestEmptiedIsMigrated(t *testing.T) {
	dump := func(s *Store) string {
		rows, err := s.pool.Query(t.Context(), `SELECT c.relname || ' ' || c.relkind::text || ' ' ||
			CASE WHEN c.relkind IN ('r', 'S') THEN query_to_xml('SELECT * FROM ' || c.oid::regclass, true, true, '')::text ELSE '' END
			FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind <> 't' ORDER BY 1`)
		require.NoError(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return strings.Join(got, "\n")
	}
	s, _ := ledger(t)
	fresh := dump(s)
	_, err := s.Activate(t.Context(), []byte("configuration"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	_, err = s.Services(t.Context(), []string{"acme/all@out"})
	require.NoError(t, err)
	_, err = s.BeginClaims(t.Context(), "acme", []store.ClaimRequest{{Key: "one"}}, 24*time.Hour)
	require.NoError(t, err)
	require.NotEqual(t, fresh, dump(s))
	_, err = s.pool.Exec(t.Context(), emptied)
	require.NoError(t, err)
	require.Equal(t, fresh, dump(s))
}
