package postgres

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The rows of an added table are read in pieces. Between them, changes of the others are read, and those of
// the table: of rows that were read, of rows that were not, and of rows that move between the two.
func TestRowsInPieces(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)",
		"CREATE TABLE large (id int PRIMARY KEY, n int, body text)", "ALTER TABLE large ALTER body SET STORAGE EXTERNAL",
		"INSERT INTO large SELECT i, 0, i || repeat('b', 3000) FROM generate_series(1, 2000) i")
	s.read()
	s.options.Entities = map[string][]string{"public.orders": {"id"}, "public.large": {"id"}}
	s.options.Setup.Tables = []string{"public.orders", "public.large"}
	s.prepare(false)
	s.options.FrameRecords, s.options.Readers, s.options.Piece = 10, 1, time.Nanosecond
	log := s.watched()
	frames := 0
	s.inbox.onFrame = func(source string, _ int) {
		if frames++; source != "large" || frames%12 != 0 {
			return
		}
		n := frames / 12
		for _, sql := range []string{
			fmt.Sprintf("INSERT INTO orders VALUES (%d)", n), "UPDATE large SET n = n + 1 WHERE id % 7 = 0", fmt.Sprintf("DELETE FROM large WHERE id %% 11 = %d", n%11),
			fmt.Sprintf("BEGIN; UPDATE large SET id = -id WHERE id = %d; UPDATE large SET n = 5 WHERE id = -%[1]d; COMMIT", 2000-n), fmt.Sprintf("UPDATE large SET id = id + 2000 WHERE id = %d", n),
		} {
			s.exec(sql)
		}
	}
	r := s.start()
	s.inbox.wait(t, "rows", func() bool { return len(s.inbox.docs(t, "orders")) > 3 })
	r.stop() // and from there on in another session
	r = s.start()
	s.drain(r)
	s.inbox.onFrame = nil
	s.drain(r)
	r.stop()
	require.Equal(t, s.rows("large", "id"), s.inbox.docs(t, "large"))
	require.Empty(t, s.inbox.refused)
	require.Empty(t, log.events("source.gap"))
	order := slices.IndexFunc(s.inbox.applied, func(effect string) bool { return strings.HasPrefix(effect, "orders 1 ") })
	rows := func(effect string) bool {
		return strings.HasPrefix(effect, "large ") && strings.HasSuffix(effect, `"n":0}`)
	}
	require.True(t, slices.ContainsFunc(s.inbox.applied[order:], rows), "the change of another table waits for all rows")
}

// before has the reader's connections do something once, before they send a statement.
func (s *shop) before(statement string, do func()) {
	var once sync.Once
	s.options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &hooked{conn, func(p []byte) {
			if bytes.Contains(p, []byte(statement)) {
				once.Do(do)
			}
		}}, err
	}
}

// hooked is a connection that passes each write to before, and then sends it.
type hooked struct {
	net.Conn
	before func([]byte)
}

func (h *hooked) Write(p []byte) (int, error) {
	h.before(p)
	return h.Conn.Write(p)
}

// A table that is rewritten between the snapshot and its lock is empty in that snapshot. It is not taken
// for empty, neither at first nor after a gap.
func TestRewrittenBeforeItsLock(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, ordersTable...)
	read := func(rewrite string) {
		t.Helper()
		rewritten := false
		s.before("LOCK TABLE", func() { rewritten = true; s.exec(rewrite) })
		s.read()
		require.True(t, rewritten)
		s.equals("", rewrite)
	}
	read("ALTER TABLE orders ALTER n TYPE bigint")
	s.dropSlot()
	s.prepare(false)
	read("ALTER TABLE orders ALTER n TYPE int")
	require.NotContains(t, strings.Join(s.inbox.applied, "\n"), "deleted")
}

// An interrupted reading resumes under the same key alone: behind a key of another order are other rows.
func TestTheKeyChangesWhileRowsAreRead(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY, code int NOT NULL)",
		"ALTER TABLE orders REPLICA IDENTITY FULL", "INSERT INTO orders SELECT i, 101 - i FROM generate_series(1, 100) i")
	s.options.FrameRecords, s.options.Readers, s.options.Piece = 5, 1, time.Nanosecond
	log := s.watched()
	s.inbox.crashAt = 4
	r := s.start()
	<-s.inbox.crashed
	r.stop()
	s.inbox.crashAt = 0
	s.exec("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (code)")
	s.read()
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.Contains(t, strings.Join(log.events("source.gap"), ""), "its primary key changed while its rows were read")
}

// A table whose rows cannot be read costs itself. An open transaction makes all rows wait, and is named;
// changes wait for neither.
func TestRowsThatCannotBeRead(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}, "public.broken": {"id"}, "public.waiting": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE broken (id int, n int, PRIMARY KEY (id, n))", "CREATE TABLE waiting (id int PRIMARY KEY)",
		"INSERT INTO orders VALUES (1)", "INSERT INTO broken VALUES (1, 1), (2, 0)", "INSERT INTO waiting VALUES (1)")
	s.exec("CREATE PUBLICATION " + s.options.Publication + " FOR TABLE orders, waiting, broken WHERE (10 / n > 0)")
	s.prepare(false)
	other, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { _ = other.Close(context.Background()) }()
	_, err = other.Exec(t.Context(), "BEGIN; SELECT FROM pg_advisory_xact_lock(1)")
	require.NoError(t, err)
	s.before("LOCK TABLE \"public\".\"waiting\"", func() {
		_, err := other.Exec(t.Context(), "LOCK TABLE waiting IN EXCLUSIVE MODE; LOCK TABLE waiting IN ACCESS EXCLUSIVE MODE")
		require.NoError(t, err)
	})
	r := s.start()
	defer r.stop()
	fault := func(table string) string { return fmt.Sprint(r.reader.Source("public." + table).Failing()) }
	s.await(func() bool { return strings.Contains(fault("broken"), "division by zero") })
	require.Contains(t, fault("broken"), "the rows of table public.broken cannot be read")
	s.await(func() bool { return fault("waiting") != "<nil>" && len(s.inbox.docs(t, "orders")) == 1 })
	s.exec("INSERT INTO orders VALUES (2)")
	s.inbox.wait(t, "a change of another table", func() bool { return len(s.inbox.docs(t, "orders")) == 2 })
	s.await(func() bool {
		return strings.Contains(fault("waiting"), fmt.Sprintf("the oldest is of pid %d, since 2", other.PgConn().PID()))
	})
	s.exec("INSERT INTO orders VALUES (3)")
	s.inbox.wait(t, "a change of another table", func() bool { return len(s.inbox.docs(t, "orders")) == 3 })
	require.Empty(t, s.inbox.docs(t, "waiting"))
	_, err = other.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	s.exec("TRUNCATE broken")
	s.exec("INSERT INTO broken VALUES (3, 3)")
	s.drain(r)
	for _, table := range []string{"orders", "broken", "waiting"} {
		require.Equal(t, s.rows(table, "id"), s.inbox.docs(t, table))
		require.Equal(t, "<nil>", fault(table))
	}
}

// A first start that waits for a transaction to make the slot names it, and so does weir source prepare.
func TestATransactionIsOpenBeforeTheSlot(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
	other, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { _ = other.Close(context.Background()) }()
	_, err = other.Exec(t.Context(), "BEGIN; CREATE TABLE open (id int)")
	require.NoError(t, err)
	name := fmt.Sprintf("the oldest is of pid %d, since 2", other.PgConn().PID())
	r := s.start()
	s.await(func() bool { return strings.Contains(fmt.Sprint(r.sources[0].Failing()), name) })
	r.stop()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.options.Setup.Prepare(ctx, false, false, func(why error) {
		require.ErrorContains(t, why, name)
		cancel()
	})
	require.Error(t, err)
	_, err = other.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	s.read()
	require.Len(t, s.inbox.docs(t, "orders"), 1)
}

// A row that is a dead letter is not the one before the next change, which has a large value from the row
// then: a row that never was is not sent.
func TestALargeValueBehindADeadLetter(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY, state text, note text)",
		"ALTER TABLE orders ALTER note SET STORAGE EXTERNAL", "INSERT INTO orders VALUES (1, 'new', repeat('a', 3000))")
	s.inbox.maxEvent, s.options.MaxEvents = 4096, map[string]int{"public.orders": 4096}
	r := s.start()
	defer r.stop()
	for _, sql := range []string{"UPDATE orders SET note = repeat('Z', 6000)", "UPDATE orders SET state = 'paid'", "UPDATE orders SET note = repeat('s', 3000)", "UPDATE orders SET state = 'sent'"} {
		s.drain(r)
		s.exec(sql)
	}
	s.drain(r)
	require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
	require.Equal(t, []string{"orders oversized: 1", "orders oversized: 1"}, s.inbox.refused)
	require.NotContains(t, strings.Join(s.inbox.applied, "\n"), `aaa","state":"paid"`)
}
