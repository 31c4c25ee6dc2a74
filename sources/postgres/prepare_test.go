package postgres

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// No table comes into the publication whose UPDATEs would fail then, neither by weir source prepare
// nor by a start. All such tables are named, and a start reads the others.
func TestTablesThatAPublicationWouldHarm(t *testing.T) {
	entities := map[string][]string{"public.good": {"id"}, "public.keyless": {"id"}, "public.deferred": {"id"}, "public.silent": {"id"}, "public.parent": {"id"}, "public.missing": {"id"}, "public.unnamed": {"name"}}
	s := newShop(t, ownServer(t), entities,
		"CREATE TABLE good (id int PRIMARY KEY)", "INSERT INTO good VALUES (1)", "CREATE TABLE keyless (id int)", "CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE)",
		"CREATE TABLE silent (id int PRIMARY KEY)", "ALTER TABLE silent REPLICA IDENTITY NOTHING", "CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child () INHERITS (parent)",
		"INSERT INTO keyless VALUES (1)", "INSERT INTO deferred VALUES (1)", "INSERT INTO silent VALUES (1)", "CREATE TABLE unnamed (id int PRIMARY KEY, name text)")
	for _, printOnly := range []bool{true, false} {
		statements, err := s.options.Setup.Prepare(t.Context(), printOnly, false, nil)
		require.Empty(t, statements)
		for _, text := range []string{"table public.keyless has no usable", "table public.deferred has no usable", "table public.silent has no usable", "inherit from table public.parent", "no table public.missing"} {
			require.ErrorContains(t, err, text)
		}
	}
	r := s.start()
	defer r.stop()
	s.drain(r)
	for _, sql := range []string{"UPDATE keyless SET id = 2", "UPDATE deferred SET id = 2", "UPDATE silent SET id = 2", "UPDATE good SET id = 2"} {
		s.exec(sql)
	}
	s.drain(r)
	require.Equal(t, s.rows("good", "id"), s.inbox.docs(t, "good"))
	for table := range entities {
		require.Equal(t, table != "public.good", r.reader.Source(table).Failing() != nil, table)
	}
	require.ErrorContains(t, r.reader.Source("public.unnamed").Failing(), "ALTER TABLE public.unnamed REPLICA IDENTITY FULL")
	s.exec("ALTER TABLE unnamed REPLICA IDENTITY FULL")
	s.exec("INSERT INTO unnamed VALUES (1, 'a')")
	s.inbox.wait(t, "the rows of a table without its fault", func() bool { return len(s.inbox.docs(t, "unnamed")) == 1 })
	s.drain(r)
	s.exec("UPDATE unnamed SET name = 'b'")
	s.drain(r)
	require.Equal(t, s.rows("unnamed", "name"), s.inbox.docs(t, "unnamed"))
}

// A table that is dropped, or that may not be read any more, costs itself, and a publication that
// leaves out operations is refused.
func TestFaultsOfOneTable(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}, "public.items": {"id"}, "public.hidden": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE items (id int PRIMARY KEY)", "CREATE TABLE hidden (id int PRIMARY KEY)",
		"INSERT INTO hidden SELECT generate_series(1, 3)", "CREATE ROLE reader LOGIN REPLICATION", "GRANT SELECT ON orders, items, hidden TO reader")
	log := s.watched()
	s.prepare(false)
	s.options.URL = strings.Replace(s.url, "postgres@", "reader@", 1)
	require.NotEqual(t, s.url, s.options.URL)
	r := s.start()
	s.drain(r)
	require.Len(t, s.inbox.docs(t, "hidden"), 3)
	s.exec("ALTER TABLE hidden ENABLE ROW LEVEL SECURITY")
	s.exec("DROP TABLE items")
	fails := func(table, text string) {
		t.Helper()
		s.await(func() bool {
			err := r.reader.Source(table).Failing()
			return err != nil && strings.Contains(err.Error(), text)
		})
	}
	fails("public.items", "no table")
	fails("public.hidden", "BYPASSRLS")
	s.exec("INSERT INTO orders VALUES (1)")
	s.inbox.wait(t, "the change of another table", func() bool { return len(s.inbox.docs(t, "orders")) == 1 })
	require.Len(t, s.inbox.docs(t, "hidden"), 3, "no sweep by what a policy shows")
	r.stop()
	r = s.start()
	s.drain(r)
	s.exec("ALTER TABLE hidden DISABLE ROW LEVEL SECURITY")
	s.exec("DELETE FROM hidden WHERE id = 2")
	s.inbox.wait(t, "its rows", func() bool { return len(s.inbox.docs(t, "hidden")) == 2 })
	s.exec("REVOKE SELECT ON hidden FROM reader")
	fails("public.hidden", "GRANT SELECT")
	s.exec("ALTER PUBLICATION " + s.options.Publication + " SET (publish = 'insert, update')")
	fails("public.orders", "leaves out delete, truncate")
	r.stop()
	require.NotEmpty(t, log.events("source.table_unreadable"))
	s.options.URL = s.url
	_, err := s.options.Setup.Prepare(t.Context(), true, false, nil)
	require.ErrorContains(t, err, "SET (publish = 'insert, update, delete, truncate')")
}

// Prepare says that a slot is of another database, and does not say that it is prepared. A publication by
// hand that sends partitions under their own names is told from one without the table.
func TestPrepareByHand(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, partedTable...)
	s.exec("CREATE PUBLICATION " + s.options.Publication + " FOR TABLE orders")
	_, err := s.options.Setup.Prepare(t.Context(), true, false, nil)
	require.ErrorContains(t, err, "SET (publish_via_partition_root = true)")
	s.exec("ALTER PUBLICATION " + s.options.Publication + " SET (publish_via_partition_root = true)")
	admin, err := pgx.Connect(t.Context(), strings.Replace(s.url, s.options.Slot, "postgres", 1))
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s.options.Slot)
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	_, err = s.options.Setup.Prepare(t.Context(), false, false, nil)
	require.ErrorContains(t, err, "is of the database postgres")
}

// A publication that was made again, behind changes that the slot still has, is told from one that is missing.
func TestASlotThatIsOlderThanThePublication(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
	s.read()
	s.exec("DROP PUBLICATION " + s.options.Publication)
	s.exec("DELETE FROM orders WHERE id = 1")
	s.exec("CREATE PUBLICATION " + s.options.Publication + " FOR TABLE orders WITH (publish_via_partition_root = true)")
	r := s.start()
	s.await(func() bool {
		err := r.sources[0].Failing()
		return err != nil && strings.Contains(err.Error(), "weir source prepare --again")
	})
	r.stop()
	_, err := s.options.Setup.Prepare(t.Context(), false, false, nil)
	require.ErrorContains(t, err, "is older than the publication")
	require.ErrorContains(t, r.reader.Source("public.orders").check(t.Context(), true), "is older than the publication")
	s.prepare(true)
	s.read()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
}

// A refusal by a pooler names the pooler.
func TestAPoolerInFront(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)")
	s.options.URL = servers.PgBouncer(t, s.url)
	_, err := NewReader(s.options, nil).connect(t.Context())
	require.ErrorContains(t, err, "a connection pooler is in front of the database")
}

// Managed services have roles whose members may replicate, without the attribute: a connection that
// replicates counts.
func TestARoleThatReplicatesByMembership(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)", "CREATE ROLE memberrr LOGIN", "GRANT SELECT ON orders TO memberrr")
	s.options.URL = strings.Replace(s.url, "postgres@", "memberrr@", 1)
	check := func() error {
		return NewReader(s.options, map[string]string{"public.orders": "orders"}).Source("public.orders").check(t.Context(), false)
	}
	require.ErrorContains(t, check(), `role "memberrr" may not replicate: ALTER ROLE "memberrr" REPLICATION`)
	s.options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &hooked{conn, func(p []byte) {
			if bytes.Contains(p, []byte("replication\x00database")) {
				copy(p[bytes.Index(p, []byte("memberrr")):], "postgres")
			}
		}}, err
	}
	require.NoError(t, check())
}
