package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The rows come first, then the changes, each once and in the order of their transactions.
func TestRowsThenChanges(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}, "public.items": {"order_id", "line"}},
		"CREATE TABLE orders (id int PRIMARY KEY, state text, note text)",
		"CREATE TABLE items (order_id int, line int, name text, PRIMARY KEY (order_id, line))",
		"INSERT INTO orders SELECT n, 'new', repeat('x', 10) FROM generate_series(1, 5000) n",
		"INSERT INTO items SELECT n, 1, 'apple' FROM generate_series(1, 100) n")
	r := s.start()
	s.drain(r)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.Len(t, s.inbox.docs(t, "items"), 100)
	require.JSONEq(t, `{"order_id":7,"line":1,"name":"apple"}`, s.inbox.docs(t, "items")["7/1"])
	require.Len(t, s.inbox.applied, 5100)

	s.exec("BEGIN; UPDATE orders SET state = 'paid' WHERE id = 7; UPDATE orders SET state = 'sent' WHERE id = 7; DELETE FROM orders WHERE id = 8; COMMIT")
	s.exec("UPDATE orders SET id = 10009 WHERE id = 9")
	s.drain(r)
	s.exec("UPDATE items SET line = 2 WHERE order_id = 7")
	s.drain(r)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.Equal(t, []string{
		`orders 7 {"id":7,"note":"xxxxxxxxxx","state":"paid"}`,
		`orders 7 {"id":7,"note":"xxxxxxxxxx","state":"sent"}`,
		`orders 8 deleted`,
		`orders 9 deleted`,
		`orders 10009 {"id":10009,"note":"xxxxxxxxxx","state":"new"}`,
		`items 7/1 deleted`,
		`items 7/2 {"line":2,"name":"apple","order_id":7}`,
	}, s.inbox.applied[5100:])

	r.stop()
	s.exec("INSERT INTO orders VALUES (20000, 'while nothing runs')")
	applied := len(s.inbox.applied)
	s.read()
	require.Equal(t, []string{`orders 20000 {"id":20000,"note":null,"state":"while nothing runs"}`}, s.inbox.applied[applied:])
}

// A large transaction is streamed before its end. A subtransaction that rolls back has no
// effect, and neither has a whole transaction that does.
func TestStreamedTransactions(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY, state text, note text)")
	s.exec("ALTER SYSTEM SET logical_decoding_work_mem = '64kB'")
	s.exec("SELECT pg_reload_conf()")
	r := s.start()
	defer r.stop()
	s.drain(r)
	other, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { _ = other.Close(context.Background()) }()
	for _, sql := range []string{
		"BEGIN", "INSERT INTO orders SELECT n, 'a', repeat('x', 500) FROM generate_series(1, 3000) n",
		"SAVEPOINT s", "UPDATE orders SET state = 'undone'", "ROLLBACK TO s",
		"ALTER TABLE orders ADD COLUMN more int DEFAULT 5", "UPDATE orders SET state = 'kept'",
	} {
		_, err := other.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	_, err = other.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	s.exec("BEGIN; INSERT INTO orders SELECT n, 'gone', repeat('x', 500) FROM generate_series(5001, 8000) n; ROLLBACK")
	s.drain(r)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.Len(t, s.inbox.applied, 6000)
	require.NotContains(t, strings.Join(s.inbox.applied, " "), "undone")
}

// Large values that an update leaves alone, renamed and dropped columns, another type, generated
// columns, TRUNCATE and partitions.
func TestChangesOfTables(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}, "public.parts": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, state text, note text, double int GENERATED ALWAYS AS (id * 2) STORED)",
		"ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
		"CREATE TABLE parts (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
		"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100)",
		"CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200)",
		"INSERT INTO parts VALUES (1, 'a'), (150, 'b')",
		"INSERT INTO orders VALUES (1, 'new', repeat('y', 100000))")
	r := s.start()
	defer r.stop()
	s.drain(r)
	long := strings.Repeat("y", 100000)
	is := func(id, want string) {
		t.Helper()
		s.drain(r)
		require.JSONEq(t, want, s.inbox.docs(t, "orders")[id])
	}
	is("1", `{"id":1,"state":"new","note":"`+long+`"}`)
	s.exec("UPDATE orders SET state = 'paid'")
	is("1", `{"id":1,"state":"paid","note":"`+long+`"}`)
	s.exec("ALTER TABLE orders RENAME state TO status; UPDATE orders SET status = 'sent'")
	is("1", `{"id":1,"status":"sent","note":"`+long+`"}`)
	s.exec("ALTER TABLE orders ADD COLUMN weight numeric; ALTER TABLE orders ALTER status TYPE jsonb USING to_jsonb(status); UPDATE orders SET weight = 1.50")
	is("1", `{"id":1,"status":"sent","note":"`+long+`","weight":1.50}`)
	s.exec("ALTER TABLE orders DROP COLUMN note; UPDATE orders SET weight = 2")
	is("1", `{"id":1,"status":"sent","weight":2}`)
	s.exec("UPDATE parts SET id = 101 WHERE id = 1; UPDATE parts SET name = 'c' WHERE id = 150")
	s.drain(r)
	require.Equal(t, s.rows("parts", "id"), s.inbox.docs(t, "parts"))
	require.Empty(t, s.inbox.refused)
}

// A TRUNCATE is the deletion of every stored entity of its tables, in bounded frames, in its place
// among the changes, also after kills amid it and with rows inserted again in its transaction.
func TestTruncate(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}, "public.items": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "CREATE TABLE items (id int PRIMARY KEY, v int)",
		"INSERT INTO orders SELECT n, 0 FROM generate_series(1, 100) n", "INSERT INTO items VALUES (1, 0)")
	s.options.FrameRecords = 10
	s.read()
	s.exec("BEGIN; INSERT INTO orders VALUES (101, 0); TRUNCATE orders; INSERT INTO orders SELECT n, 1 FROM generate_series(50, 60) n; COMMIT; UPDATE orders SET v = 2 WHERE id = 50")
	s.inbox.applied = nil
	for _, frame := range []int{1, 2, 3, 4, 5, 2, 3} {
		s.inbox.mu.Lock()
		s.inbox.crashAt, s.inbox.crashed, s.inbox.frames = frame, make(chan struct{}), 0
		crashed := s.inbox.crashed
		s.inbox.mu.Unlock()
		r := s.start()
		<-crashed
		r.stop()
	}
	s.inbox.crashAt = 0
	r := s.start()
	defer r.stop()
	s.drain(r)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.Len(t, s.inbox.applied, 1+101+11+1, "each effect once")
	require.Len(t, s.inbox.docs(t, "items"), 1)
	s.exec("TRUNCATE items, orders")
	s.drain(r)
	require.Empty(t, s.inbox.docs(t, "orders"))
	require.Empty(t, s.inbox.docs(t, "items"))
}

// A process that dies at any frame, of the rows or of the changes, is continued by the next:
// in the end the documents are the rows, and each version of a row had its effect once.
func TestKilledAtAnyFrame(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}, "public.items": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "CREATE TABLE items (id int PRIMARY KEY, v int)",
		"INSERT INTO orders SELECT n, 0 FROM generate_series(1, 60000) n", "INSERT INTO items SELECT n, 0 FROM generate_series(1, 1000) n",
		"ANALYZE")
	s.options.FrameRecords = 500
	change := func(n int) {
		s.exec("BEGIN")
		for _, table := range []string{"orders", "items"} {
			s.exec(fmt.Sprintf("UPDATE %s SET v = v + 1 WHERE id %% 997 = %d", table, n%997))
			s.exec(fmt.Sprintf("DELETE FROM %s WHERE id = %d", table, n))
			s.exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, 0)", table, 1_000_000+n))
			s.exec(fmt.Sprintf("UPDATE %s SET id = -id WHERE id = %d", table, n+500))
		}
		s.exec("COMMIT")
	}
	for n := range 30 {
		s.inbox.mu.Lock()
		s.inbox.crashAt, s.inbox.crashed, s.inbox.frames = 1+rand.IntN(12), make(chan struct{}), 0
		crashed := s.inbox.crashed
		s.inbox.mu.Unlock()
		r := s.start()
		change(3 * n)
		select {
		case <-crashed:
		case <-t.Context().Done():
		}
		change(3*n + 1)
		r.stop()
		change(3*n + 2)
	}
	s.inbox.crashAt = 0
	s.read()
	for _, table := range []string{"orders", "items"} {
		require.Equal(t, s.rows(table, "id"), s.inbox.docs(t, table))
	}
	seen := map[string]int{}
	for _, effect := range s.inbox.applied {
		if !strings.HasSuffix(effect, " deleted") {
			seen[effect]++
			require.Equal(t, 1, seen[effect], effect)
		}
	}
	require.Empty(t, s.inbox.refused)
}

// The states of a slot that end the reading are told apart, each with its cure, and the rows are
// read again after it.
func TestLostSlots(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n")
	run := func(then func(r *running)) {
		t.Helper()
		r := s.start()
		then(r)
		r.stop()
		require.Eventually(t, func() bool {
			var active bool
			err := s.conn.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_replication_slots WHERE active AND slot_name = $1", s.options.Slot).Scan(&active)
			return err == nil && !active
		}, patience, 10*time.Millisecond)
	}
	fails := func(text string) {
		t.Helper()
		run(func(r *running) {
			var fault *SetupError
			require.Eventually(t, func() bool { return errors.As(r.sources[0].Failing(), &fault) }, patience, 10*time.Millisecond)
			require.ErrorContains(t, fault, text)
			require.ErrorContains(t, fault, "weir source prepare")
		})
	}
	run(s.drain)
	s.exec("SELECT pg_drop_replication_slot('" + s.options.Slot + "')")
	s.exec("UPDATE orders SET v = 1 WHERE id = 3; DELETE FROM orders WHERE id = 7")
	fails("does not exist any more")
	s.prepare(false)
	run(s.drain)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"), "the changes without a slot came with the rows")
	require.Len(t, s.inbox.applied, 12)

	s.exec("SELECT pg_replication_slot_advance('" + s.options.Slot + "', pg_current_wal_lsn())")
	s.exec("UPDATE orders SET v = 2 WHERE id = 4")
	s.exec("SELECT pg_replication_slot_advance('" + s.options.Slot + "', pg_current_wal_lsn())")
	run(s.drain)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"), "something else read the slot")

	s.exec("ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'")
	s.exec("SELECT pg_reload_conf()")
	s.exec("UPDATE orders SET v = 3 WHERE id = 5")
	for range 6 {
		s.exec("SELECT pg_switch_wal()")
		s.exec("UPDATE orders SET v = v")
	}
	s.exec("CHECKPOINT")
	fails("was invalidated")
	s.exec("ALTER SYSTEM RESET max_slot_wal_keep_size")
	s.exec("SELECT pg_reload_conf()")
	s.prepare(true)
	run(s.drain)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
}
