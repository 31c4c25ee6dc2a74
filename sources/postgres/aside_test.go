package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stuckShop is a shop with two tables whose rows are read. The inbox takes no event of an id 1.
func stuckShop(t *testing.T, server string) (*shop, *running) {
	s := newShop(t, server, map[string][]string{"public.orders": {"id"}, "public.items": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 4) n",
		"CREATE TABLE items (id int PRIMARY KEY, v int)", "INSERT INTO items SELECT n, 0 FROM generate_series(2, 4) n")
	r := s.start()
	s.drain(r)
	s.inbox.stick("1")
	t.Cleanup(s.dropSlot)
	return s, r
}

// others waits until everything but the order 1 is as in the database.
func (s *shop) others() {
	s.t.Helper()
	s.inbox.wait(s.t, "the changes beside the stuck partition", func() bool {
		for _, table := range []string{"orders", "items"} {
			want, got := s.rows(table, "id"), s.inbox.docs(s.t, table)
			delete(want, "1")
			delete(got, "1")
			if fmt.Sprint(want) != fmt.Sprint(got) {
				return false
			}
		}
		return true
	})
}

// confirmed is the position that the slot confirmed.
func (s *shop) confirmed() (at int64) {
	s.t.Helper()
	require.NoError(s.t, s.conn.QueryRow(s.t.Context(), "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = $1", s.options.Slot).Scan(&at))
	return at
}

func (s *shop) equal(tables ...string) {
	s.t.Helper()
	for _, table := range tables {
		require.Equal(s.t, s.rows(table, "id"), s.inbox.docs(s.t, table))
	}
}

// A partition of the inbox that takes nothing holds up its own events alone. The slot and the mark stay
// before the oldest of them, so a kill loses none, and their order stays, also after a refusal.
func TestAStuckPartitionOfTheInbox(t *testing.T) {
	server := ownServer(t)
	for _, then := range []string{"it takes them", "it refuses them", "a kill"} {
		t.Run("changes, and then "+then, func(t *testing.T) { changesBesideAStuckPartition(t, server, then) })
	}
	t.Run("a truncate", func(t *testing.T) { truncateBesideAStuckPartition(t, server) })
	t.Run("rows", func(t *testing.T) { rowsBesideAStuckPartition(t, server) })
	t.Run("deletions", func(t *testing.T) { deletionsBesideAStuckPartition(t, server) })
}

func changesBesideAStuckPartition(t *testing.T, server, then string) {
	s, r := stuckShop(t, server)
	before := s.confirmed()
	for v := 1; v <= 3; v++ {
		s.exec(fmt.Sprintf("BEGIN; UPDATE orders SET v = %[1]d; UPDATE items SET v = %[1]d; INSERT INTO items VALUES (10 + %[1]d, 0); COMMIT", v))
		s.others()
	}
	s.exec("UPDATE orders SET v = 4 WHERE id = 1")
	s.exec("DELETE FROM items WHERE id = 11")
	s.others()
	require.NoError(t, r.sources[0].Failing())
	drained, err := r.sources[0].Drained(t.Context())
	require.NoError(t, err)
	require.False(t, drained)
	at := s.confirmed()
	require.JSONEq(t, `{"id":1,"v":0}`, s.inbox.docs(t, "orders")["1"])
	if then == "a kill" {
		r.stop()
		s.inbox.release(false)
		require.Equal(t, at, s.confirmed())
		r = s.start()
	} else {
		s.inbox.release(then == "it takes them")
	}
	s.drain(r)
	s.equal("orders", "items")
	require.Greater(t, s.confirmed(), at)
	require.GreaterOrEqual(t, at, before)
	var order []string
	for _, a := range s.inbox.applied {
		if doc, of := strings.CutPrefix(a, "orders 1 "); of {
			order = append(order, doc)
		}
	}
	var want []string
	for v := range 5 {
		want = append(want, fmt.Sprintf(`{"id":1,"v":%d}`, v))
	}
	require.Equal(t, want, order)
	r.stop()
}

// A TRUNCATE waits for earlier events of the stuck partition, whose entities it deletes.
func truncateBesideAStuckPartition(t *testing.T, server string) {
	s, r := stuckShop(t, server)
	s.inbox.stick("1", "9")
	s.exec("INSERT INTO orders VALUES (9, 9)")
	s.exec("BEGIN; TRUNCATE orders; INSERT INTO orders VALUES (2, 5); COMMIT")
	s.inbox.wait(t, "the insertion", func() bool { return s.inbox.waiting() == 1 })
	require.Len(t, s.inbox.docs(t, "orders"), 4)
	s.inbox.release(true)
	s.drain(r)
	s.equal("orders", "items")
	r.stop()
}

// again has the rows of orders read again in another session, in small frames, after statements that
// it does not see.
func (s *shop) again(r *running, statements ...string) *running {
	s.t.Helper()
	r.stop()
	s.exec("ALTER PUBLICATION " + s.options.Publication + " DROP TABLE orders")
	for _, sql := range statements {
		s.exec(sql)
	}
	s.exec("ALTER PUBLICATION " + s.options.Publication + " ADD TABLE orders")
	s.options.FrameRecords = 50
	return s.start()
}

// The rows of a table wait for its stuck events, and the changes of other tables pass. Rows that
// are set aside are read again.
func rowsBesideAStuckPartition(t *testing.T, server string) {
	s, r := stuckShop(t, server)
	r = s.again(r, "INSERT INTO orders SELECT n, 0 FROM generate_series(5, 300) n", "UPDATE orders SET v = 5")
	s.inbox.wait(t, "the first rows", func() bool { return s.inbox.waiting() > 0 })
	s.exec("UPDATE items SET v = 5")
	s.exec("UPDATE orders SET v = 6 WHERE id IN (1, 200)")
	s.exec("DELETE FROM orders WHERE id = 2")
	s.inbox.wait(t, "the changes of the other table", func() bool {
		return fmt.Sprint(s.rows("items", "id")) == fmt.Sprint(s.inbox.docs(t, "items"))
	})
	require.Less(t, len(s.inbox.docs(t, "orders")), 299)
	r.stop() // a kill
	s.inbox.release(false)
	r = s.start()
	s.drain(r)
	s.equal("orders", "items")
	r.stop()
}

// The rows of a table are read when the deletions of those that are gone are durable.
func deletionsBesideAStuckPartition(t *testing.T, server string) {
	s, r := stuckShop(t, server)
	r = s.again(r, "DELETE FROM orders WHERE id = 1")
	s.inbox.wait(t, "the deletion", func() bool { return s.inbox.waiting() > 0 })
	for v := range 3 { // between pieces
		s.exec("UPDATE items SET v = $1", v)
		s.others()
	}
	drained, err := r.sources[0].Drained(t.Context())
	require.NoError(t, err)
	require.False(t, drained)
	r.stop() // a kill
	s.inbox.release(false)
	r = s.start()
	s.drain(r)
	s.equal("orders", "items")
	r.stop()
}
