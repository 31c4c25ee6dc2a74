package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// The delivery history is one table in the order in which it was written, without an
// index: each row of it would dirty a page, which costs ten times as much. Who asks
// for an entity reads the table. Expired rows are deleted in steps, so that no writer
// waits long for the file; the attempts of purged entities are hidden by the
// decision, and go then.
//
// A purge does not correct delivery_days: a day that had some of its rows purged
// keeps its count.
var (
	// As many rows in one statement as group, and one.
	sqlAddGroup   = sqlAddAttempts(addGroup) //nolint:gochecknoglobals // nobody changes it
	sqlAddAttempt = sqlAddAttempts(1)        //nolint:gochecknoglobals // nobody changes it
)

func sqlAddAttempts(n int) string {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
	return `INSERT INTO deliveries (day, service, entity, at, version, outcome, status, answer, ms) VALUES ` + row + strings.Repeat(", "+row, n-1)
}

// addGroup is how many attempts one statement writes.
const addGroup = 50

const (
	sqlCountAttempts = `
INSERT INTO delivery_days (day, service, attempts, bytes) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (day, service) DO UPDATE SET attempts = attempts + ?3, bytes = bytes + ?4`

	sqlAttempts = `
SELECT service, entity, at, version, outcome, status, answer, ms FROM deliveries d
WHERE at >= ?1 AND at < ?2 AND (?3 IS NULL OR service IN (SELECT value FROM json_each(?3))) AND (?5 = '' OR entity = ?5)
AND NOT EXISTS (SELECT 1 FROM deliveries_purged p WHERE p.entity = d.entity AND d.id <= p.through)
ORDER BY id DESC LIMIT ?4`

	sqlPurgeAttempts = `
INSERT INTO deliveries_purged (entity, through) SELECT ?, coalesce(max(id), 0) FROM deliveries WHERE true
ON CONFLICT (entity) DO UPDATE SET through = excluded.through`

	sqlPurges       = `SELECT coalesce(max(through), -1), count(*) FROM deliveries_purged`
	sqlDeletePurged = `
DELETE FROM deliveries WHERE id > ?1 AND id <= ?2 AND EXISTS (
  SELECT 1 FROM deliveries_purged p WHERE p.entity = deliveries.entity AND deliveries.id <= p.through)`
	// An entity that was purged during the pass may have its last attempt among those
	// that the pass had behind it. Then all stay for the next one.
	sqlForgetPurged = `
DELETE FROM deliveries_purged WHERE through <= ?1 AND (SELECT count(*) FROM deliveries_purged WHERE through <= ?1) = ?2`

	sqlAttemptDays = `SELECT day, service, attempts, bytes FROM delivery_days`

	// The next rows in the order in which they were written.
	sqlNextAttempts = `
SELECT day, service, max(id) FROM (SELECT id, day, service FROM deliveries WHERE id > ? ORDER BY id LIMIT ?) GROUP BY day, service`

	sqlTrimAttempts = `
DELETE FROM deliveries WHERE id IN (
  SELECT id FROM deliveries WHERE id > ?1 AND id <= ?2 AND day = ?3 AND service = ?4 ORDER BY id LIMIT ?5)
RETURNING length(CAST(entity AS BLOB)) + length(answer)`

	sqlCountTrimmed = `UPDATE delivery_days SET attempts = attempts - ?3, bytes = bytes - ?4 WHERE day = ?1 AND service = ?2`
	sqlForgetDay    = `DELETE FROM delivery_days WHERE day = ?1 AND service = ?2`
)

// trimStep is how many rows are looked at in one transaction.
const trimStep = 2000

func dayNumber(t time.Time) int64 { return store.DayOf(t).Unix() / (24 * 60 * 60) }

func dayOfNumber(n int64) time.Time { return time.Unix(n*24*60*60, 0).UTC() }

// AddAttempts implements store.Attempts.
func (s *Store) AddAttempts(ctx context.Context, attempts []store.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	days := store.AttemptDays(attempts)
	return s.write(ctx, "add attempts", func(t tx) error {
		day := dayNumber(s.now())
		for group := range slices.Chunk(attempts, addGroup) {
			if err := t.addAttempts(day, group); err != nil {
				return err
			}
		}
		return each(t.ctx, t.conn, sqlCountAttempts, len(days), func(i int, statement *sql.Stmt) error {
			_, err := t.exec(statement, day, days[i].Service, days[i].Attempts, days[i].Bytes)
			return err
		})
	})
}

// addAttempts writes up to addGroup attempts: all in one statement, or one by one.
func (t tx) addAttempts(day int64, attempts []store.Attempt) error {
	args := make([]any, 0, 9*len(attempts))
	for i := range attempts {
		a := &attempts[i]
		if err := holdable(a.Entity); err != nil {
			return err
		}
		args = append(args, day, a.Service, a.Entity, micros(a.At), int64(a.Version), a.Outcome, a.Status, notNil(a.Answer), a.Took.Milliseconds())
	}
	if len(attempts) == addGroup {
		_, err := t.once(sqlAddGroup, args...)
		return err
	}
	return each(t.ctx, t.conn, sqlAddAttempt, len(attempts), func(i int, statement *sql.Stmt) error {
		_, err := t.exec(statement, args[9*i:9*i+9]...)
		return err
	})
}

// ListAttempts implements store.Attempts. It reads the table back until there are
// enough, a million attempts in about a second.
func (s *Store) ListAttempts(ctx context.Context, f store.AttemptFilter) ([]store.Attempt, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	until := int64(math.MaxInt64)
	if !f.Until.IsZero() {
		until = micros(f.Until)
	}
	var services *string
	if f.Services != nil {
		text, err := json.Marshal(f.Services)
		if err != nil {
			return nil, err
		}
		list := string(text)
		services = &list
	}
	attempts, err := list(ctx, s.readers, func(row scanner) (a store.Attempt, err error) {
		var at, version, ms int64
		err = row.Scan(&a.Service, &a.Entity, &at, &version, &a.Outcome, &a.Status, &a.Answer, &ms)
		a.At, a.Version, a.Took = fromMicros(at), change.Version(version), time.Duration(ms)*time.Millisecond
		return a, err
	}, sqlAttempts, micros(f.Since), until, services, f.Limit, f.Entity)
	slices.SortStableFunc(attempts, func(a, b store.Attempt) int { return b.At.Compare(a.At) })
	return attempts, failed("list attempts", err)
}

// RetainAttempts implements store.Attempts, in one pass over the table, up to the last
// attempt that is to go and the last that a purge hides. The days are not in their
// order where a clock stepped, so that one is found by counting.
func (s *Store) RetainAttempts(ctx context.Context, bounds map[int32]store.AttemptBound, others store.AttemptBound) (removed int64, err error) {
	const operation = "trim the delivery history"
	days, err := list(ctx, s.readers, scanAttemptDay, sqlAttemptDays)
	if err != nil {
		return 0, failed(operation, err)
	}
	now := s.now()
	trims := store.TrimAttempts(now, days, bounds, others)
	var purged, purges int64 // the last that a purge hides; 0 where nothing was kept, negative without a purge
	if err := s.readers.QueryRowContext(ctx, sqlPurges).Scan(&purged, &purges); err != nil {
		return 0, failed(operation, err)
	}
	if len(trims) == 0 && purged < 0 {
		return 0, nil
	}
	left := make([]int64, len(trims)) // that are to go
	for i, t := range trims {
		left[i] = t.Attempts - t.Keep
	}
	for after := int64(0); after < purged || slices.ContainsFunc(left, func(n int64) bool { return n > 0 }); {
		top, due, err := s.nextAttempts(ctx, after, trims)
		if err != nil {
			return removed, err
		}
		if top == 0 {
			break
		}
		if len(due) > 0 || after < purged {
			var hidden int64
			var gone map[int]int64
			if err = s.write(ctx, operation, func(t tx) (err error) {
				if hidden, err = t.once(sqlDeletePurged, after, min(top, purged)); err != nil {
					return err
				}
				gone, err = t.trimAttempts(trims, due, left, after, top)
				return err
			}); err != nil {
				return removed, err
			}
			removed += hidden
			for i, n := range gone {
				removed += n
				left[i] -= n
			}
		}
		after = top
	}
	return removed, s.write(ctx, operation, func(t tx) error { return t.forgetTrimmed(trims, now, purged, purges) })
}

// forgetTrimmed forgets the purges up to an id, which were so many, and days of which
// nothing is left. Of today more may have come.
func (t tx) forgetTrimmed(trims []store.AttemptTrim, now time.Time, purged, purges int64) error {
	if _, err := t.once(sqlForgetPurged, purged, purges); err != nil {
		return err
	}
	return each(t.ctx, t.conn, sqlForgetDay, len(trims), func(i int, statement *sql.Stmt) error {
		if trims[i].Keep > 0 || !trims[i].Day.Before(store.DayOf(now)) {
			return nil
		}
		_, err := t.exec(statement, dayNumber(trims[i].Day), trims[i].Service)
		return err
	})
}

func scanAttemptDay(row scanner) (d store.AttemptDay, err error) {
	var day int64
	err = row.Scan(&day, &d.Service, &d.Attempts, &d.Bytes)
	d.Day = dayOfNumber(day)
	return d, err
}

// nextAttempts looks at the next rows: the last id among them, 0 without any, and which
// of trims they are of.
func (s *Store) nextAttempts(ctx context.Context, after int64, trims []store.AttemptTrim) (top int64, due []int, err error) {
	rows, err := s.readers.QueryContext(ctx, sqlNextAttempts, after, trimStep)
	err = collect(rows, err, func() error {
		var number, last int64
		var service int32
		err := rows.Scan(&number, &service, &last)
		top = max(top, last)
		if i := slices.IndexFunc(trims, func(t store.AttemptTrim) bool { return t.Service == service && t.Day.Equal(dayOfNumber(number)) }); i >= 0 {
			due = append(due, i)
		}
		return err
	})
	return top, due, failed("trim the delivery history", err)
}

// trimAttempts deletes the rows to remove behind one id up to another, by
// those of trims that are due, and returns how many of each it were.
func (t tx) trimAttempts(trims []store.AttemptTrim, due []int, left []int64, after, top int64) (map[int]int64, error) {
	gone := map[int]int64{}
	err := each(t.ctx, t.conn, sqlTrimAttempts, len(due), func(n int, statement *sql.Stmt) error {
		i := due[n]
		if left[i] == 0 {
			return nil
		}
		day, service := dayNumber(trims[i].Day), trims[i].Service
		var bytes int64
		rows, err := statement.QueryContext(t.ctx, after, top, day, service, left[i])
		err = collect(rows, err, func() error {
			var size int64
			err := rows.Scan(&size)
			gone[i]++
			bytes += size + store.AttemptOverhead
			return err
		})
		if err != nil || gone[i] == 0 {
			return err
		}
		_, err = t.once(sqlCountTrimmed, day, service, gone[i], bytes)
		return err
	})
	return gone, err
}

const defaultLimit = 100
