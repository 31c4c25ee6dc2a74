package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A key may be a large value itself, may change while a large value does not, and rows may exchange
// theirs within a statement. Rows come into a filter with their large values.
func TestKeysAndLargeValues(t *testing.T) {
	large := "repeat('%s', 1500)" // an index takes it if it is compressed
	server := ownServer(t)
	for _, c := range []struct {
		name   string
		entity []string
		setup  []string
		script []string
		rows   string // those that are wanted, by default all
	}{
		{name: "key changes, large value stays", entity: []string{"id"}, setup: []string{"CREATE TABLE orders (id int PRIMARY KEY, n int, body text)",
			"ALTER TABLE orders ALTER body SET STORAGE EXTERNAL", "INSERT INTO orders SELECT i, 0, i || repeat('b', 5000) FROM generate_series(1, 3) i"},
			script: []string{"UPDATE orders SET id = 11 WHERE id = 1", "UPDATE orders SET n = 1 WHERE id = 11",
				"BEGIN; UPDATE orders SET id = 12 WHERE id = 2; UPDATE orders SET n = 2 WHERE id = 12; UPDATE orders SET id = 13 WHERE id = 12; COMMIT",
				"BEGIN; UPDATE orders SET id = 30 WHERE id = 3; UPDATE orders SET n = 2 WHERE id = 30; DELETE FROM orders WHERE id = 30; COMMIT"}},
		{name: "large composite key", entity: []string{"a", "b"}, setup: []string{"CREATE TABLE orders (a text, b int, n int, PRIMARY KEY (a, b))",
			"ALTER TABLE orders ALTER a SET STORAGE EXTERNAL", "INSERT INTO orders SELECT " + strings.ReplaceAll(large, "%s", "k") + ", i, 0 FROM generate_series(1, 3) i",
			"INSERT INTO orders VALUES (" + strings.ReplaceAll(large, "%s", "l") + ", 1, 0)"},
			script: []string{"UPDATE orders SET n = 1", "UPDATE orders SET b = 7 WHERE b = 2", "DELETE FROM orders WHERE b = 3"}},
		{name: "deferrable positions are shifted", entity: []string{"pos"}, setup: []string{"CREATE TABLE orders (pos int UNIQUE DEFERRABLE, name text)",
			"ALTER TABLE orders REPLICA IDENTITY FULL", "INSERT INTO orders SELECT i, 'r' || i FROM generate_series(1, 4) i"},
			script: []string{"UPDATE orders SET pos = pos + 1", "BEGIN; UPDATE orders SET pos = pos + 1; UPDATE orders SET name = name || '!' WHERE pos > 4; DELETE FROM orders WHERE pos = 3; COMMIT",
				"BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE orders SET pos = 5 WHERE pos = 4; DELETE FROM orders WHERE name = 'r3!' OR name = 'r2'; INSERT INTO orders VALUES (9, 'n'); UPDATE orders SET pos = 10 WHERE pos = 9; COMMIT"}},
		{name: "rows enter and leave a filter", entity: []string{"id"}, rows: "(SELECT * FROM orders WHERE n > 0)", setup: []string{"CREATE TABLE orders (id int, n int, body text, PRIMARY KEY (id, n))",
			"ALTER TABLE orders ALTER body SET STORAGE EXTERNAL", "INSERT INTO orders SELECT i, i - 2, i || repeat('b', 5000) FROM generate_series(1, 4) i",
			"CREATE PUBLICATION {p} FOR TABLE orders WHERE (n > 0)"},
			script: []string{"UPDATE orders SET n = 5 WHERE id = 1", "UPDATE orders SET n = 0 WHERE id = 4", "UPDATE orders SET n = 6 WHERE id = 4", "UPDATE orders SET n = 7 WHERE id = 4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShop(t, server, map[string][]string{"public.orders": c.entity})
			defer s.dropSlot()
			for _, sql := range c.setup {
				s.exec(strings.ReplaceAll(sql, "{p}", s.options.Publication))
			}
			log := s.watched()
			r := s.start()
			s.drain(r)
			key := "concat_ws('/', " + strings.Join(c.entity, ", ") + ")"
			table := c.rows
			if table == "" {
				table = "orders"
			}
			for _, sql := range c.script {
				s.exec(sql)
				s.drain(r)
				require.Equal(t, s.rows(table, key), s.inbox.docs(t, "orders"), sql)
			}
			r.stop()
			for _, sql := range []string{"UPDATE orders SET {c} = {c}", "DELETE FROM orders WHERE {c} IS NULL"} {
				s.exec(strings.ReplaceAll(sql, "{c}", c.entity[0]))
			}
			s.read()
			require.Equal(t, s.rows(table, key), s.inbox.docs(t, "orders"))
			require.Empty(t, s.inbox.refused)
			require.Empty(t, log.events("source.gap"))
		})
	}
}

// All changes of one transaction of a stopped session are read when its rows are other ones by then.
func TestKeysThatChangedWhileStopped(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY, n int, body text)",
		"ALTER TABLE orders ALTER body SET STORAGE EXTERNAL", "INSERT INTO orders SELECT i, 0, i || repeat('b', 5000) FROM generate_series(1, 3) i")
	s.read()
	for _, sql := range []string{"UPDATE orders SET id = 11 WHERE id = 1", "UPDATE orders SET n = 1 WHERE id = 11", "DELETE FROM orders WHERE id = 11",
		"UPDATE orders SET id = 12 WHERE id = 2", "UPDATE orders SET n = 1 WHERE id = 12", "UPDATE orders SET body = 'short' WHERE id = 12"} {
		s.exec(sql)
	}
	s.read()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.Empty(t, s.inbox.refused)
}

// The log has a commit while it waits for a standby, and other sessions do not see its rows yet: a large
// value that is read from the row must not seem gone.
func TestATransactionThatWaitsForAStandby(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY, n int, body text)",
		"ALTER TABLE orders ALTER body SET STORAGE EXTERNAL", "INSERT INTO orders SELECT i, 0, i || repeat('b', 5000) FROM generate_series(1, 9) i")
	defer s.dropSlot()
	admin, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.Background()) }()
	set := func(settings ...string) {
		for _, sql := range append(settings, "SELECT pg_reload_conf()") {
			_, err := admin.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
	}
	seen := func(of string) (is bool) {
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "+of+")").Scan(&is))
		return is
	}
	r := s.start()
	defer func() { r.stop() }()
	s.drain(r)
	set("ALTER SYSTEM SET synchronous_commit = local", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	committed, waits := make(chan error, 1), false
	for id := 1; !waits; id++ { // until the server has the setting
		require.Less(t, id, 10)
		go func() {
			_, err := s.conn.Exec(t.Context(), fmt.Sprintf("BEGIN; SET LOCAL synchronous_commit = on; UPDATE orders SET id = %d WHERE id = %d; UPDATE orders SET n = 2 WHERE id = %[1]d; COMMIT", id+100, id))
			committed <- err
		}()
		require.Eventually(t, func() bool { waits = seen("wait_event = 'SyncRep'"); return waits || len(committed) > 0 }, patience, time.Millisecond)
		if !waits {
			require.NoError(t, <-committed)
		}
	}
	rows := len(s.inbox.docs(t, "orders"))
	require.Eventually(t, func() bool {
		return seen("query LIKE '%txid_visible_in_snapshot%'") || len(s.inbox.docs(t, "orders")) < rows
	}, patience, time.Millisecond)
	set("ALTER SYSTEM RESET synchronous_standby_names")
	require.NoError(t, <-committed)
	s.drain(r)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
}
