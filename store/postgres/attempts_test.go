package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// A day that is over goes with its partition; where a service keeps it longer, only
// the rows of the others do. Partitions for today and tomorrow are there before
// anybody writes.
func TestDaysOfTheHistoryAreDropped(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	days := func() (names []string) {
		rows, err := s.pool.Query(ctx, sqlAttemptPartitions)
		require.NoError(t, err)
		for rows.Next() {
			var day time.Time
			var name string
			require.NoError(t, rows.Scan(&day, &name))
			names = append(names, name)
		}
		require.NoError(t, rows.Err())
		return names
	}
	var now time.Time
	require.NoError(t, s.pool.QueryRow(ctx, "SELECT now()").Scan(&now))
	part := func(ago int) string { return "deliveries" + store.DayOf(now).AddDate(0, 0, -ago).Format("_2006_01_02") }
	write := func(ago int, service int32, n int) {
		day := store.DayOf(now).AddDate(0, 0, -ago)
		_, err := s.pool.Exec(ctx, "SELECT weir_deliveries_day($1)", day)
		require.NoError(t, err)
		_, err = s.pool.Exec(ctx, `INSERT INTO deliveries (day, service, entity, at, version, outcome, status, answer, ms)
			SELECT $1, $2, 'e' || n, $3::timestamptz + n * interval '1 ms', n, 'delivered', 200, '', 1 FROM generate_series(1, $4) n`, day, service, day.Add(time.Hour), n)
		require.NoError(t, err)
		_, err = s.pool.Exec(ctx, `INSERT INTO delivery_days (day, service, attempts, bytes) VALUES ($1, $2, $3::int8, $3::int8 * 130)`, day, service, n)
		require.NoError(t, err)
	}
	week, month := store.AttemptBound{Keep: 7 * 24 * time.Hour, MaxBytes: 1 << 30}, store.AttemptBound{Keep: 30 * 24 * time.Hour, MaxBytes: 1 << 30}
	write(9, 1, 3)
	write(9, 2, 3) // a service that keeps it longer
	write(8, 1, trimStep+7)
	write(6, 1, 3)
	_, err := s.pool.Exec(ctx, "SELECT weir_deliveries_day($1)", store.DayOf(now).AddDate(0, 0, -3)) // nobody wrote
	require.NoError(t, err)
	n, err := s.RetainAttempts(ctx, map[int32]store.AttemptBound{1: week, 2: month}, week)
	require.NoError(t, err)
	require.EqualValues(t, 3+trimStep+7, n)
	require.Equal(t, []string{part(9), part(6), part(0), part(-1)}, days())
	left, err := s.ListAttempts(ctx, store.AttemptFilter{Services: []int32{1, 2}, Limit: 1000})
	require.NoError(t, err)
	require.Len(t, left, 6)

	// Of the day that remains in part, all steps of the older rows go.
	write(5, 3, 2*trimStep+100)
	n, err = s.RetainAttempts(ctx, map[int32]store.AttemptBound{1: week, 2: month, 3: {Keep: week.Keep, MaxBytes: 130 * 100}}, week)
	require.NoError(t, err)
	require.EqualValues(t, 2*trimStep+10, n)
	left, err = s.ListAttempts(ctx, store.AttemptFilter{Services: []int32{3}, Limit: 1000})
	require.NoError(t, err)
	require.Len(t, left, 90)
	require.Equal(t, fmt.Sprint("e", 2*trimStep+100), left[0].Entity)
	require.NoError(t, s.AddAttempts(ctx, []store.Attempt{{Service: 1, Entity: "new", At: now}}))
}

// I7: what was deleted of purged entities stays deleted when a later step fails, so a
// large history comes to its end. Each step reads its own blocks, and these once.
func TestPurgedAttemptsGoInSteps(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	const attempts = 1000
	var now time.Time
	require.NoError(t, s.pool.QueryRow(ctx, "SELECT now()").Scan(&now))
	_, err := s.pool.Exec(ctx, sqlMakeDays)
	require.NoError(t, err)
	_, err = s.pool.Exec(ctx, `INSERT INTO deliveries (day, service, entity, at, version, outcome, status, answer, ms)
		SELECT $1, 1, 'gone', $2::timestamptz - interval '1 day', n, 'delivered', 200, '', 1 FROM generate_series(1, $3) n`, store.DayOf(now), now, attempts)
	require.NoError(t, err)
	_, err = s.pool.Exec(ctx, `INSERT INTO deliveries_purged (entity, at) VALUES ('gone', $1::timestamptz - interval '2 hours')`, now)
	require.NoError(t, err)
	left := func() (attempts, purges int) {
		require.NoError(t, s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM deliveries), (SELECT count(*) FROM deliveries_purged)`).Scan(&attempts, &purges))
		return attempts, purges
	}

	lock, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(ctx) }()
	var pid int32
	require.NoError(t, lock.QueryRow(ctx, `SELECT pg_backend_pid() FROM deliveries WHERE version = $1 FOR UPDATE`, attempts).Scan(&pid))
	broken, fail := context.WithCancel(ctx)
	defer fail()
	done := make(chan int64, 1)
	go func() {
		n, err := s.deletePurged(broken, now, 2)
		assert.Error(t, err)
		done <- n
	}()
	behind(t, s, pid)
	fail()
	n := <-done
	require.Positive(t, n)
	rest, purges := left()
	require.EqualValues(t, attempts-n, rest)
	require.Positive(t, rest)
	require.Equal(t, 1, purges)
	require.NoError(t, lock.Rollback(ctx))
	again, err := s.deletePurged(ctx, now, 2)
	require.NoError(t, err)
	require.EqualValues(t, rest, again)
	rest, purges = left()
	require.Zero(t, rest)
	require.Zero(t, purges)

	require.NoError(t, s.inTx(ctx, "test", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlPlanPurged, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		lines, err := list(ctx, tx, scanValue[string], "EXPLAIN "+sqlDeletePurged, store.DayOf(now), "(0,0)", "(2,0)")
		plan := strings.Join(lines, "\n")
		assert.Contains(t, plan, "Tid Range Scan")
		assert.Contains(t, plan, "Hash Join")
		return err
	}))
}
