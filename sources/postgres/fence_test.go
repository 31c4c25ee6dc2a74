package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// claimed returns a session that took the next number, and whether the mark was known.
func claimed(t *testing.T, o Options) (*session, bool) {
	o.Setup.Source, o.Logger = "shop", slog.New(slog.DiscardHandler)
	b := &session{r: NewReader(o, nil), own: newSlotRow(o.Logs, o.Positions)}
	_, known, err := b.claim(t.Context())
	require.NoError(t, err)
	return b, known
}

// A reader that lost its connection stores its mark once more at its end. The store has that of its
// successor by then, which has begun another epoch.
func TestTheRowOfASlotIsFenced(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "s.db")})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.NoError(t, s.Migrate(t.Context()))
	begin := func() *session {
		b, _ := claimed(t, Options{Logs: s, Positions: s, Barrier: func(context.Context, change.Session, string, func(error)) error { return nil }})
		return b
	}
	old := begin()
	table := &kept[tableMark]{positions: old.own, source: "orders", identity: "shop/orders", value: tableMark{Epoch: "a"}}
	require.NoError(t, old.save(t.Context(), func(m *mark) { *m = mark{Epoch: "old", Era: 1, Timeline: 1, Confirmed: 100} }))
	require.NoError(t, table.save(t.Context()))
	next := begin()
	require.Equal(t, "old", next.mark.Epoch)
	require.NoError(t, next.save(t.Context(), func(m *mark) { *m = m.next(next.own.session().Number, 100) }))
	require.ErrorIs(t, old.save(t.Context(), func(m *mark) { m.Confirmed = 200 }), store.ErrFenced)
	table.value.Done = true
	require.ErrorIs(t, table.save(t.Context()), store.ErrFenced, "the rows of a table that are read by another session")
	last := begin()
	require.Equal(t, next.mark, last.mark)
	require.Greater(t, last.own.session().Number, next.own.session().Number)
	kept := &kept[tableMark]{positions: last.own, source: "orders", identity: "shop/orders"}
	_, err = kept.load(t.Context())
	require.NoError(t, err)
	require.False(t, kept.value.Done)
}

// A restored store assigns a number twice: the session takes a higher one than any that was decided.
func TestANumberThatWasGivenTwice(t *testing.T) {
	m := newMemory()
	m.row = store.SourceLog{Session: change.Session{Log: "shop", Number: 3, Name: "of a backup"}, Version: 1}
	m.floor = store.Floor{Session: change.Session{Log: "shop", Number: 7, Name: "of a lost store"}}
	b, known := claimed(t, Options{Logs: m, Positions: m, Barrier: m.barrier})
	require.False(t, known)
	require.Equal(t, int64(8), b.own.session().Number)
	require.Equal(t, b.own.session(), m.floor.Session)
}

// A source that was renamed takes numbers above the sequences that its tables have under their own names.
func TestARenamedSourceTakesAHigherNumber(t *testing.T) {
	m := newMemory()
	m.floor = store.Floor{Session: change.Session{Log: "before", Number: 7, Name: "x"}}
	b, _ := claimed(t, Options{Logs: m, Positions: m, Barrier: m.barrier})
	require.Equal(t, int64(8), b.own.session().Number)
}

// The server ends the connection that holds the lock (an administrator, a firewall; by
// idle_session_timeout again and again), and another process takes it: one of them is heard, no change
// stays stale, and the process that waits says who reads.
func TestALockThatIsLost(t *testing.T) {
	server := ownServer(t)
	for _, by := range []string{"an administrator", "idle_session_timeout"} {
		t.Run(by, func(t *testing.T) {
			s := newShop(t, server, map[string][]string{"public.orders": {"id"}},
				"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 20) n")
			defer s.dropSlot()
			first := s.start()
			s.drain(first)
			second := s.start()
			readBy := second.sources[0].ReadBy
			s.await(func() bool { return readBy() != "" })
			require.Contains(t, readBy(), "another process of this pipeline reads the slot")
			require.NoError(t, second.sources[0].Failing(), "it takes over when that ends")
			require.Empty(t, first.sources[0].ReadBy())
			update := func(times int) {
				for n := range times {
					s.exec(fmt.Sprintf("UPDATE orders SET v = v + 1 WHERE id = %d", n%20+1))
				}
			}
			const lock = "FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() WHERE l.locktype = 'advisory'"
			if by == "idle_session_timeout" { // of connections that begin now
				s.exec("ALTER DATABASE " + s.options.Slot + " SET idle_session_timeout = '200ms'")
			}
			for range 3 {
				s.exec("SELECT pg_terminate_backend(l.pid) " + lock)
				update(40)
				if by == "idle_session_timeout" {
					s.await(func() (gone bool) {
						require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count(*) = 0 "+lock).Scan(&gone))
						return gone
					})
					update(40)
				}
			}
			s.exec("ALTER DATABASE " + s.options.Slot + " RESET idle_session_timeout")
			agree := func(what string) {
				t.Helper()
				s.inbox.wait(t, what, func() bool { return maps.Equal(s.rows("orders", "id"), s.inbox.docs(t, "orders")) })
			}
			agree("the changes behind a lost lock")
			first.stop()
			update(40)
			agree("the changes of the process that is left")
			second.stop()
			first = s.start()
			update(20)
			s.drain(first)
			first.stop()
			require.Equal(t, s.rows("orders", "id"), s.inbox.docs(t, "orders"))
		})
	}
}

// Two pipelines on one slot name each other.
func TestASlotOfTwoPipelines(t *testing.T) {
	s := newShop(t, ownServer(t), map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)")
	s.options.Pipeline = "aaaaaaaa"
	first := s.start()
	s.drain(first)
	s.options.Pipeline = "bbbbbbbb"
	second := s.start()
	var fault *SetupError
	require.Eventually(t, func() bool { return errors.As(second.sources[0].Failing(), &fault) }, patience, 10*time.Millisecond)
	require.ErrorContains(t, fault, `another program reads the slot: "weir aaaaaaaa source shop" (pid `)
	second.stop()
	first.stop()
}

// A database that is another one is read again, with its rows gone deleted.
func TestADatabaseThatMoved(t *testing.T) {
	server := ownServer(t)
	s := newShop(t, server, map[string][]string{"public.orders": {"id"}}, "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
	s.read()
	other := newShop(t, server, s.options.Entities, "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (2), (3)")
	other.positions, other.inbox = s.positions, s.inbox
	other.options.Positions, other.options.Logs, other.options.Barrier, other.options.Stored = s.positions, s.positions, s.positions.barrier, s.inbox.stored
	r := other.start()
	other.drain(r)
	require.Equal(t, other.rows("orders", "id"), s.inbox.docs(t, "orders"))
	other.exec("INSERT INTO orders VALUES (1)")
	other.drain(r)
	r.stop()
	require.Equal(t, other.rows("orders", "id"), s.inbox.docs(t, "orders"))

	// The slot is renamed, and rows are gone.
	other.exec("DELETE FROM orders WHERE id = 2")
	other.exec("SELECT pg_drop_replication_slot('" + other.options.Slot + "')")
	other.options.Slot += "_b"
	other.read()
	require.Equal(t, other.rows("orders", "id"), s.inbox.docs(t, "orders"))
}

// Decisions about the slot show a gap that the mark does not.
func TestWhatWasHeardShowsAGap(t *testing.T) {
	lines, err := parseTimelines(2, "1\t0/3000000\tx\n")
	require.NoError(t, err)
	at := func(era int64, timeline int32, lsn int64) []store.Floor {
		return []store.Floor{{}, {Sequence: timelines{era: era}.sequence(timeline), Offset: lsn}}
	}
	m := mark{Era: 5}
	const end = 0x4000000
	require.Empty(t, m.unheard(nil, false, lines, end))
	require.Empty(t, m.unheard(at(5, 1, 0x2ffffff), false, lines, end))
	require.Empty(t, m.unheard(at(5, 2, end), false, lines, end))
	require.Empty(t, m.unheard(at(4, 1, 0x3ffffff), false, lines, end), "an epoch that ended")
	require.Empty(t, m.unheard(at(5, 0, 0), false, lines, end), "a barrier alone")
	require.Contains(t, m.unheard(at(5, 1, 0x3000000), false, lines, end), "lost commits")
	require.Contains(t, m.unheard(at(5, 3, 1), false, lines, end), "lost commits")
	require.Contains(t, m.unheard(at(5, 2, end+1), false, lines, end), "restored to an earlier state")
	require.Contains(t, m.unheard(at(6, 1, 1), false, lines, end), "store was restored")
	require.Contains(t, m.unheard(at(6, 0, 0), false, lines, end), "store was restored")
	require.Contains(t, m.unheard(nil, true, lines, end), "store was restored")
	require.NotEmpty(t, m.unheard([]store.Floor{{Sequence: "17"}}, false, lines, end))
}
