package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// The delivery history is a partition for each day on which attempts are written, by
// the database's clock, not those of processes: there are few, and they are dropped in
// their order. A partition of expired rows is dropped whole; from others rows are
// deleted in steps.
//
// The index has a few bytes per 32 pages: a Bloom filter of their
// entities and the range of times. Ranges that are not summarized yet are read.
//
// The attempts of purged entities are hidden by the decision and deleted then.
// A purge does not correct delivery_days: a day that had some of its rows purged keeps
// its count.
const (
	today = `(now() AT TIME ZONE 'UTC')::date`

	// For the history alone a commit need not wait for the disk.
	sqlAsynchronous = `SELECT set_config('synchronous_commit', 'off', true)`

	sqlAddAttempts = `
INSERT INTO deliveries (day, service, entity, at, version, outcome, status, answer, ms)
SELECT ` + today + `, * FROM unnest($1::int4[], $2::text[], $3::timestamptz[], $4::int8[], $5::text[], $6::int4[], $7::bytea[], $8::int8[])`

	// In the order of services, in which all lock them.
	sqlCountAttempts = `
INSERT INTO delivery_days AS d (day, service, attempts, bytes)
SELECT ` + today + `, * FROM unnest($1::int4[], $2::int8[], $3::int8[])
ON CONFLICT (day, service) DO UPDATE SET attempts = d.attempts + excluded.attempts, bytes = d.bytes + excluded.bytes`

	sqlMakeDays = `SELECT weir_deliveries_day(` + today + `), weir_deliveries_day(` + today + ` + 1)`

	attemptColumns = `service, entity, at, version, outcome, status, answer, ms`

	sqlAttempts = `
SELECT ` + attemptColumns + ` FROM deliveries d
WHERE at >= $1 AND at < $2 AND ($3::int4[] IS NULL OR service = ANY($3))
AND NOT EXISTS (SELECT FROM deliveries_purged p WHERE p.entity = d.entity AND d.at <= p.at)`
	sqlServiceAttempts = sqlAttempts + ` ORDER BY at DESC, version DESC LIMIT $4`
	sqlEntityAttempts  = sqlAttempts + ` AND entity = $5 ORDER BY at DESC, version DESC LIMIT $4`

	sqlPurgeAttempts = `
INSERT INTO deliveries_purged (entity, at) SELECT DISTINCT k.entity, now() FROM unnest($1::text[]) AS k(entity) ORDER BY 1
ON CONFLICT (entity) DO UPDATE SET at = excluded.at`

	// Attempts may have been on their way to the store when their entity was purged.
	sqlForgetPurged = `DELETE FROM deliveries_purged WHERE at < $1::timestamptz - interval '1 hour'`
	sqlDeletePurged = `
DELETE FROM deliveries d USING deliveries_purged p
WHERE d.day = $1 AND d.ctid >= $2::text::tid AND d.ctid < $3::text::tid AND d.entity = p.entity AND d.at <= p.at`

	// Neither is read once for each row of the other.
	sqlPlanPurged = `SET LOCAL enable_hashjoin = on; SET LOCAL enable_nestloop = off`

	sqlAttemptDays = `SELECT now(), day, service, attempts, bytes FROM delivery_days`

	sqlAttemptPartitions = `
SELECT to_date(right(c.relname, 10), 'YYYY_MM_DD'), c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'deliveries'::regclass ORDER BY 1`

	sqlAttemptBlocks = `
SELECT to_date(right(c.relname, 10), 'YYYY_MM_DD'), pg_relation_size(c.oid) / current_setting('block_size')::int8
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'deliveries'::regclass AND EXISTS (SELECT FROM deliveries_purged) ORDER BY 1`

	// The newest attempt that goes when this many stay.
	sqlLastToGo = `SELECT at FROM deliveries WHERE day = $1 AND service = $2 ORDER BY at DESC OFFSET $3 LIMIT 1`

	// A row that another process is deleting is passed over.
	sqlTrimAttempts = `
WITH gone AS (
  DELETE FROM deliveries WHERE day = $1 AND ctid = ANY(ARRAY(
    SELECT ctid FROM deliveries WHERE day = $1 AND service = $2 AND at <= $3 LIMIT $4 FOR UPDATE SKIP LOCKED))
  RETURNING octet_length(entity) + octet_length(answer) + $5::int8 AS size),
counted AS (
  UPDATE delivery_days SET attempts = attempts - (SELECT count(*) FROM gone), bytes = bytes - (SELECT coalesce(sum(size), 0) FROM gone)
  WHERE day = $1 AND service = $2)
SELECT count(*) FROM gone`
)

// trimStep is how many attempts one transaction deletes.
const trimStep = 20_000

// purgeStep is how many blocks of a day one transaction looks through for attempts of
// purged entities: 128 MiB, so that the server is never silent for long.
const purgeStep = 16_384

// AddAttempts implements store.Attempts. It is one round trip, but for the first on
// a day without a partition.
func (s *Store) AddAttempts(ctx context.Context, attempts []store.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	err := s.addAttempts(ctx, attempts)
	if pg := pgError(err); pg != nil && pg.Code == "23514" { // no partition for the row
		if _, err := s.pool.Exec(ctx, sqlMakeDays); err != nil {
			return failed("make a day of the delivery history", err)
		}
		err = s.addAttempts(ctx, attempts)
	}
	return failedCommit("add attempts", err)
}

func (s *Store) addAttempts(ctx context.Context, attempts []store.Attempt) error {
	n := len(attempts)
	services, statuses := make([]int32, n), make([]int32, n)
	entities, outcomes := make([]string, n), make([]string, n)
	ats, answers := make([]time.Time, n), make([][]byte, n)
	versions, took := make([]int64, n), make([]int64, n)
	for i := range attempts {
		a := &attempts[i]
		services[i], entities[i], ats[i], versions[i] = a.Service, a.Entity, a.At, int64(a.Version)
		outcomes[i], statuses[i], answers[i], took[i] = a.Outcome, int32(a.Status), notNil(a.Answer), a.Took.Milliseconds()
	}
	days := store.AttemptDays(attempts)
	counted, counts, bytes := make([]int32, len(days)), make([]int64, len(days)), make([]int64, len(days))
	for i, d := range days {
		counted[i], counts[i], bytes[i] = d.Service, d.Attempts, d.Bytes
	}
	// A pipeline without BEGIN is one transaction.
	b := new(pgx.Batch)
	b.Queue(sqlAsynchronous)
	b.Queue(sqlAddAttempts, services, entities, ats, versions, outcomes, statuses, answers, took)
	b.Queue(sqlCountAttempts, counted, counts, bytes)
	return s.pool.SendBatch(ctx, b).Close()
}

// endOfTime is after every attempt.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// ListAttempts implements store.Attempts.
func (s *Store) ListAttempts(ctx context.Context, f store.AttemptFilter) ([]store.Attempt, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	if f.Until.IsZero() {
		f.Until = endOfTime
	}
	sql, args := sqlServiceAttempts, []any{f.Since, f.Until, f.Services, f.Limit}
	if f.Entity != "" {
		sql, args = sqlEntityAttempts, append(args, f.Entity)
	}
	attempts, err := list(ctx, s.pool, func(row pgx.Row) (a store.Attempt, err error) {
		var version, ms int64
		err = row.Scan(&a.Service, &a.Entity, &a.At, &version, &a.Outcome, &a.Status, &a.Answer, &ms)
		a.Version, a.Took = change.Version(version), time.Duration(ms)*time.Millisecond
		return a, err
	}, sql, args...)
	return attempts, failed("list attempts", err)
}

// RetainAttempts implements store.Attempts. Dropping a partition waits retainPatience
// at most for those who read or write the history.
func (s *Store) RetainAttempts(ctx context.Context, bounds map[int32]store.AttemptBound, others store.AttemptBound) (removed int64, err error) {
	if _, err := s.pool.Exec(ctx, sqlMakeDays); err != nil {
		return 0, failed("make days of the delivery history", err)
	}
	days, now, err := s.attemptDays(ctx)
	if err != nil {
		return 0, err
	}
	trims := store.TrimAttempts(now, days, bounds, others)
	today := store.DayOf(now)
	stay := map[time.Time]int{today: 1, today.AddDate(0, 0, 1): 1} // services that keep some of a day
	for _, d := range days {
		stay[d.Day]++
	}
	for _, t := range trims {
		if t.Keep == 0 {
			stay[t.Day]--
		}
	}
	for _, t := range trims {
		n := t.Attempts
		if stay[t.Day] > 0 {
			n, err = s.trimAttempts(ctx, t)
		}
		removed += n
		if err != nil {
			return removed, err
		}
	}
	if err := s.dropAttemptDays(ctx, func(day time.Time) bool { return stay[day] == 0 }); err != nil {
		return removed, err
	}
	purged, err := s.deletePurged(ctx, now, purgeStep)
	return removed + purged, err
}

// deletePurged deletes the attempts of purged entities, by step blocks at a time: what
// is deleted stays so when a later step fails. Purges of the hour before now stay for
// the next pass.
func (s *Store) deletePurged(ctx context.Context, now time.Time, step int64) (n int64, err error) {
	type part struct {
		day    time.Time
		blocks int64
	}
	parts, err := list(ctx, s.pool, func(row pgx.Row) (p part, err error) {
		var blocks *int64 // nil: the day was just dropped
		if err = row.Scan(&p.day, &blocks); blocks != nil {
			p.blocks = *blocks
		}
		return p, err
	}, sqlAttemptBlocks)
	if err != nil {
		return 0, failed("delete purged attempts", err)
	}
	for _, p := range parts {
		for at := int64(0); at < p.blocks; at += step {
			deleted, err := s.deletePurgedOf(ctx, p.day, at, at+step)
			n += deleted
			if err != nil {
				return n, err
			}
		}
	}
	if len(parts) > 0 {
		_, err = s.pool.Exec(ctx, sqlForgetPurged, now)
	}
	return n, failed("forget purges", err)
}

// deletePurgedOf deletes the attempts of purged entities in some blocks of a day.
func (s *Store) deletePurgedOf(ctx context.Context, day time.Time, from, to int64) (n int64, err error) {
	err = s.inTx(ctx, "delete purged attempts", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlPlanPurged, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlDeletePurged, day, fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", to))
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// attemptDays reads the sums by day, and the database's time.
func (s *Store) attemptDays(ctx context.Context) (days []store.AttemptDay, now time.Time, err error) {
	var d store.AttemptDay
	err = each(ctx, s.pool, []any{&now, &d.Day, &d.Service, &d.Attempts, &d.Bytes}, func() { days = append(days, d) }, sqlAttemptDays)
	if err == nil && now.IsZero() {
		err = s.pool.QueryRow(ctx, "SELECT now()").Scan(&now)
	}
	return days, now, failed("read the days of the delivery history", err)
}

// trimAttempts deletes the oldest attempts of a day, in steps.
func (s *Store) trimAttempts(ctx context.Context, t store.AttemptTrim) (removed int64, err error) {
	last := endOfTime
	if t.Keep > 0 {
		found, err := list(ctx, s.pool, scanValue[time.Time], sqlLastToGo, t.Day, t.Service, t.Keep)
		if err != nil || len(found) == 0 {
			return 0, failed("trim the delivery history", err)
		}
		last = found[0]
	}
	for {
		var n int64
		if err := s.pool.QueryRow(ctx, sqlTrimAttempts, t.Day, t.Service, last, trimStep, store.AttemptOverhead).Scan(&n); err != nil {
			return removed, failed("trim the delivery history", err)
		}
		removed += n
		if n < trimStep {
			break
		}
	}
	if t.Keep > 0 {
		return removed, nil
	}
	// Attempts that were purged before are still counted. Of today more may have come.
	_, err = s.pool.Exec(ctx, `DELETE FROM delivery_days WHERE day = $1 AND service = $2 AND day < `+today, t.Day, t.Service)
	return removed, failed("trim the delivery history", err)
}

// dropAttemptDays drops the partitions of days that are over.
func (s *Store) dropAttemptDays(ctx context.Context, isOver func(day time.Time) bool) error {
	return s.inTx(ctx, "drop days of the delivery history", func(tx pgx.Tx) error {
		var day time.Time
		var name string
		over := map[string]time.Time{}
		if err := each(ctx, tx, []any{&day, &name}, func() {
			if isOver(day) {
				over[name] = day
			}
		}, sqlAttemptPartitions); err != nil || len(over) == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+retainPatience+`'`); err != nil {
			return err
		}
		for name, day := range over {
			if _, err := tx.Exec(ctx, "DROP TABLE "+pgx.Identifier{name}.Sanitize()); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `DELETE FROM delivery_days WHERE day = $1`, day); err != nil {
				return err
			}
		}
		return nil
	})
}

const defaultLimit = 100
