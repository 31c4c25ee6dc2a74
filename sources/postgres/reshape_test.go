package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reshaping is what happens to the table orders, and what Weir does.
type reshaping struct {
	name    string
	options string   // of the publication, for FOR ALL TABLES and schemas: made before Weir's
	setup   []string // behind the table's creation
	script  []string // each a transaction of its own; {p} is the publication
	gap     string   // part of the cause that source.gap says; empty: none is said
	select_ string   // the rows that are wanted; by default all of orders
	alone   bool     // no other change of the rows follows
}

// A table of four rows, with a large value each.
var ordersTable = []string{
	"CREATE TABLE orders (id int PRIMARY KEY, code text NOT NULL, n int NOT NULL DEFAULT 0, body text)",
	"ALTER TABLE orders ALTER body SET STORAGE EXTERNAL",
	"INSERT INTO orders SELECT i, 'c' || i, i, i || repeat('x', 5000) FROM generate_series(1, 4) i",
}

// partedTable has the same rows in two partitions; spare is a table that can become one.
var partedTable = []string{
	"CREATE TABLE orders (id int PRIMARY KEY, code text NOT NULL, n int NOT NULL DEFAULT 0, body text) PARTITION BY RANGE (id)",
	"CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (3)", "CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (3) TO (10)",
	"INSERT INTO orders SELECT i, 'c' || i, i, i || repeat('x', 5000) FROM generate_series(1, 4) i",
	"CREATE TABLE spare (LIKE orders INCLUDING ALL)", "INSERT INTO spare VALUES (11, 'c11', 11, 'spare')",
}

const (
	other  = "another table|had the name public.old"
	left   = "left the publication"
	leaves = "partitions were"
)

// exchange exchanges the names of two columns.
const exchange = "BEGIN; ALTER TABLE orders RENAME n TO t; ALTER TABLE orders RENAME m TO n; ALTER TABLE orders RENAME t TO m; COMMIT"

// Many changes, of kinds that touch every row, follow a script.
var afterwards = []string{"UPDATE orders SET n = n + 100", "DELETE FROM orders WHERE id = 4", "INSERT INTO orders (id, code) VALUES (9, '9')"}

var reshapings = []reshaping{
	{name: "left the publication and came back", gap: left,
		script: []string{"ALTER PUBLICATION {p} DROP TABLE orders", "UPDATE orders SET n = 7 WHERE id = 1", "DELETE FROM orders WHERE id = 2", "ALTER PUBLICATION {p} ADD TABLE orders"}},
	{name: "renamed away and back", gap: "had the name public.away",
		script: []string{"ALTER TABLE orders RENAME TO away", "UPDATE away SET n = 7 WHERE id = 1", "DELETE FROM away WHERE id = 2", "ALTER TABLE away RENAME TO orders"}},
	{name: "another schema and back", options: "FOR TABLES IN SCHEMA public", gap: "another schema",
		script: []string{"CREATE SCHEMA away", "ALTER TABLE orders SET SCHEMA away", "UPDATE away.orders SET n = 7 WHERE id = 1", "DELETE FROM away.orders WHERE id = 2", "ALTER TABLE away.orders SET SCHEMA public"}},
	{name: "unlogged and logged", options: "FOR ALL TABLES", gap: "rewritten|while the table was not read",
		script: []string{"ALTER TABLE orders SET UNLOGGED", "UPDATE orders SET n = 7 WHERE id = 1", "DELETE FROM orders WHERE id = 2", "ALTER TABLE orders SET LOGGED"}},
	{name: "without large values, unlogged and logged", options: "FOR ALL TABLES", gap: "rewritten|while the table was not read",
		setup:  []string{"DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY, n int, code int)", "INSERT INTO orders VALUES (1, 1), (2, 2)"},
		script: []string{"ALTER TABLE orders SET UNLOGGED", "UPDATE orders SET n = 7 WHERE id = 1", "DELETE FROM orders WHERE id = 2", "ALTER TABLE orders SET LOGGED"}},
	{name: "a staging table renamed into place", gap: other,
		setup: []string{"CREATE TABLE staging (LIKE orders INCLUDING ALL)", "INSERT INTO staging VALUES (3, 'new', 33), (5, 'new', 55)"},
		script: []string{"UPDATE orders SET n = 0 WHERE id = 1", "INSERT INTO orders VALUES (6, 'old')", "BEGIN; ALTER TABLE orders RENAME TO old; ALTER TABLE staging RENAME TO orders; ALTER PUBLICATION {p} ADD TABLE orders; COMMIT",
			"UPDATE old SET n = 7", "INSERT INTO orders VALUES (7, 'c7')"}},
	{name: "a staging table renamed into place, all tables", options: "FOR ALL TABLES", gap: other,
		setup:  []string{"CREATE TABLE staging (LIKE orders INCLUDING ALL)", "INSERT INTO staging VALUES (3, 'new', 33), (5, 'new', 55)"},
		script: []string{"INSERT INTO orders VALUES (6, 'old')", "BEGIN; ALTER TABLE orders RENAME TO old; ALTER TABLE staging RENAME TO orders; COMMIT", "UPDATE old SET n = 7", "INSERT INTO orders VALUES (7, 'c7')"}},
	{name: "dropped and created, schema", options: "FOR TABLES IN SCHEMA public", gap: other,
		script: []string{"INSERT INTO orders VALUES (6, 'old')", "BEGIN; DROP TABLE orders; CREATE TABLE orders (id int PRIMARY KEY, n int, code text); INSERT INTO orders VALUES (1, 1, 'x'), (8, 8, 'x'); COMMIT"}},
	{name: "dropped and created", gap: other,
		script: []string{"BEGIN; DROP TABLE orders; CREATE TABLE orders (id int PRIMARY KEY, n int, code text); INSERT INTO orders VALUES (1, 1, 'x'), (8, 8, 'x'); ALTER PUBLICATION {p} ADD TABLE orders; COMMIT"}},
	{name: "partition attached", setup: partedTable, gap: leaves,
		script: []string{"ALTER TABLE orders ATTACH PARTITION spare FOR VALUES FROM (10) TO (20)", "UPDATE orders SET n = 5 WHERE id = 11"}},
	{name: "partition detached", setup: partedTable, gap: leaves, script: []string{"ALTER TABLE orders DETACH PARTITION orders_1", "UPDATE orders_1 SET n = 5 WHERE id = 2"}},
	{name: "partition detached concurrently", setup: partedTable, gap: leaves, script: []string{"ALTER TABLE orders DETACH PARTITION orders_1 CONCURRENTLY"}},
	{name: "partition dropped", setup: partedTable, gap: leaves, script: []string{"INSERT INTO orders VALUES (0, 'c0')", "DROP TABLE orders_1"}},
	{name: "partition truncated", setup: partedTable, gap: leaves, script: []string{"TRUNCATE orders_2"}},
	{name: "filter widened", gap: left, setup: []string{"CREATE PUBLICATION {p} FOR TABLE orders WHERE (id > 2)"},
		script: []string{"ALTER PUBLICATION {p} SET TABLE orders WHERE (id > 1)"}, select_: "SELECT * FROM orders WHERE id > 1"},
	{name: "filter narrowed", gap: left, setup: []string{"CREATE PUBLICATION {p} FOR TABLE orders WHERE (id > 1)"},
		script: []string{"ALTER PUBLICATION {p} SET TABLE orders WHERE (id > 2)"}, select_: "SELECT * FROM orders WHERE id > 2"},
	{name: "column list", gap: left, setup: []string{"CREATE PUBLICATION {p} FOR TABLE orders (id, n)"},
		script: []string{"ALTER PUBLICATION {p} SET TABLE orders (id, code)"}, select_: "SELECT id, code FROM orders"},
	{name: "operations off and on", gap: "publication was altered",
		script: []string{"ALTER PUBLICATION {p} SET (publish = 'insert')", "UPDATE orders SET n = 7 WHERE id = 1", "DELETE FROM orders WHERE id = 2", "ALTER PUBLICATION {p} SET (publish = 'insert, update, delete, truncate')"}},
	{name: "type changed by USING", gap: "rewritten", script: []string{"ALTER TABLE orders ALTER code TYPE text USING upper(code)"}},
	{name: "another type", gap: "rewritten", script: []string{"ALTER TABLE orders ALTER n TYPE text USING 'n' || n", "ALTER TABLE orders ALTER n TYPE int USING substr(n, 2)::int * 2"}},
	{name: "volatile default", gap: "rewritten", script: []string{"ALTER TABLE orders ADD COLUMN r int DEFAULT (random() * 1000)::int"}},
	{name: "expand and contract", gap: "was dropped",
		script: []string{"ALTER TABLE orders ADD COLUMN body2 text", "ALTER TABLE orders ALTER body2 SET STORAGE EXTERNAL", "UPDATE orders SET body2 = repeat('-', 5000)", "ALTER TABLE orders DROP COLUMN body", "ALTER TABLE orders RENAME body2 TO body"}},
	{name: "names exchanged", gap: "which had another name|is another one",
		setup:  []string{"ALTER TABLE orders ADD COLUMN more text", "ALTER TABLE orders ALTER more SET STORAGE EXTERNAL", "UPDATE orders SET more = repeat('m', 5000)"},
		script: []string{"BEGIN; ALTER TABLE orders RENAME body TO t; ALTER TABLE orders RENAME more TO body; ALTER TABLE orders RENAME t TO more; COMMIT"}},
	{name: "names exchanged for a while", gap: "which had another name|is another one",
		setup: []string{"ALTER TABLE orders ADD COLUMN more text", "ALTER TABLE orders ALTER more SET STORAGE EXTERNAL", "UPDATE orders SET more = repeat('m', 5000)"},
		script: []string{"BEGIN; ALTER TABLE orders RENAME body TO t; ALTER TABLE orders RENAME more TO body; ALTER TABLE orders RENAME t TO more; COMMIT", "UPDATE orders SET body = 'short', more = 'also short' WHERE id = 1",
			"BEGIN; ALTER TABLE orders RENAME body TO t; ALTER TABLE orders RENAME more TO body; ALTER TABLE orders RENAME t TO more; COMMIT"}},
	{name: "a large column renamed", gap: "which had another name", script: []string{"ALTER TABLE orders RENAME body TO text"}},
	{name: "a column renamed", script: []string{"ALTER TABLE orders RENAME n TO m", "UPDATE orders SET m = m + 1", "ALTER TABLE orders RENAME m TO n", "UPDATE orders SET n = n + 1"}},
	{name: "a column added", script: []string{"ALTER TABLE orders ADD COLUMN extra int DEFAULT 5"}},
	{name: "a column dropped", gap: "was dropped", alone: true, script: []string{"ALTER TABLE orders DROP COLUMN body"}},
	{name: "a column dropped and added again", gap: "was dropped", alone: true, script: []string{"ALTER TABLE orders DROP COLUMN n", "ALTER TABLE orders ADD COLUMN n int DEFAULT 3"}},
	{name: "a column added, used and dropped", gap: "for a while|was dropped", alone: true,
		script: []string{"ALTER TABLE orders ADD COLUMN m int DEFAULT 5", "UPDATE orders SET m = 6 WHERE id = 2", "ALTER TABLE orders DROP COLUMN m"}},
	{name: "names of small columns exchanged", gap: "is another one", alone: true, setup: []string{"ALTER TABLE orders ADD COLUMN m int DEFAULT 77"}, script: []string{exchange}},
	{name: "names of small columns exchanged for a while", gap: "is another one", alone: true,
		setup: []string{"ALTER TABLE orders ADD COLUMN m int DEFAULT 77"}, script: []string{exchange, "UPDATE orders SET m = 3 WHERE id = 2", exchange}},
	{name: "a value of an enum renamed", gap: "ALTER TYPE", alone: true,
		setup:  []string{"CREATE TYPE mood AS ENUM ('ok', 'bad')", "CREATE DOMAIN moods AS mood[]", "ALTER TABLE orders ADD COLUMN m moods DEFAULT '{ok}'"},
		script: []string{"ALTER TYPE mood ADD VALUE 'worse'", "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'"}},
	{name: "a value of an enum added", alone: true, setup: []string{"CREATE TYPE mood AS ENUM ('ok', 'bad')", "ALTER TABLE orders ADD COLUMN m mood DEFAULT 'ok'"},
		script: []string{"ALTER TYPE mood ADD VALUE 'worse'", "UPDATE orders SET m = 'worse' WHERE id = 2"}},
	{name: "an attribute added to a type", gap: "ALTER TYPE", alone: true, setup: []string{"CREATE TYPE pair AS (a int, b int)", "ALTER TABLE orders ADD COLUMN m pair DEFAULT '(1,2)'"},
		script: []string{"ALTER TYPE pair ADD ATTRIBUTE c int"}, select_: "SELECT id, code, n, body, m::text AS m FROM orders"},
	{name: "vacuum full, cluster, truncate", script: []string{"VACUUM FULL orders", "CLUSTER orders USING orders_pkey", "TRUNCATE orders", "INSERT INTO orders VALUES (1, 'c1')"}},
}

// What happens to a table happens while Weir runs, and while it does not.
func TestTablesThatChangeShape(t *testing.T) {
	server := ownServer(t)
	for _, c := range reshapings {
		for _, when := range []string{"running", "stopped"} {
			t.Run(c.name+", "+when, func(t *testing.T) {
				t.Parallel()
				c.run(t, server, when == "running")
			})
		}
	}
}

func (c reshaping) run(t *testing.T, server string, running bool) {
	s := newShop(t, server, map[string][]string{"public.orders": {"id"}})
	defer s.dropSlot()
	expand := func(sql string) string { return strings.ReplaceAll(sql, "{p}", s.options.Publication) }
	setup := ordersTable
	if len(c.setup) == len(partedTable) {
		setup = nil
	}
	for _, sql := range append(slices.Clone(setup), c.setup...) {
		s.exec(expand(sql))
	}
	if c.options != "" {
		s.exec(expand("CREATE PUBLICATION {p} " + c.options + " WITH (publish_via_partition_root = true)"))
	}
	log := s.watched()
	r := s.start()
	defer func() { r.stop() }()
	s.drain(r)
	if c.select_ == "" {
		s.equals("", "at first")
	}
	if !running {
		r.stop()
	}
	script := slices.Concat(c.script, afterwards)
	if c.alone {
		script = c.script
	}
	for _, sql := range script {
		if running && strings.HasPrefix(sql, "UPDATE") {
			s.drainIf(r)
		}
		s.exec(expand(sql))
	}
	if !running {
		r = s.start()
	}
	s.inbox.wait(t, "the rows", func() bool { return maps.Equal(s.wanted(c.select_), s.inbox.docs(t, "orders")) })
	if !c.alone {
		s.exec("UPDATE orders SET n = n + 1000")
	}
	s.inbox.wait(t, "the rows behind a change", func() bool { return maps.Equal(s.wanted(c.select_), s.inbox.docs(t, "orders")) })
	s.drain(r)
	r.stop()
	r = s.start()
	s.drain(r)
	s.equals(c.select_, "in the end")
	require.Empty(t, s.inbox.refused)
	gaps := log.events("source.gap")
	if c.gap == "" {
		require.Empty(t, gaps)
		return
	}
	require.NotEmpty(t, gaps)
	causes := strings.Split(c.gap, "|")
	if running { // it may see a state in between, which has a cause of its own
		causes = append(causes, left, "while the table was not read", "was dropped")
	}
	said := func(cause string) bool { return strings.Contains(strings.Join(gaps, "\n"), cause) }
	require.True(t, slices.ContainsFunc(causes, said), "%s: %v", c.gap, gaps)
}

// Which changes of columns and types the log does not have.
func TestWhatBreaksDocuments(t *testing.T) {
	names := columnNames{}
	names.learn(map[string]int16{"id": 1, "n": 2, "m": 3})
	require.Empty(t, names.breaks(map[string]int16{"id": 1, "renamed": 2, "m": 3, "added": 4}))
	require.Contains(t, names.breaks(map[string]int16{"id": 1, "m": 3}), `"n" was dropped`)
	require.Contains(t, names.breaks(map[string]int16{"id": 1, "n": 3, "m": 2}), "is another one")
	require.Contains(t, names.breaks(map[string]int16{"id": 1, "old": 2, "m": 3, "n": 4}), "is another one")
	was := identity{Values: map[string]string{"label 1": "ok"}}
	require.Empty(t, was.differs(identity{Values: map[string]string{"label 1": "ok", "label 2": "worse"}}))
	require.Contains(t, was.differs(identity{Values: map[string]string{"label 1": "fine"}}), "ALTER TYPE")
}

// A table that the configuration leaves out for a while is read again, and so is one whose entity is
// another column.
func TestTablesThatTheConfigurationChanges(t *testing.T) {
	both := map[string][]string{"public.orders": {"id"}, "public.items": {"id"}}
	s := newShop(t, ownServer(t), both, append(slices.Clone(ordersTable), "CREATE TABLE items (id int PRIMARY KEY)", "ALTER TABLE orders REPLICA IDENTITY FULL")...)
	log := s.watched()
	session := func(entities map[string][]string) {
		s.options.Entities = entities
		s.read()
	}
	session(both)
	s.equals("", "at first")
	s.exec("UPDATE orders SET n = 5 WHERE id = 1")
	s.exec("INSERT INTO items VALUES (1)")
	session(map[string][]string{"public.items": {"id"}})
	s.exec("DELETE FROM orders WHERE id = 2")
	require.Empty(t, log.events("source.gap"))
	session(both)
	s.equals("", "the table is back")
	require.Contains(t, strings.Join(log.events("source.gap"), ""), "changes passed while the table was not read")
	require.Len(t, s.inbox.docs(t, "items"), 1)

	s.exec("UPDATE orders SET code = 'other' WHERE id = 3")
	s.exec("DELETE FROM orders WHERE id = 4")
	session(map[string][]string{"public.orders": {"code"}, "public.items": {"id"}})
	require.Contains(t, strings.Join(log.events("source.gap"), ""), "its entity was [id] and is [code]")
	require.Equal(t, s.rows("orders", "code"), s.inbox.docs(t, "orders"))
}

// drainIf drains, unless the table cannot be read at present.
func (s *shop) drainIf(r *running) {
	if r.sources[0].Failing() == nil {
		_, err := r.sources[0].Drained(s.t.Context())
		require.NoError(s.t, err)
	}
}

// wanted is the documents of a statement's rows, by id.
func (s *shop) wanted(sql string) map[string]string {
	if sql == "" {
		return s.rows("orders", "id")
	}
	return s.rows("("+sql+")", "id")
}

func (s *shop) equals(sql, when string) {
	s.t.Helper()
	short := func(all map[string]string) map[string]string {
		for id, doc := range all {
			all[id] = strings.ReplaceAll(doc, strings.Repeat("x", 5000), "x…")
		}
		return all
	}
	require.Equal(s.t, short(s.wanted(sql)), short(s.inbox.docs(s.t, "orders")), when)
}

// dropSlot makes room for the slots of other tests on the server.
func (s *shop) dropSlot() {
	_, err := s.conn.Exec(context.Background(), "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active", s.options.Slot)
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		_, err := s.conn.Exec(context.Background(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", s.options.Slot)
		return err == nil
	}, patience, 10*time.Millisecond)
}

// await waits for a state that comes without a frame.
func (s *shop) await(ok func() bool) {
	s.t.Helper()
	require.Eventually(s.t, ok, patience, 10*time.Millisecond)
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// events returns the lines of an event.
func (l *lines) events(id string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, "event="+id+" ") {
			found = append(found, line)
		}
	}
	return found
}

// watched keeps the reader's log, and has it look at the tables often.
func (s *shop) watched() *lines {
	l := &lines{}
	s.options.Logger, s.options.Watch = slog.New(slog.NewTextHandler(l, nil)), 100*time.Millisecond
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log(l.all.String())
		}
	})
	return l
}
