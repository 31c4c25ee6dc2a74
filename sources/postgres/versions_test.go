package postgres

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// Newer versions of PostgreSQL do the same: some shapes as examples, generated columns,
// and a slot with a copy on standbys.
func TestVersions(t *testing.T) {
	for _, version := range []string{"17", "18"} {
		t.Run(version, func(t *testing.T) {
			server := servers.StartOwnPostgres(t, version).Address
			for _, c := range reshapings {
				switch c.name {
				case "left the publication and came back", "a staging table renamed into place, all tables", "partition detached concurrently", "filter widened", "type changed by USING",
					"expand and contract", "vacuum full, cluster, truncate":
					t.Run(c.name, func(t *testing.T) { c.run(t, server, false) })
				}
			}
			t.Run("slots", func(t *testing.T) { newerSlots(t, server, version) })
			t.Run("generated columns", func(t *testing.T) { generatedColumns(t, server, version) })
			t.Run("types of the docs", func(t *testing.T) { typesOfTheDocs(t, server) })
		})
	}
}

// A slot has a copy on standbys. One that the server invalidated is blamed on the setting that it names.
func newerSlots(t *testing.T, server, version string) {
	s := newShop(t, server, map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
	defer s.dropSlot()
	r := s.start()
	s.drain(r)
	require.NoError(t, r.reader.Source("public.orders").check(t.Context(), true), "no advice")
	r.stop()
	if version != "18" {
		return
	}
	s.exec("ALTER SYSTEM SET idle_replication_slot_timeout = '1s'")
	s.exec("SELECT pg_reload_conf()")
	s.await(func() bool {
		s.exec("CHECKPOINT")
		state, err := readSlot(t.Context(), s.conn, 180000, s.options.Slot)
		require.NoError(t, err)
		return state.lost != ""
	})
	s.exec("ALTER SYSTEM RESET idle_replication_slot_timeout")
	s.exec("SELECT pg_reload_conf()")
	r = s.start()
	s.await(func() bool {
		return strings.Contains(fmt.Sprint(r.sources[0].Failing()), "idle_replication_slot_timeout")
	})
	r.stop()
	_, err := s.options.Setup.Prepare(t.Context(), false, false, nil)
	require.ErrorContains(t, err, "it was unused for too long (idle_replication_slot_timeout)")
	s.exec("DELETE FROM orders")
	s.prepare(true)
	s.read()
	require.Empty(t, s.inbox.docs(t, "orders"))
}

// A table with generated columns and REPLICA IDENTITY FULL stays writable, and they are left out.
func generatedColumns(t *testing.T, server, version string) {
	s := newShop(t, server, map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, n int, d int GENERATED ALWAYS AS (n * 2) STORED, code text)", "ALTER TABLE orders REPLICA IDENTITY FULL",
		"INSERT INTO orders (id, n) SELECT i, i FROM generate_series(1, 3) i")
	defer s.dropSlot()
	wanted := func() map[string]string { return s.rows("(SELECT id, n, code FROM orders)", "id") }
	r := s.start()
	s.drain(r)
	require.Equal(t, wanted(), s.inbox.docs(t, "orders"))
	s.exec("UPDATE orders SET n = n + 1")
	s.exec("DELETE FROM orders WHERE id = 2")
	s.drain(r)
	require.Equal(t, wanted(), s.inbox.docs(t, "orders"))
	r.stop()
	if version != "18" {
		return
	}
	s.exec("ALTER PUBLICATION " + s.options.Publication + " SET (publish_generated_columns = none)")
	_, err := s.options.Setup.Prepare(t.Context(), true, false, nil)
	require.ErrorContains(t, err, "SET (publish_generated_columns = stored)")
	s.exec("ALTER PUBLICATION " + s.options.Publication + " SET (publish_generated_columns = stored)")
	s.exec("ALTER TABLE orders ADD COLUMN v int GENERATED ALWAYS AS (n * 3) VIRTUAL")
	_, err = s.options.Setup.Prepare(t.Context(), true, false, nil)
	require.ErrorContains(t, err, "virtual generated columns")
	s.exec("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
	s.exec("UPDATE orders SET n = n + 1")
	r = s.start()
	defer r.stop()
	s.inbox.wait(t, "the rows", func() bool { return maps.Equal(wanted(), s.inbox.docs(t, "orders")) })
	s.exec("UPDATE orders SET n = n + 1")
	s.drain(r)
	require.Equal(t, wanted(), s.inbox.docs(t, "orders"))
	require.NotContains(t, strings.Join(s.inbox.refused, ""), "orders")
}
