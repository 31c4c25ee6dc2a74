package postgres

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/tests/servers"
)

func opened(t testing.TB, o Options) *Sink {
	o.Service = service
	s := newSink(t, o)
	require.NoError(t, s.Open(t.Context()))
	return s
}

func classOf(err error) sinks.Class { return sinks.Classify(err).Class }

func TestNewNamesEveryMistakeAndNoPassword(t *testing.T) {
	_, err := New(Options{
		URL: "postgres://u:hunter2@[bad", Table: strings.Repeat("x", 60), Service: service,
		Columns: config.Columns{{Name: "x", Type: "int); DROP TABLE y; --"}, {Name: strings.Repeat("y", 64), Type: "int"}},
	})
	for _, part := range []string{"url", "table", "too long", "columns[0]", "columns[1]"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "hunter2")

	// The server would cut off a partition's name, and two months would have the same one.
	_, err = New(Options{URL: "postgres://localhost", Table: strings.Repeat("x", 55), Service: service, Mode: Append, Retention: time.Hour})
	require.ErrorContains(t, err, "too long")
}

func TestTypeNames(t *testing.T) {
	for _, name := range []string{"int", "bigint", "numeric(12,2)", "numeric(12, -2)", "text[]", "integer[][]", "double precision",
		"timestamp with time zone", "timestamp(3) with time zone", "public.citext", "varchar(10)", "character varying (10)"} {
		require.Regexp(t, typeName, name)
	}
	for _, name := range []string{"", "int;", "int)", "int, b int", "int--", "int/**/", "'x'", `"x"`, "1int", "int default 1+1"} {
		require.NotRegexp(t, typeName, name)
	}
}

func TestOpenRefusesWhatDoesNotFit(t *testing.T) {
	address := servers.Postgres(t)
	const base = "service text, entity text, version bigint, is_deleted boolean, key text, changed_at timestamptz, synced_at timestamptz"
	for name, tc := range map[string]struct {
		create  []string
		options Options
		says    []string
	}{
		"missing and not to be created": {options: Options{CreateTable: new(false)}, says: []string{"there is no table"}},
		"a view":                        {create: []string{"CREATE VIEW %s AS SELECT 1"}, says: []string{"no table"}},
		"many things": {
			create:  []string{"CREATE TABLE %s (service text, entity text, version text, is_deleted boolean, key text, changed_at timestamptz, more int NOT NULL, n int)"},
			options: Options{Columns: config.Columns{{Name: "n", Type: "bigint"}, {Name: "gone", Type: "text"}, {Name: "odd", Type: "nosuchtype"}}},
			says: []string{`"version": has type text, needs bigint`, `"synced_at": missing`, `"more": NOT NULL`, `"n": has type integer, needs bigint`,
				`"gone": missing`, "no type nosuchtype", "unique index on (service, entity)"},
		},
		"a required column": {
			create:  []string{"CREATE TABLE %s (" + base + ", n bigint NOT NULL, PRIMARY KEY (service, entity))"},
			options: Options{Columns: config.Columns{{Name: "n", Type: "bigint"}}},
			says:    []string{"a retraction has no value"},
		},
		"a deferrable key": {
			create: []string{"CREATE TABLE %s (" + base + ", doc jsonb, PRIMARY KEY (service, entity) DEFERRABLE)"},
			says:   []string{"no primary key or unique index on (service, entity) that is not deferrable"},
		},
		"a partial index": {
			create: []string{"CREATE TABLE %s (" + base + ", doc jsonb)", "CREATE UNIQUE INDEX ON %s (service, entity) WHERE NOT is_deleted"},
			says:   []string{"no primary key or unique index"},
		},
		"no partitions for a retention": {
			create:  []string{"CREATE TABLE %s (" + base + ", doc jsonb, PRIMARY KEY (key, changed_at))"},
			options: Options{Mode: Append, Retention: time.Hour},
			says:    []string{"PARTITION BY RANGE (changed_at)"},
		},
		"a view of other columns": {
			create: []string{"CREATE TABLE %s (" + base + ", doc jsonb, PRIMARY KEY (service, entity))", "CREATE VIEW %s_current AS SELECT 1 AS entity"},
			says:   []string{"lacks", "doc"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.options
			o.URL, o.Service, o.Table = address, service, strings.ReplaceAll(name, " ", "_")
			for _, statement := range tc.create {
				execute(t, address, fmt.Sprintf(statement, o.Table))
			}
			err := newSink(t, o).Open(t.Context())
			require.Equal(t, sinks.Pause, classOf(err), "%v", err)
			for _, part := range tc.says {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func TestOpenTakesTheTableOfSomebodyElse(t *testing.T) {
	address := servers.Postgres(t)
	execute(t, address, `CREATE TABLE own (id bigserial, entity varchar(50), service text, version bigint, is_deleted boolean, key text,
		changed_at timestamptz, synced_at timestamptz, "N" numeric(12,2), note text DEFAULT 'x', UNIQUE (entity, service))`)
	s := newSink(t, Options{URL: address, Table: "own", Service: service, Columns: config.Columns{{Name: "N", Path: "n", Type: "numeric"}}})
	err := s.Open(t.Context())
	require.ErrorContains(t, err, `"entity": has type character varying`)
	execute(t, address, "ALTER TABLE own ALTER entity TYPE text")
	require.NoError(t, s.Open(t.Context()))
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1, "x")}))
}

// withParameter returns a URL that sets a parameter of the session.
func withParameter(t testing.TB, address, name, value string) string {
	u, err := url.Parse(address)
	require.NoError(t, err)
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // no form
	return u.String()
}

// A table that is too slow for a whole batch gets smaller ones, until it is not.
func TestASlowTableGetsSmallerBatches(t *testing.T) {
	address := servers.Postgres(t)
	execute(t, address, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END'`)
	s := opened(t, Options{URL: withParameter(t, address, "statement_timeout", "2000"), Table: "slow"})
	execute(t, address, "CREATE TRIGGER slow BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION slow()")
	require.NoError(t, s.Write(t.Context(), batchOf(300, 1)))
	require.Less(t, s.most, 300)
	execute(t, address, "DROP TRIGGER slow ON slow")
	for range 60 {
		require.NoError(t, s.Write(t.Context(), batchOf(300, 2)))
	}
	require.Equal(t, maxBatch, s.most)
}

// A row that the server never gets done is found, and the others take effect at once.
func TestASlowRowFailsAlone(t *testing.T) {
	address := servers.Postgres(t)
	execute(t, address, `CREATE FUNCTION slow_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.entity IN ('entity-7', 'entity-1900') THEN PERFORM pg_sleep(60); END IF; RETURN NEW; END $$`)
	for _, mode := range []Mode{Upsert, Append} {
		o := Options{URL: withParameter(t, address, "statement_timeout", "500"), Table: "slow_" + string(mode), Mode: mode}
		s := opened(t, o)
		execute(t, address, "CREATE TRIGGER slow BEFORE INSERT ON "+o.Table+" FOR EACH ROW EXECUTE FUNCTION slow_row()")
		batch := batchOf(2000, 1)
		later := batch[7]
		later.Version, later.Key = later.Version+10_000, "later"
		batch = append(batch, later)
		var failed *sinks.BatchError
		require.ErrorAs(t, s.Write(t.Context(), batch), &failed)
		require.Len(t, failed.Failed, 3)
		for _, i := range []int{7, 1900} {
			e := sinks.Classify(failed.Failed[i])
			require.Equal(t, sinks.RetryBounded, e.Class, "it counts against the row")
			require.False(t, e.Unreachable)
			require.ErrorContains(t, e, "57014")
			require.ErrorContains(t, e, "statement timeout", "the server's own words")
		}
		if mode == Append {
			require.ErrorIs(t, failed.Failed[2000], sinks.ErrNotAttempted, "the order of the entity")
		}
		require.Equal(t, maxBatch, s.most, "the table is not slow")
		var n int
		require.NoError(t, s.pool.Load().QueryRow(t.Context(), "SELECT count(*) FROM "+o.Table).Scan(&n))
		require.Equal(t, 1998, n)

		err := s.Write(t.Context(), batch[7:8])
		require.NotErrorAs(t, err, &failed)
		require.Equal(t, sinks.RetryBounded, classOf(err), "alone, too")
	}
}

// The text of a customer's trigger reaches the operator without the row's values.
func TestTextsOfTriggersAreMasked(t *testing.T) {
	address := servers.Postgres(t)
	s := opened(t, Options{URL: address, Table: "judged"})
	execute(t, address, `CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'weight % of "%" is above the limit for %', NEW.doc->>'weight', NEW.entity, upper(NEW.doc->>'kind') USING ERRCODE = 'check_violation'; END $$`)
	execute(t, address, "CREATE TRIGGER judge BEFORE INSERT ON judged FOR EACH ROW EXECUTE FUNCTION judge()")
	c := upsert("a", 1, "")
	c.Doc = []byte(`{"weight":1.5e2,"kind":"Cavendish banana"}`)
	var failed *sinks.BatchError
	require.ErrorAs(t, s.Write(t.Context(), []change.Change{c}), &failed)
	require.Equal(t, sinks.Reject, classOf(failed.Failed[0]))
	require.EqualError(t, failed.Failed[0], `insert: refused by the server: weight … of "…" is above the limit for … … (SQLSTATE 23514)`)
}

// Faults of a session say nothing about the table.
func TestFaultsOfASessionAreNoPause(t *testing.T) {
	for _, state := range []string{"26000", "42P05", "25P02", "25001", "25P03", "08P01", "57P05"} {
		e := classify("insert", &pgconn.PgError{Code: state, Message: "prepared statement does not exist"})
		require.Equal(t, sinks.Retry, e.Class, state)
	}
	e := classify("open", &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: options"})
	require.Equal(t, sinks.Pause, e.Class)
	require.Contains(t, e.Hint, "ignore_startup_parameters")
}

// A version that is there has no effect, not even on its own row.
func TestTheSameVersionWritesNothing(t *testing.T) {
	s := opened(t, Options{URL: servers.Postgres(t), Table: "same"})
	row := func() (text string) {
		require.NoError(t, s.pool.Load().QueryRow(t.Context(), "SELECT xmin || ' ' || synced_at || ' ' || doc FROM same").Scan(&text))
		return text
	}
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 2, "x")}))
	before := row()
	for _, c := range []change.Change{upsert("a", 2, "x"), upsert("a", 2, "y"), upsert("a", 1, "z"), retract("a", 2)} {
		require.NoError(t, s.Write(t.Context(), []change.Change{c}))
		require.Equal(t, before, row())
	}
}

// Only a key that is known is left out: what another constraint of an append table does
// not let in is refused, not lost.
func TestAnotherUniqueConstraintRefuses(t *testing.T) {
	address := servers.Postgres(t)
	s := opened(t, Options{URL: address, Table: "orders", Mode: Append, Columns: config.Columns{{Name: "n", Type: "int"}}})
	execute(t, address, "ALTER TABLE orders ADD UNIQUE (n)")
	first, second := upsert("a", 1, "x"), upsert("b", 1, "x")
	require.NoError(t, s.Write(t.Context(), []change.Change{first}))
	require.NoError(t, s.Write(t.Context(), []change.Change{first}), "a repetition")
	var failed *sinks.BatchError
	require.ErrorAs(t, s.Write(t.Context(), []change.Change{first, second, upsert("c", 2, "x")}), &failed)
	require.Len(t, failed.Failed, 1)
	require.Equal(t, sinks.Reject, classOf(failed.Failed[1]))
}

func TestOpenByManyAtOnce(t *testing.T) {
	address := servers.Postgres(t)
	failures := make(chan error)
	for i := range 6 {
		s := newSink(t, Options{URL: address, Table: "common", Mode: Append, Retention: lifetime, Service: service})
		go func() {
			if err := s.Open(t.Context()); err != nil {
				failures <- err
				return
			}
			failures <- s.Write(t.Context(), []change.Change{upsert("a", 1, "x"), upsert("b", int64(i), "y")})
		}()
	}
	for range 6 {
		require.NoError(t, <-failures)
	}
}

func TestAColumnOfTypeJSONKeepsTheSpelling(t *testing.T) {
	s := opened(t, Options{URL: servers.Postgres(t), Table: "spelled", Columns: config.Columns{{Name: "doc", Path: "@this", Type: "json"}}})
	c := upsert("a", 1, "")
	c.Doc = []byte(`{"z":1,"a":{"y":1.0,"b":2}}`)
	require.NoError(t, s.Write(t.Context(), []change.Change{c}))
	var doc string
	require.NoError(t, s.pool.Load().QueryRow(t.Context(), "SELECT doc::text FROM spelled").Scan(&doc))
	require.Equal(t, string(c.Doc), doc)
}

func TestPathsAndTypesOfColumns(t *testing.T) {
	address := servers.Postgres(t)
	s := opened(t, Options{URL: address, Table: "typed", Columns: config.Columns{
		{Name: "deep", Path: "a.b", Type: "jsonb"}, {Name: "big", Type: "numeric"}, {Name: "text", Type: "text"}, {Name: `od"d`, Path: "x", Type: "int[]"},
	}})
	c := upsert("a", 1, "")
	c.Doc = []byte(`{"a":{"b":{"c":[1]}},"big":12345678901234567890.123456789,"text":{"k":1},"x":[1,null,3]}`)
	require.NoError(t, s.Write(t.Context(), []change.Change{c}))
	read := func() (line string) {
		require.NoError(t, s.pool.Load().QueryRow(t.Context(), `SELECT concat_ws('|', deep, big, text, "od""d") FROM typed`).Scan(&line))
		return line
	}
	require.Equal(t, `{"c": [1]}|12345678901234567890.123456789|{"k":1}|{1,NULL,3}`, read())

	c = upsert("a", 2, "")
	c.Doc = []byte(`{"text":null}`)
	require.NoError(t, s.Write(t.Context(), []change.Change{c}))
	require.Empty(t, read(), "absent and null are NULL")
}

func TestViewLeavesOutRetractions(t *testing.T) {
	o := Options{URL: servers.Postgres(t), Table: "seen"}
	s := opened(t, o)
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1, "x"), upsert("b", 2, "x"), retract("a", 3)}))
	var entities []string
	require.NoError(t, s.pool.Load().QueryRow(t.Context(), "SELECT array_agg(entity) FROM seen_current").Scan(&entities))
	require.Equal(t, []string{"b"}, entities)
}

// What an operator is told to run removes that entity and no other.
func TestDeleteStatement(t *testing.T) {
	s := opened(t, Options{URL: servers.Postgres(t), Table: "deleted_from"})
	id := `o'Neill \ ?`
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert(id, 1, "x"), upsert("other", 2, "x")}))
	tag, err := s.pool.Load().Exec(t.Context(), s.DeleteStatement(id))
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
}

func TestPartitionsComeAndGo(t *testing.T) {
	o := Options{URL: servers.Postgres(t), Table: "history", Mode: Append, Retention: 60 * 24 * time.Hour, Service: service}
	s := newSink(t, o)
	now := time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC)
	s.partitions.present = func() time.Time { return now }
	require.NoError(t, s.Open(t.Context()))

	partitions := func() (names []string) {
		require.NoError(t, s.pool.Load().QueryRow(t.Context(),
			"SELECT array_agg(inhrelid::regclass::text ORDER BY inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'history'::regclass").Scan(&names))
		return names
	}
	at := func(offset int64, when time.Time) change.Change {
		c := upsert("a", offset, "x")
		c.Time = when
		return c
	}
	require.Equal(t, []string{"history_y2026m03", "history_y2026m04"}, partitions(), "this month and the next, ahead")

	edge := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	changes := []change.Change{at(1, edge.Add(-time.Millisecond)), at(2, edge), at(3, now)}
	require.NoError(t, s.Write(t.Context(), changes))
	require.NoError(t, s.Write(t.Context(), changes), "a repeat")
	require.Equal(t, []string{"history_y2026m01", "history_y2026m02", "history_y2026m03", "history_y2026m04"}, partitions())
	require.Len(t, held(t, o, "seq"), 3)

	now = time.Date(2026, 4, 2, 0, 0, 0, 0, time.UTC)
	require.NoError(t, s.Write(t.Context(), []change.Change{at(4, now)}))
	require.Equal(t, []string{"history_y2026m02", "history_y2026m03", "history_y2026m04", "history_y2026m05"}, partitions(),
		"January's last row is 60 days old")

	t.Run("a reader that does not end holds up nothing", func(t *testing.T) {
		now = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
		tx, err := s.pool.Load().Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SELECT count(*) FROM history_y2026m02")
		require.NoError(t, err)
		require.NoError(t, s.Write(t.Context(), []change.Change{at(5, now)}))
		require.Contains(t, partitions(), "history_y2026m02")
		require.NoError(t, tx.Rollback(t.Context()))
		now = now.Add(2 * sweepInterval)
		require.NoError(t, s.Write(t.Context(), []change.Change{at(6, now)}))
		require.Equal(t, []string{"history_y2027m01", "history_y2027m02"}, partitions())
	})
	t.Run("another process drops what this one knows", func(t *testing.T) {
		execute(t, o.URL, "DROP TABLE history_y2027m01")
		err := s.Write(t.Context(), []change.Change{at(7, now)})
		require.Equal(t, sinks.Retry, classOf(err), "%v", err)
		require.NoError(t, s.Write(t.Context(), []change.Change{at(7, now)}))
	})
}

// An operator's default partition that holds rows of a month keeps its partition
// from being attached: no change is to blame.
func TestPartitionsThatCannotBeAttachedPause(t *testing.T) {
	o := Options{URL: servers.Postgres(t), Table: "kept", Mode: Append, Retention: lifetime}
	s := opened(t, o)
	c := upsert("a", 1, "x")
	c.Time = time.Now().AddDate(0, -2, 0)
	execute(t, o.URL, "CREATE TABLE kept_rest PARTITION OF kept DEFAULT")
	execute(t, o.URL, fmt.Sprintf(`INSERT INTO kept (service, entity, version, is_deleted, key, changed_at, synced_at)
		VALUES ('s', 'e', 1, true, 'k', '%s', now())`, c.Time.Format(time.RFC3339)))
	err := s.Write(t.Context(), []change.Change{c})
	e := sinks.Classify(err)
	require.Equal(t, sinks.Pause, e.Class, "%v", err)
	require.Contains(t, e.Hint, "default partition")
	require.Equal(t, "create partition", e.Op)

	execute(t, o.URL, "DELETE FROM kept_rest")
	require.NoError(t, s.Write(t.Context(), []change.Change{c}))
}

func BenchmarkWrite(b *testing.B) {
	address := servers.Postgres(b)
	for name, o := range map[string]Options{
		"upsert": {Table: "upsert"}, "upsert typed": {Table: "typed", Columns: typed}, "append": {Table: "append", Mode: Append},
	} {
		o.URL = address
		for _, n := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := opened(b, o)
				batches := int64(0)
				for b.Loop() {
					batches++
					require.NoError(b, s.Write(b.Context(), batchOf(n, batches*int64(n))))
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
			})
		}
	}
}

// A Write is one statement of one transaction, however many changes it has: a table
// gets in one what all partitions have for it.
func TestAWriteIsOneStatement(t *testing.T) {
	url := servers.Postgres(t)
	for _, mode := range []Mode{Upsert, Append} {
		s := opened(t, Options{URL: url, Table: "writes_" + string(mode), Mode: mode})
		c := connect(t, url)
		_, err := c.Exec(t.Context(), fmt.Sprintf(`
CREATE TABLE statements_%[1]s (transaction xid8);
CREATE FUNCTION count_%[1]s() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO statements_%[1]s VALUES (pg_current_xact_id()); RETURN NULL; END';
CREATE TRIGGER count AFTER INSERT ON writes_%[1]s FOR EACH STATEMENT EXECUTE FUNCTION count_%[1]s()`, mode))
		require.NoError(t, err)
		for round := range int64(3) {
			var changes []change.Change
			for i := range int64(800) {
				changes = append(changes, upsert(fmt.Sprint("e-", i), 1000*round+i+1, "x"))
			}
			require.NoError(t, s.Write(t.Context(), changes))
		}
		var statements, transactions int
		require.NoError(t, c.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*), count(DISTINCT transaction::text) FROM statements_%s`, mode)).Scan(&statements, &transactions))
		require.Equal(t, 3, statements)
		require.Equal(t, 3, transactions)
	}
}
