package postgres

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// As TestPlansUseTheIndexWithStaleStatistics, under the policies of row-level
// security: they must not keep a statement off its index. Rows that exist are
// updated in the order of the arrays, which is what keeps them from dead-locking.
func TestLedgerPlansUseTheIndexWithStaleStatistics(t *testing.T) {
	s, _ := ledger(t)
	ctx := t.Context()
	month := lastMonth(t, s)
	start(t, s, "acme", "k") // opens this month
	conn, err := s.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	analyze(t, conn)
	for _, m := range []time.Time{month, month.AddDate(0, 1, 0)} {
		_, err := conn.Exec(ctx, `ALTER TABLE ledger`+m.Format("_2006_01")+` SET (autovacuum_enabled = off)`)
		require.NoError(t, err)
		runAs(t, s, "weir.pipeline", "on", `INSERT INTO ledger (month, tenant, key, id, fingerprint, made_at, status, body)
			SELECT $1::date, 'acme', $2 || n, gen_random_uuid(), '\x01', $1::date, 202, '{}' FROM generate_series(1, 50000) n`, m, m.String())
		runAs(t, s, "weir.pipeline", "on", `INSERT INTO ledger_decided (month, id, version, key) SELECT $1::date, gen_random_uuid(), 1, gen_random_uuid() FROM generate_series(1, 50000)`, m)
	}
	explain := func(sql, types string) string {
		var args []string // real ones: partitions are left out by them
		for of := range strings.SplitSeq(types, ", ") {
			args = append(args, map[string]string{"text": "'acme'", "int8": fmt.Sprint((60 * 24 * time.Hour).Microseconds())}[of])
			if strings.HasSuffix(of, "[]") {
				args[len(args)-1] = "'{}'"
			}
		}
		_, err := conn.Conn().PgConn().Exec(ctx, "PREPARE p("+types+") AS "+sql).ReadAll()
		require.NoError(t, err, sql)
		rows, err := conn.Query(ctx, "EXPLAIN EXECUTE p("+strings.Join(args, ", ")+")", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		_, err = conn.Conn().PgConn().Exec(ctx, "DEALLOCATE p").ReadAll()
		require.NoError(t, err)
		return strings.Join(lines, "\n")
	}
	for _, statistics := range []string{"of empty tables", "of now"} {
		for _, c := range []struct {
			name, sql, types, index string
		}{
			{"insert", sqlInsertClaims, "text, int8, text[], bytea[], bytea[]", "_key"},
			{"read", sqlReadClaims, "text, int8, text[]", "_key"},
			{"replace", sqlReplaceClaims, "text, uuid[], date[], bytea[], bytea[]", "_id"},
			{"complete", sqlCompleteClaims, "text, uuid[], date[], int4[], bytea[]", "_id"},
			{"other responses", sqlOtherResponses, "text, uuid[], date[], int4[], bytea[]", "_id"},
			{"load decided", sqlLoadDecided, "uuid[], uuid[]", "_pkey"},
			{"load keys", sqlLoadDecided, "uuid[], uuid[]", "_use"},
			{"take keys", sqlTakeKeys, "uuid[]", "_pkey"},
			{"put decided", sqlPutDecided, "uuid[], int8[], uuid[], bytea[]", ""},
		} {
			plan := explain(c.sql, c.types)
			what := fmt.Sprintf("%s, statistics %s:\n%s", c.name, statistics, plan)
			for _, bad := range []string{"Seq Scan", "Hash Join", "Merge Join", "Hash Semi", "Merge Semi", "Hash Anti", "Merge Anti"} {
				assert.NotContains(t, plan, bad, what)
			}
			assert.Contains(t, plan, c.index, what)
			if updates := strings.HasPrefix(plan, "Update"); updates && c.index == "_id" {
				nested, keys, rows := strings.Index(plan, "Nested Loop"), strings.Index(plan, "Function Scan"), strings.Index(plan, "_id")
				assert.True(t, 0 < nested && nested < keys && keys < rows, "the rows are looked up key by key: %s", what)
			}
		}
		analyze(t, conn)
	}
}

// BenchmarkLedger is a request's part of the database: claim and complete, of
// one key and of a batch.
func BenchmarkLedger(b *testing.B) {
	s, _ := ledger(b)
	next := 0
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			for b.Loop() {
				intents := make([]store.ClaimRequest, n)
				for i := range intents {
					next++
					intents[i].Key = fmt.Sprintf("event:registry:%d-%d", next%97, next)
				}
				claimed, err := s.BeginClaims(b.Context(), "acme", intents, 24*time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				done := make([]store.Completion, n)
				for i := range done {
					done[i] = store.Completion{ID: claimed[i].ID, Response: store.Response{Status: 202, Body: []byte(`{"status":"accepted","claim":"0199a3e4-7c1b-7d20-8a3b-0123456789ab"}`)}}
				}
				if _, err := s.CompleteClaims(b.Context(), "acme", done); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
