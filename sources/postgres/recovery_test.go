package postgres

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// A recovery begins a timeline, as a promotion does: changes that were read before are stale,
// also when the server sends them again, and later ones are not.
func TestAnotherTimeline(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	s := newShop(t, server.Address, map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n")
	s.read()
	s.exec("DO $$ BEGIN FOR n IN 1..5 LOOP UPDATE orders SET v = n WHERE id = 3; END LOOP; END $$")
	// All of it becomes durable, and nothing is acknowledged.
	s.inbox.crashAt, s.inbox.frames = 1, 0
	r := s.start()
	s.inbox.wait(t, "the last change", func() bool { return s.inbox.docs(t, "orders")["3"] == `{"id":3,"v":5}` })
	r.stop()
	s.recovered(server)
	s.inbox.crashAt = 0
	applied := len(s.inbox.applied)
	r = s.start()
	s.drain(r)
	require.Len(t, s.inbox.applied, applied, "changes of the timeline before are stale")
	s.exec("UPDATE orders SET v = 9 WHERE id = 3; DELETE FROM orders WHERE id = 4")
	s.drain(r)
	r.stop()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	streams := map[string]bool{}
	for stream := range s.inbox.entities["orders 3"].at {
		streams[stream] = true
	}
	require.Len(t, streams, 2)
}

// recovered restarts the server with a recovery, which begins timeline 2.
func (s *shop) recovered(server *servers.Server) {
	s.t.Helper()
	s.exec("ALTER SYSTEM SET restore_command = 'false'")
	var folder string
	require.NoError(s.t, s.conn.QueryRow(s.t.Context(), "SHOW data_directory").Scan(&folder))
	s.exec("COPY (SELECT '') TO " + literal(folder+"/recovery.signal"))
	server.Quit()
	server.Start()
	s.at(server.Address)
	require.Eventually(s.t, func() bool {
		var timeline int
		err := s.conn.QueryRow(s.t.Context(), "SELECT timeline_id FROM pg_control_checkpoint() WHERE NOT pg_is_in_recovery()").Scan(&timeline)
		return err == nil && timeline == 2
	}, patience, 10*time.Millisecond)
}

// The slot is of timeline 1, the rows are read on timeline 2: a change before them does not overwrite
// the row of a later one.
func TestRowsOfALaterTimelineThanTheSlot(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	s := newShop(t, server.Address, map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n")
	s.prepare(false)
	s.exec("UPDATE orders SET v = 1 WHERE id IN (3, 4)")
	s.exec("DELETE FROM orders WHERE id = 5")
	s.recovered(server)
	s.exec("UPDATE orders SET v = 2 WHERE id = 3")
	s.exec("INSERT INTO orders VALUES (5, 2)")
	s.read()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
}

// at moves the shop to another server with its database.
func (s *shop) at(server string) {
	s.t.Helper()
	_ = s.conn.Close(s.t.Context())
	u, err := url.Parse(server)
	require.NoError(s.t, err)
	u.Path = "/" + s.options.Slot
	s.url = u.String()
	s.options.URL = s.url
	s.conn, err = pgx.Connect(s.t.Context(), s.url)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = s.conn.Close(context.Background()) })
}

// promoted makes a shop of a primary with a standby, which has the first changes, and promotes the
// standby after the primary died with the last ones.
func promoted(t *testing.T, last func(s *shop)) *shop {
	primary := servers.StartOwn(t, "postgres")
	s := newShop(t, primary.Address, map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n")
	s.read()
	standby := servers.StartStandby(t, primary)
	s.exec("UPDATE orders SET v = 1 WHERE id = 3")
	var position string
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&position))
	replica, err := pgx.Connect(t.Context(), standby.Address)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var there bool
		err := replica.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position).Scan(&there)
		return err == nil && there
	}, patience, 10*time.Millisecond)
	_, err = readServer(t.Context(), replica)
	require.ErrorContains(t, err, "the server is a standby")
	require.NoError(t, replica.Close(t.Context()))
	standby.Stop()
	last(s)
	s.read()
	_ = s.conn.Close(t.Context())
	primary.Kill()
	standby.Start()
	s.at(standby.Address)
	s.exec("SELECT pg_promote()")
	return s
}

// A promoted standby without a copy of the slot says so. After weir source prepare the rows are read
// again: those that the primary committed and the standby never had are undone, and so are rows that
// were read in the primary's last state alone.
func TestPromotedStandby(t *testing.T) {
	s := promoted(t, func(s *shop) {
		s.exec("UPDATE orders SET v = 9 WHERE id = 4; DELETE FROM orders WHERE id = 5; INSERT INTO orders VALUES (11, 9)")
	})
	r := s.start()
	var fault *SetupError
	require.Eventually(t, func() bool { return errors.As(r.sources[0].Failing(), &fault) }, patience, 10*time.Millisecond)
	require.ErrorContains(t, fault, "a standby that was promoted")
	r.stop()
	require.Contains(t, s.inbox.docs(t, "orders"), "11")
	s.prepare(false)
	r = s.start()
	s.drain(r)
	s.exec("UPDATE orders SET v = 2 WHERE id = 4")
	s.drain(r)
	r.stop()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.NotContains(t, s.inbox.docs(t, "orders"), "11")
}

// A database that was restored from a copy of its files has its system identifier, its timeline and
// its slot, and may have grown beyond the position that was read. Its log lacks the last transaction
// that was read, so all rows are read again.
func TestRestoredCopy(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	s := newShop(t, server.Address, map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n")
	s.read()
	var folder string
	require.NoError(t, s.conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&folder))
	server.Stop()
	copied := filepath.Join(filepath.Dir(folder), "copy")
	require.NoError(t, exec.Command("cp", "-a", folder, copied).Run())
	server.Start()
	s.at(server.Address)
	s.exec("UPDATE orders SET v = 9 WHERE id IN (3, 4)")
	s.read()
	server.Stop()
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.Rename(copied, folder))
	server.Start()
	s.at(server.Address)
	s.exec("UPDATE orders SET v = 5 WHERE id = 4")
	s.exec("SELECT pg_switch_wal()")
	s.exec("UPDATE orders SET v = 6 WHERE id = 5")
	r := s.start()
	defer r.stop()
	s.inbox.wait(t, "the restored row", func() bool { return s.inbox.docs(t, "orders")["3"] == `{"id":3,"v":0}` })
	s.drain(r)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
}

// After a restart the last transaction with events comes again. A keepalive behind it says that the
// log of the server lacks it.
func TestStreamWithoutTheLastTransaction(t *testing.T) {
	expects := decoder{expected: commit{LSN: 70}}
	require.NoError(t, expects.passed(70))
	require.ErrorIs(t, expects.passed(71), errDiverged)
	require.NoError(t, new(decoder).passed(71), "none is expected")
}

// A slot that keeps more than it may is dropped, and the rows are read again after it was made
// again.
func TestSlotsAreGivenUpAboveTheLimit(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n")
	s.options.Retain = 1 << 20
	s.inbox.crashAt = 1
	r := s.start()
	<-s.inbox.crashed
	_, _, running := r.sources[0].Snapshot()
	require.True(t, running, "its rows are not acknowledged")
	s.exec("UPDATE orders SET v = 1 WHERE id = 3")
	s.exec("CREATE TABLE more AS SELECT repeat('x', 100) FROM generate_series(1, 50000)")
	var fault *SetupError
	require.Eventually(t, func() bool { return errors.As(r.sources[0].Failing(), &fault) }, patience, 10*time.Millisecond)
	require.ErrorContains(t, fault, "gave replication slot")
	require.ErrorContains(t, fault, "weir source prepare")
	r.stop()
	s.inbox.crashAt = 0
	statements, err := s.options.Setup.Prepare(t.Context(), true, false, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"SELECT pg_create_logical_replication_slot('" + s.options.Slot + "', 'pgoutput')"}, statements)
	s.prepare(false)
	s.read()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
}
