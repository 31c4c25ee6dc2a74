package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// analyze makes new statistics of the test's own tables: those of others may be
// locked, and other tests count on theirs.
func analyze(t *testing.T, conn *pgxpool.Conn) {
	t.Helper()
	var tables string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT string_agg(oid::regclass::text, ', ' ORDER BY oid) FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')`).Scan(&tables))
	_, err := conn.Exec(t.Context(), "ANALYZE "+tables)
	require.NoError(t, err)
}

// Every statement that touches a table which grows must find its rows by an
// index, whatever the statistics say: here they are from when the tables held
// nothing, and 200,000 rows came since. The mistake it catches: a plan that is
// right for few parameters, or for a small table, and reads the whole table.
func TestPlansUseTheIndexWithStaleStatistics(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	conn, err := s.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	analyze(t, conn) // statistics of empty tables
	for _, sql := range []string{
		`ALTER TABLE dam SET (autovacuum_enabled = off)`,
		`ALTER TABLE entities SET (autovacuum_enabled = off)`,
		`ALTER TABLE outbox SET (autovacuum_enabled = off)`,
		`INSERT INTO dam (entity, service, content, version) SELECT 'banana-' || n, n % 5, '\x01', 1 FROM generate_series(1, 200000) n`,
		`INSERT INTO entities (id, docs, version) SELECT 'banana-' || n, '{}', 1 FROM generate_series(1, 20000) n`,
		`INSERT INTO outbox (generation, partition, frame) SELECT 1, n % 8, '' FROM generate_series(1, 20000) n`,
		`INSERT INTO dead_letters (stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, dedup_key, place)
		 SELECT 'deliver', '', '', '', '', '', '', 1, '', 0, 0, '', int4send(n), 0 FROM generate_series(1, 20000) n`,
		`SELECT weir_deliveries_day('2026-03-01'), weir_deliveries_day('2026-03-02')`,
		`INSERT INTO deliveries (day, service, entity, at, version, outcome, status, answer, ms)
		 SELECT '2026-03-01'::date + n % 2, n % 5, 'banana-' || n, now(), 1, '', 0, '', 0 FROM generate_series(1, 50000) n`,
		`INSERT INTO audit (actor, action, reason, entity, service) SELECT '', '', '', '', '' FROM generate_series(1, 20000) n`,
		`INSERT INTO jobs (kind, key, parameters, state, actor) SELECT 'replay', n::text, '{}', 'done', '' FROM generate_series(1, 20000) n`,
		`INSERT INTO watermarks (generation, partition, next_offset, last_to, token) SELECT g, n, 0, 0, '' FROM generate_series(0, 63) n, generate_series(1, 3) g`,
		`INSERT INTO progress (partition, token, places, top, session) SELECT n, '', '', 0, now() FROM generate_series(0, 63) n`,
		`INSERT INTO activations (revision, partition, position) SELECT r, n, 0 FROM generate_series(0, 63) n, generate_series(1, 100) r`,
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	parameters := map[string]string{
		sqlLookup: "text[], int4[]",
		sqlSwap:   "text[], int4[], bytea[], bool[], bytea[], bool[], int8[], int8", sqlInsert: "text[], int4[], bytea[], bool[], int8[], int8",
		sqlPurgeRows: "text[]", sqlPurgeEntities: "text[]", sqlPurgeAttempts: "text[]", sqlTombstones: "timestamptz, text, int4",
		sqlLoad: "text[]", sqlHold: "int4[], int4[], int8[], bytea[]", sqlExpectHeld: "int4[], int4[], int8[], bytea[], int8",
		sqlMove:       "int4[], int4[], int8[], bytea[], int8[], int8[], int8",
		sqlDropOutbox: "int8[], int4[], int4[]", sqlReadOutbox: "int4[], int4[]", sqlOutbox: "int4",
		sqlTakeOver:     "int4[], int4[], bytea",
		sqlTakeProgress: "int4[], bytea", sqlSwapProgress: "int8, int4[], bytea[], bytea[], bytea[], int8[], int8[]",
		sqlMovedBound: "text, int8", sqlMoved: "text, int8, int8, int8, text", sqlMovedRest: "text, int8, int8, int8",
		sqlCountLetters: "text[], int4", sqlPruneLetters: "timestamptz, int4", sqlPruneAudit: "timestamptz, int4", sqlPruneJobs: "timestamptz, int4",
		sqlEntityAttempts: "timestamptz, timestamptz, int4[], int4, text",
		sqlEntityRows:     "text", sqlPageEntities: "text, int4", sqlServiceRows: "text, int4, int4",
	}
	for _, statistics := range []string{"of empty tables", "of now"} {
		for sql, types := range parameters {
			name := "p" + fmt.Sprint(len(sql))
			n := strings.Count(types, ",") + 1
			_, err := conn.Conn().PgConn().Exec(ctx, "PREPARE "+name+"("+types+") AS "+sql).ReadAll()
			require.NoError(t, err, sql)
			// Generic whatever the parameters: plan_cache_mode forces it.
			rows, err := conn.Query(ctx, "EXPLAIN EXECUTE "+name+"(NULL"+strings.Repeat(", NULL", n-1)+")", pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			for _, bad := range []string{"Seq Scan", "Hash Join", "Merge Join", "Hash Semi", "Merge Semi"} {
				assert.NotContains(t, plan, bad, "statistics %s, statement %s", statistics, sql)
			}
			if sql == sqlMoved || sql == sqlMovedRest {
				// A page ends where it has enough: its entities come from the index in
				// their order, and only its own rows are sorted.
				assert.Regexp(t, `(?s)^(Incremental )?Sort.*Limit.*Unique.*Scan using dam_pkey on dam .*Index Cond: \(\(?entity > `, plan)
				assert.Equal(t, 1, strings.Count(plan, "Sort  "), plan)
			}
			if sql == sqlMovedBound {
				assert.Contains(t, plan, "Scan using dam_pkey")
				assert.NotContains(t, plan, "Sort", "the order of the key")
			}
			if sql == sqlPruneLetters || sql == sqlPruneAudit || sql == sqlPruneJobs {
				assert.Regexp(t, "Index (Only )?Scan using (dead_letters_last|audit_time|jobs_ended) on", plan)
				assert.NotContains(t, plan, "Sort", "the oldest first")
			}
			if sql == sqlHold || sql == sqlExpectHeld || sql == sqlMove || sql == sqlSwapProgress {
				assert.NotContains(t, plan, "Sort", "rows are locked in the order of their keys")
			}
			if sql == sqlServiceRows {
				assert.Contains(t, plan, "Index Scan using dam_pkey")
				assert.NotContains(t, plan, "Sort", "the order of the key")
			}
			if sql == sqlLookup || sql == sqlSwap {
				assert.Contains(t, plan, "dam_pkey")
				assert.Contains(t, plan, "Nested Loop")
			}
			_, err = conn.Conn().PgConn().Exec(ctx, "DEALLOCATE "+name).ReadAll()
			require.NoError(t, err)
		}
		analyze(t, conn)
	}
}

// A duplicate is neither written nor locked: while a decision that looked rows up
// holds its transaction open, others lock those that were equal.
func TestDuplicatesAreNotLocked(t *testing.T) {
	s, url := migrated(t)
	other := handle(t, url)
	ctx := t.Context()
	revision, err := s.Activate(ctx, []byte("c"), false)
	require.NoError(t, err)
	decide := func(change string, entities ...string) error {
		_, err := s.Decide(ctx, store.Decision{Revision: revision.Number}, func(_ store.Loaded, lookup store.Lookup) (store.Outcome, error) {
			var keys []store.Key
			for _, e := range entities {
				keys = append(keys, store.Key{Service: 1, Entity: e})
			}
			rows, err := lookup(keys)
			var out store.Outcome
			for _, r := range rows {
				if string(r.Content) != change && r.Entity != "equal" || !r.Found {
					out.Swaps = append(out.Swaps, store.Swap{Key: r.Key, Insert: !r.Found, Old: r.Content, New: []byte(change)})
				}
			}
			return out, err
		})
		return err
	}
	require.NoError(t, decide("\x01A", "blocked", "changed", "equal"))
	tuple := func() (place string) { // it changes with every write
		require.NoError(t, other.pool.QueryRow(ctx, `SELECT concat_ws(' ', ctid, xmin) FROM dam WHERE entity = 'equal'`).Scan(&place))
		return place
	}
	before := tuple()

	// A lock on the last changed row holds the decision's transaction open.
	lock, err := other.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(ctx) }()
	_, err = lock.Exec(ctx, `SELECT FROM dam WHERE entity = 'changed' FOR UPDATE`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- decide("\x01B", "equal", "changed", "blocked") }()
	locked := func(entity string) bool {
		_, err := other.pool.Exec(ctx, `SELECT FROM dam WHERE entity = $1 FOR UPDATE NOWAIT`, entity)
		return err != nil
	}
	require.Eventually(t, func() bool { return locked("blocked") }, testPatience, testPoll, "its own change is locked")
	assert.False(t, locked("equal"), "a duplicate is not")
	require.NoError(t, lock.Commit(ctx))
	require.NoError(t, <-done)
	assert.Equal(t, before, tuple(), "nor written")
}

// Changes of dam rows stay in their page (heap-only tuples), so that the index
// does not grow. Each row changes once: room that a page gets back depends on who
// else looks at the database.
func TestSwapsStayInTheirPage(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	var inserts, swaps []store.Swap
	for i := range 500 {
		key := store.Key{Service: 1, Entity: fmt.Sprintf("%04d", i)}
		old := change.Content(fmt.Sprintf("\x01%032d", 1))
		inserts = append(inserts, store.Swap{Key: key, Insert: true, New: old, Version: 1})
		if i%10 == 0 {
			swaps = append(swaps, store.Swap{Key: key, Old: old, New: change.Content(fmt.Sprintf("\x01%032d", 2)), Version: 2})
		}
	}
	swap(t, s, inserts...)
	var updates, hot int
	require.NoError(t, s.inTx(ctx, "test", func(tx pgx.Tx) error {
		b := new(pgx.Batch)
		if err := queueSwaps(b, swaps); err != nil {
			return err
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'dam'::regclass`).Scan(&updates, &hot)
	}))
	assert.Equal(t, len(swaps), updates)
	assert.Equal(t, updates, hot)
}

// swap writes dam rows by a decision.
func swap(t *testing.T, s *Store, swaps ...store.Swap) {
	t.Helper()
	revision, err := s.Activate(t.Context(), []byte("c"), false)
	require.NoError(t, err)
	_, err = s.Decide(t.Context(), store.Decision{Revision: revision.Number},
		func(store.Loaded, store.Lookup) (store.Outcome, error) { return store.Outcome{Swaps: swaps}, nil })
	require.NoError(t, err)
}

// The view shows people what the bytes mean.
func TestDamRowsView(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	numbers, err := s.Services(ctx, []string{"acme/ripeness@hook"})
	require.NoError(t, err)
	n := numbers["acme/ripeness@hook"]
	swap(t, s,
		store.Swap{Key: store.Key{Service: n, Entity: "a"}, Insert: true, New: change.Content{2, 0xab, 0xcd}, Version: change.NewVersion(3, 77)},
		store.Swap{Key: store.Key{Service: n, Entity: "b"}, Insert: true, New: change.Retracted(), Version: change.NewVersion(1, 5)},
		store.Swap{Key: store.Key{Service: n, Entity: "c"}, Insert: true, Version: change.NewVersion(1, 5)},
		store.Swap{Key: store.Key{Service: n, Entity: "d"}, Insert: true, New: change.Content{2, 0xab, 0xcd}, Refused: true, Version: change.NewVersion(1, 6)})
	rows, err := s.pool.Query(ctx, `SELECT concat_ws(' ', service, entity, state, coalesce(scheme::text, '-'), coalesce(hash, '-'), generation, "offset") FROM dam_rows ORDER BY entity`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Equal(t, []string{
		"acme/ripeness@hook a upsert 2 abcd 3 77",
		"acme/ripeness@hook b retracted - - 1 5",
		"acme/ripeness@hook c unknown - - 1 5",
		"acme/ripeness@hook d refused 2 abcd 1 6",
	}, lines)
}

// However far apart the rows of a range are, no statement reads more of the dam
// than a stride, and no page misses anything. The mistake that this catches: an
// entity whose rows lie across the end of a stride, or a stride without any.
func TestMovedGoesInStrides(t *testing.T) {
	s, _ := migrated(t)
	const services = 3
	_, err := s.pool.Exec(t.Context(), `INSERT INTO dam (entity, service, version)
		SELECT to_char(n / 3, 'FM0000'), n % 3, CASE WHEN n / 3 % 50 < 2 THEN 7 ELSE 1 END FROM generate_series(0, 599) n`)
	require.NoError(t, err)
	for _, stride := range []int{1, 4, 7, 20, 100, 599, 600, 10_000} {
		s.movedStride = stride
		var pages []string
		for after := ""; ; {
			page, err := s.Moved(t.Context(), 7, 8, after, 3)
			require.NoError(t, err)
			var entities string
			for i, r := range page {
				require.EqualValues(t, i%services, r.Service)
				if i%services == 0 {
					entities += " " + r.Entity
				}
			}
			if pages = append(pages, entities); len(page) < 3*services {
				break
			}
			after = page[len(page)-1].Entity
		}
		assert.Equal(t, []string{" 0000 0001 0050", " 0051 0100 0101", " 0150 0151"}, pages, stride)
	}
}

// Frames are stored as they are, in the page where they fit; dead ones are for
// autovacuum to collect by volume, not by the size of the table.
func TestFramesAreStoredAsTheyCome(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	_, err := s.pool.Exec(ctx, `INSERT INTO outbox (generation, partition, frame) VALUES (1, 0, decode(repeat('00', 7000), 'hex')), (1, 1, decode(repeat('00', 70000), 'hex'))`)
	require.NoError(t, err)
	var sizes []int
	require.NoError(t, s.pool.QueryRow(ctx, `SELECT array_agg(pg_column_size(frame) ORDER BY partition) FROM outbox`).Scan(&sizes))
	assert.Greater(t, sizes[0], 7000, "not compressed again")
	assert.Greater(t, sizes[1], 69_999)
	var pieces int
	var toast string
	require.NoError(t, s.pool.QueryRow(ctx, `SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'outbox'::regclass`).Scan(&toast))
	require.NoError(t, s.pool.QueryRow(ctx, `SELECT count(DISTINCT chunk_id) FROM `+toast).Scan(&pieces))
	assert.Equal(t, 1, pieces, "only what does not fit in a page leaves it")
}

// A build finds tables of another version, or none, before it touches them.
func TestCheckSchema(t *testing.T) {
	s := handle(t, servers.Postgres(t))
	err := s.CheckSchema(t.Context())
	require.ErrorIs(t, err, store.ErrSchema)
	assert.Equal(t, store.Fatal, store.ClassOf(err))
	_, err = s.Active(t.Context())
	assert.Equal(t, store.Fatal, store.ClassOf(err), "%v", err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.CheckSchema(t.Context()))
	_, err = s.pool.Exec(t.Context(), `INSERT INTO weir_schema_version (version_id, is_applied) VALUES (99, true)`)
	require.NoError(t, err)
	require.ErrorIs(t, s.CheckSchema(t.Context()), store.ErrSchema)
}

// Settings that the promise rests on hold whatever the URL or the server say.
func TestSettingsOfEveryConnection(t *testing.T) {
	location := servers.Postgres(t) + "&synchronous_commit=off&plan_cache_mode=auto&application_name=mine"
	s := handle(t, location)
	for name, want := range map[string]string{"synchronous_commit": "on", "plan_cache_mode": "force_generic_plan", "application_name": "mine"} {
		var got string
		require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got))
		assert.Equal(t, want, got, name)
	}
}

// A store whose server is down opens, and says so at each call.
func TestOpenWithoutServer(t *testing.T) {
	s := handle(t, "postgres://weir@127.0.0.1:1/weir?connect_timeout=2")
	assert.Equal(t, store.Retry, store.ClassOf(s.Ping(t.Context())))
	_, err := Open(t.Context(), Options{URL: "postgres://weir:secret@[bad"})
	require.Error(t, err)
	assert.Equal(t, store.Fatal, store.ClassOf(err))
	assert.NotContains(t, err.Error(), "secret")
}
