package postgres

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
	"github.com/seed-86dfc502/weir/store/storetest"
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

// plain has the statements of both databases.
var plain = &shared.Statements

// manyRows fills the tables behind the statistics' back.
var manyRows = []string{
	`ALTER TABLE dam SET (autovacuum_enabled = off)`,
	`ALTER TABLE entities SET (autovacuum_enabled = off)`,
	`ALTER TABLE frames SET (autovacuum_enabled = off)`,
	`INSERT INTO dam (entity, page, states) SELECT 'banana-' || n / 5, 1 + n % 5, '' FROM generate_series(1, 100000) n`,
	`INSERT INTO entities (id, docs, version, writes, states) SELECT 'banana-' || n, '{}', 1, 1, '' FROM generate_series(1, 20000) n`,
	`INSERT INTO frames (partition, upto, written, body, total) SELECT n % 8, n, now() + n * interval '1 s', '', 0 FROM generate_series(1, 100000) n`,
	`INSERT INTO dead_letters (stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, dedup_key, position)
	 SELECT 'deliver', '', '', '', '', '', '', 1, '', 0, 0, '', int4send(n), 0 FROM generate_series(1, 20000) n`,
	`INSERT INTO deliveries (service, entity, at, version, outcome, status, answer, ms)
	 SELECT n % 5, 'banana-' || n, '2026-03-01'::timestamptz + n * interval '1 s', 1, '', 0, '', 0 FROM generate_series(1, 50000) n`,
	`INSERT INTO audit (actor, action, reason, entity, service) SELECT '', '', '', '', '' FROM generate_series(1, 20000) n`,
	`INSERT INTO jobs (tenant, kind, key, parameters, state, actor) SELECT '', 'replay', n::text, '{}', 'done', '' FROM generate_series(1, 20000) n`,
	`INSERT INTO watermarks (generation, partition, next_offset, last_to, token, doubt) SELECT g, n, 0, 0, '', 0 FROM generate_series(0, 63) n, generate_series(1, 3) g`,
	`INSERT INTO progress (partition, token, positions, top, session) SELECT n, '', '', 0, now() FROM generate_series(0, 63) n`,
	`INSERT INTO progress_marks (partition, service, mark) SELECT n, k, '' FROM generate_series(0, 63) n, generate_series(1, 500) k`,
	`INSERT INTO checks (entity, service, revision, content, version, delivered_version) SELECT 'banana-' || n, n % 5, 1, '\x01', 1, 0 FROM generate_series(1, 20000) n`,
}

// parameterTypes are those of the statements of the flow.
var parameterTypes = map[string]string{
	sqlUpdateEntities: "text[], text[], bytea[], int8[], bytea[], timestamptz[], int8[], bytea[], int8",
	sqlInsertEntities: "text[], text[], bytea[], int8[], bytea[], timestamptz[], int8[], bytea[], int8",
	sqlPutPages:       "text[], int4[], bytea[]", sqlLoadPages: "text[]", sqlReadRows: "text[]", sqlReadPages: "text[], int4[]",
	sqlPurgePages: "text[]", sqlPurgeEntities: "text[]", plain.Tombstones.Postgres: "timestamptz, timestamptz, text, int4",
	sqlLoad: "text[]", sqlHold: "int4[], int4[], int8[], bytea[]", sqlExpectHeld: "int4[], int4[], int8[], bytea[], int8",
	sqlMove:     "int4[], int4[], int8[], bytea[], int8[], int8[], int8",
	sqlTakeOver: "int4[], int4[], bytea, int8", plain.Tail.Postgres: "int4, int8, int8", plain.DropFrames.Postgres: "int8, timestamptz, int8", sqlPutFrames: "int4[], int8[], bytea[]",
	sqlTakeProgress: "int4[], bytea", sqlProgressOf: "int4[]", sqlSwapProgress: "int8, int4[], bytea[], bytea[], bytea[], int8[], int4[], int4[], bytea[]",
	plain.CountLetters.Postgres: "text, int4", plain.PruneLetters.Postgres: "timestamptz, int4", plain.PruneAudit.Postgres: "timestamptz, int4", plain.PruneJobs.Postgres: "timestamptz, int4",
	plain.RetryingOf.Postgres: "int8[]", plain.RetryingByKey.Postgres: "bytea", plain.EndRetrying.Postgres: "bytea",
	plain.AttemptsOf.Postgres:   "text, timestamptz, timestamptz, int4, int4",
	plain.AttemptsStep.Postgres: "timestamptz, timestamptz, int8[], int4", plain.DeleteAttempts.Postgres: "timestamptz, timestamptz, int8[]",
	sqlPageEntities: "text, int4", sqlPageStates: "text, int4",
	plain.CheckRows.Postgres: "text[], int8[]", plain.SwapCheck.Postgres: "bytea, int8, int8, bytea, bytea, text, int4, int8", plain.ServiceChecks.Postgres: "text, int4, int4",
}

// Every statement that touches a table which grows must find its rows by an
// index, under any statistics: here they are from when the tables held
// nothing, and 200,000 rows came since. The mistake it catches: a plan that is
// right for few parameters, or for a small table, and reads the whole table.
func TestPlansUseTheIndexWithStaleStatistics(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	conn, err := s.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	analyze(t, conn) // statistics of empty tables
	for _, sql := range manyRows {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	for _, statistics := range []string{"of empty tables", "of now"} {
		for sql, types := range parameterTypes {
			name := "p" + fmt.Sprint(len(sql))
			n := strings.Count(types, ",") + 1
			_, err := conn.Conn().PgConn().Exec(ctx, "PREPARE "+name+"("+types+") AS "+sql).ReadAll()
			require.NoError(t, err, sql)
			// Generic for all parameters: plan_cache_mode forces it.
			rows, err := conn.Query(ctx, "EXPLAIN EXECUTE "+name+"(NULL"+strings.Repeat(", NULL", n-1)+")", pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			for _, bad := range []string{"Seq Scan", "Hash Join", "Merge Join", "Hash Semi", "Merge Semi"} {
				assert.NotContains(t, plan, bad, "statistics %s, statement %s", statistics, sql)
			}
			if strings.Contains(sql, "ORDER BY") && strings.HasPrefix(sql, "DELETE") {
				assert.Regexp(t, "Index (Only )?Scan using (dead_letters_last|audit_time|jobs_updated|frames_written) on", plan)
				assert.Regexp(t, "Index Scan (using|on) (dead_letters|audit|jobs|frames)_pkey", plan)
				assert.NotContains(t, plan, "Sort", "the oldest first")
			}
			if sql == plain.Tombstones.Postgres {
				assert.Contains(t, plan, "entities_deleted")
				assert.NotContains(t, plan, "Sort", "a page reads no younger ones")
			}
			if sql == plain.Tail.Postgres {
				assert.Regexp(t, "Limit.*\n.*Index Scan using frames_pkey", plan, "a page reads no more")
			}
			if sql == sqlHold || sql == sqlExpectHeld || sql == sqlMove || sql == sqlSwapProgress {
				assert.NotContains(t, plan, "Sort", "rows are locked in the order of their keys")
			}
			if sql == sqlPageStates || sql == sqlPageEntities {
				assert.Contains(t, plan, "entities_pkey")
				assert.Contains(t, plan, "dam_pkey")
				assert.NotContains(t, plan, "Sort", "the order of the key")
			}
			if sql == sqlUpdateEntities || sql == sqlLoad {
				assert.Contains(t, plan, "entities_pkey")
				assert.Contains(t, plan, "Nested Loop")
			}
			_, err = conn.Conn().PgConn().Exec(ctx, "DEALLOCATE "+name).ReadAll()
			require.NoError(t, err)
		}
		analyze(t, conn)
	}
}

// A page of dead letters is read in the order of the key, from either end, and one of
// an entity by the index of entities. The mistake that this catches: all of them
// are read and sorted for fifty.
func TestPagesOfLettersAreReadByAnIndex(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	conn, err := s.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{
		`INSERT INTO dead_letters (stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, dedup_key, position)
		 SELECT 'deliver', 'refused', '', '', 'a/p@s' || n % 3, 'banana-' || n / 5, '', 1, '', 0, 0, '', int4send(n), 0 FROM generate_series(1, 20000) n`,
		`ANALYZE dead_letters`,
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	for _, sql := range []string{plain.ListLetters.Postgres, plain.NewestLetters.Postgres} {
		for index, f := range map[string]store.LetterFilter{
			"dead_letters_pkey":   {State: store.LetterOpen, Service: "a/p@s1"},
			"dead_letters_entity": {State: store.LetterOpen, Entity: "banana-7"},
		} {
			b := new(pgx.Batch)
			b.Queue(sqlPlanByParameters)
			b.Queue("EXPLAIN "+sql, string(f.Stage), f.Source, f.Service, f.Entity, f.Code, string(f.State), 10_000, 50)
			results := conn.SendBatch(ctx, b)
			_, err := results.Exec()
			require.NoError(t, err)
			rows, err := results.Query()
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.NoError(t, results.Close())
			plan := strings.Join(lines, "\n")
			assert.Contains(t, plan, index)
			if index == "dead_letters_pkey" { // those of one entity are few
				assert.NotContains(t, plan, "Sort", sql)
			}
		}
	}
}

// An entity that a decision only looked at is neither written nor locked: while the
// decision holds its transaction open, others lock it.
func TestWhatIsNotWrittenIsNotLocked(t *testing.T) {
	s, url := migrated(t)
	other := handle(t, url)
	ctx := t.Context()
	revision, err := s.Activate(ctx, []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	decide := func(of string, entities ...string) error {
		return s.Decide(ctx, store.Decision{Revision: revision.Number, Entities: entities}, func(loaded store.Loaded) (out store.Outcome, _ error) {
			for _, e := range loaded.Entities {
				if !e.Found || e.ID != "equal" {
					e.States.Set(store.Row{Key: store.Key{Service: 1}, Content: change.Hashed(1, sha256.Sum256([]byte(of)))})
					out.Entities = append(out.Entities, e)
				}
			}
			return out, nil
		})
	}
	require.NoError(t, decide("\x01A", "blocked", "changed", "equal"))
	tuple := func() (place string) { // it changes with every write
		require.NoError(t, other.pool.QueryRow(ctx, `SELECT concat_ws(' ', ctid, xmin) FROM entities WHERE id = 'equal'`).Scan(&place))
		return place
	}
	before := tuple()

	// A lock on the last changed row holds the decision's transaction open.
	lock, err := other.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(ctx) }()
	_, err = lock.Exec(ctx, `SELECT FROM entities WHERE id = 'changed' FOR UPDATE`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- decide("\x01B", "equal", "changed", "blocked") }()
	locked := func(entity string) bool {
		_, err := other.pool.Exec(ctx, `SELECT FROM entities WHERE id = $1 FOR UPDATE NOWAIT`, entity)
		return err != nil
	}
	require.Eventually(t, func() bool { return locked("blocked") }, testPatience, testPoll, "its own change is locked")
	assert.False(t, locked("equal"), "what does not change is not")
	require.NoError(t, lock.Commit(ctx))
	require.NoError(t, <-done)
	assert.Equal(t, before, tuple(), "nor written")
}

// Changes of entities and of their dam states stay in their page (heap-only tuples),
// so that the index does not grow. Each row changes once: room that a page gets back
// depends on who else looks at the database.
func TestStatesStayInTheirPage(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	const services = 20
	revision, err := s.Activate(ctx, []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	docs := fmt.Appendf(nil, `{"registry":{"a":"%0600d"}}`, 0)
	var all, some []store.Entity
	for i := range 500 {
		e := store.Entity{ID: fmt.Sprintf("%04d", i), Docs: docs, Fence: make([]byte, 200)}
		for n := range int32(services) {
			e.States.Set(store.Row{Key: store.Key{Service: n}, Content: change.Content(fmt.Sprintf("\x01%032d", n))})
			e.States.Set(store.Row{Key: store.Key{Service: store.PageServices + n}, Content: change.Content(fmt.Sprintf("\x01%032d", n))})
		}
		all = append(all, e)
		if i%10 == 0 {
			e.Writes, e.States = 1, e.States.Stored()
			e.States.Set(store.Row{Key: store.Key{Service: 1}, Content: change.Retracted()})
			e.States.Set(store.Row{Key: store.Key{Service: store.PageServices}, Content: change.Retracted()})
			some = append(some, e)
		}
	}
	err = s.Decide(ctx, store.Decision{Revision: revision.Number}, func(store.Loaded) (store.Outcome, error) { return store.Outcome{Entities: all}, nil })
	require.NoError(t, err)
	require.NoError(t, s.inTx(ctx, "test", func(tx pgx.Tx) error {
		b := new(pgx.Batch)
		if err := queueEntities(b, some); err != nil {
			return err
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		for _, table := range []string{"entities", "dam"} {
			var updates, hot int
			if err := tx.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = $1::text::regclass`, table).Scan(&updates, &hot); err != nil {
				return err
			}
			assert.Equal(t, len(some), updates, table)
			assert.Equal(t, updates, hot, table)
		}
		return nil
	}))
}

// The view shows people the meaning of the bytes.
func TestDamRowsView(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	storetest.DamRows(t, s, func(sql string) []string {
		rows, err := s.pool.Query(ctx, sql)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return lines
	})
}
