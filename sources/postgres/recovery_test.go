package postgres

import (
	"context"
	"errors"
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
	r := s.start()
	s.drain(r)
	r.stop()
	s.exec("DO $$ BEGIN FOR n IN 1..5 LOOP UPDATE orders SET v = n WHERE id = 3; END LOOP; END $$")
	// All of it becomes durable, and nothing is acknowledged.
	s.inbox.crashAt, s.inbox.frames = 1, 0
	r = s.start()
	s.inbox.wait(t, "the last change", func() bool { return s.inbox.docs(t, "orders")["3"] == `{"id":3,"v":5}` })
	r.stop()
	s.exec("ALTER SYSTEM SET restore_command = 'false'")
	var folder string
	require.NoError(t, s.conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&folder))
	s.exec("COPY (SELECT '') TO " + literal(folder+"/recovery.signal"))
	server.Quit()
	server.Start()
	var err error
	s.conn, err = pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { _ = s.conn.Close(context.Background()) }()
	require.Eventually(t, func() bool {
		var timeline int
		err := s.conn.QueryRow(t.Context(), "SELECT timeline_id FROM pg_control_checkpoint() WHERE NOT pg_is_in_recovery()").Scan(&timeline)
		return err == nil && timeline == 2
	}, patience, 10*time.Millisecond)
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

// A slot that keeps more than it may is dropped, and the rows are read again after it was made
// again.
func TestSlotsAreGivenUpAboveTheLimit(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n")
	s.options.Retain = 1 << 20
	s.inbox.crashAt = 1
	r := s.start()
	<-s.inbox.crashed
	s.exec("UPDATE orders SET v = 1 WHERE id = 3")
	s.exec("CREATE TABLE more AS SELECT repeat('x', 100) FROM generate_series(1, 50000)")
	var fault *SetupError
	require.Eventually(t, func() bool { return errors.As(r.sources[0].Failing(), &fault) }, patience, 10*time.Millisecond)
	require.ErrorContains(t, fault, "gave replication slot")
	require.ErrorContains(t, fault, "weir source prepare")
	r.stop()
	s.inbox.crashAt = 0
	statements, err := s.options.Setup.Prepare(t.Context(), true, false)
	require.NoError(t, err)
	require.Equal(t, []string{"SELECT pg_create_logical_replication_slot('" + s.options.Slot + "', 'pgoutput')"}, statements)
	_, err = s.options.Setup.Prepare(t.Context(), false, false)
	require.NoError(t, err)
	r = s.start()
	s.drain(r)
	r.stop()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
}
