package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
)

// The ledger is partitioned by month, and a unique index holds within one
// partition. What makes a key unique beyond it:
//
//   - New claims go to the newest month that has a partition, the open one, and to
//     no other. Who writes there holds ledgerLock, shared, from before it reads
//     which month that is until its transaction ends. A month is opened under the
//     same lock, exclusively: so no transaction that writes to an earlier month
//     is under way then, and none begins later. Rows of earlier months are
//     therefore all committed and seen by the statement that inserts, which
//     passes over keys that have a live one. No clock is trusted for this, only
//     the order of the locks.
//   - Within the open month the unique index decides: ON CONFLICT DO NOTHING
//     waits for a transaction that is just inserting the key, and the statement
//     that reads afterwards has a later snapshot and sees its row.
//   - A row that is over its time in the open month is replaced in place, by a
//     compare-and-swap on its id.
//
// All times are the database's: now(), when the transaction began.
//
// Nothing dead-locks: keys are inserted in their order, rows that exist are
// updated in the order of their ids, never two kinds in one transaction, and
// updates never wait for inserts.
//
// Plans: with the statistics of an empty partition every index costs the same.
// So each statement leaves one that it can use: OFFSET 0 keeps the tenant from
// being a condition by itself, an expression keeps it from being one at all.
const (
	sqlTenant   = `SELECT set_config('weir.tenant', $1, true)`
	sqlPipeline = `SELECT set_config('weir.pipeline', 'on', true)`

	sqlLedgerShared    = `SELECT pg_advisory_xact_lock_shared('ledger'::regclass::oid::bigint)`
	sqlLedgerExclusive = `SELECT pg_advisory_xact_lock('ledger'::regclass::oid::bigint)`

	// The first day of the month of now().
	thisMonth = `date_trunc('month', now() AT TIME ZONE 'UTC')::date`
	// The open month, and the time of new rows in it: a clock that went back
	// behind its beginning does not count.
	openMonth = `(SELECT month, greatest(now(), month::timestamp AT TIME ZONE 'UTC') AS made
 FROM ledger_months ORDER BY month DESC LIMIT 1)`
	// A UUIDv7: 48 bits of milliseconds, the rest from k.random.
	newClaimID = `encode(substring(int8send(floor(extract(epoch FROM t.made) * 1000)::int8) FROM 3) || k.random, 'hex')::uuid`
	expired    = `now() - $2::int8 * interval '1 microsecond'`

	// A claim without a row under a lost inbox is older, see ClaimRow.Lost.
	newestInbox = `(SELECT coalesce(max(generation), 0) FROM inboxes)`

	sqlLedgerNow = `SELECT now(), coalesce((SELECT max(month) FROM ledger_months), '0001-01-01')`

	sqlInsertClaims = `
INSERT INTO ledger (month, tenant, key, id, fingerprint, made_at, generation)
SELECT t.month, k.tenant, k.key, ` + newClaimID + `, k.fingerprint, t.made, ` + newestInbox + `
FROM ` + openMonth + ` AS t,
     (SELECT $1::text AS tenant, u.* FROM unnest($3::text[], $4::bytea[], $5::bytea[]) WITH ORDINALITY AS u(key, fingerprint, random, n) OFFSET 0) AS k
WHERE t.month >= ` + thisMonth + ` AND NOT EXISTS (
  SELECT FROM ledger o WHERE o.tenant = k.tenant AND o.key = k.key AND o.month < t.month
  AND o.month >= date_trunc('month', (` + expired + `) AT TIME ZONE 'UTC')::date AND o.made_at > ` + expired + `)
ORDER BY k.n
ON CONFLICT DO NOTHING`

	claimColumns = `l.id, l.fingerprint, l.made_at, l.status, l.body, l.status IS NOT NULL AND l.generation < ` + newestInbox

	sqlReadClaims = `
SELECT k.n, l.month, ` + claimColumns + `
FROM (SELECT $1::text AS tenant, u.* FROM unnest($3::text[]) WITH ORDINALITY AS u(key, n) OFFSET 0) AS k
JOIN ledger l ON l.tenant = k.tenant AND l.key = k.key
AND l.month >= date_trunc('month', (` + expired + `) AT TIME ZONE 'UTC')::date`

	sqlReplaceClaims = `
UPDATE ledger l SET id = ` + newClaimID + `, fingerprint = k.fingerprint, made_at = t.made,
       generation = ` + newestInbox + `, status = NULL, body = NULL
FROM ` + openMonth + ` AS t, unnest($2::uuid[], $3::date[], $4::bytea[], $5::bytea[]) AS k(id, month, fingerprint, random)
WHERE l.tenant || '' = $1 AND l.id = k.id AND l.month = k.month AND k.month = t.month AND t.month >= ` + thisMonth

	sqlCompleteClaims = `
UPDATE ledger l SET status = k.status, body = k.body
FROM unnest($2::uuid[], $3::date[], $4::int4[], $5::bytea[]) AS k(id, month, status, body)
WHERE l.tenant || '' = $1 AND l.id = k.id AND l.month = k.month AND l.status IS NULL`

	// Those that were answered otherwise before.
	sqlOtherResponses = `
SELECT l.id, l.status, l.body
FROM unnest($2::uuid[], $3::date[], $4::int4[], $5::bytea[]) AS k(id, month, status, body)
JOIN ledger l ON l.id = k.id AND l.month = k.month
WHERE l.tenant || '' = $1 AND (l.status <> k.status OR l.body <> k.body)`

	// Few are counted; of many the server's estimate is taken.
	sqlLedgerMonths = `
SELECT m.month, CASE WHEN few.n < $1 THEN few.n ELSE greatest(few.n, m.reltuples::int8, pg_stat_get_live_tuples(m.oid)) END
FROM ledger_months m
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM ledger l WHERE l.month = m.month LIMIT $1) AS one) AS few
ORDER BY m.month`

	sqlKnownDecided = `SELECT d.id FROM unnest($1::uuid[]) AS k(id) JOIN ledger_decided d ON d.id = k.id`

	// Decided claims go to the open month as well, under the same lock: so
	// a key has its effect once beyond the months, too. A claim that lost its key to
	// a newer one is known by its id.
	sqlLoadDecided = `
SELECT d.id, d.version, NULL::uuid, NULL::bytea
FROM unnest($1::uuid[]) AS k(id) JOIN ledger_decided d ON d.id = k.id
UNION ALL
SELECT d.id, d.version, d.key, d.content
FROM unnest($2::uuid[]) AS k(key) JOIN ledger_decided d ON d.key = k.key`

	// Of the claims that were found with keys: the insert conflicts with one that took a
	// key since.
	sqlTakeKeys = `
UPDATE ledger_decided d SET key = NULL, content = NULL
FROM unnest($1::uuid[]) AS k(id) WHERE d.id = k.id`

	sqlPutDecided = `
WITH done AS (
  INSERT INTO ledger_decided (month, id, version, key, content)
  SELECT t.month, k.id, k.version, k.key, k.content
  FROM ` + openMonth + ` AS t, unnest($1::uuid[], $2::int8[], $3::uuid[], $4::bytea[]) WITH ORDINALITY AS k(id, version, key, content, n)
  ORDER BY k.n
  ON CONFLICT DO NOTHING RETURNING 1)
SELECT weir_expect((SELECT count(*) FROM done), cardinality($1::uuid[]))`
)

// maxClaimRounds bounds the repetitions of BeginClaims: each is caused by
// another process with one of the keys, or by the begin of a month.
const maxClaimRounds = 20

// pendingClaim is an intent that BeginClaims has no answer for yet.
type pendingClaim struct {
	store.ClaimRequest
	place  int    // in the answers
	random []byte // of the id that it gets if it is new
	// The newest row found, whose month may not be the open one.
	row   *store.ClaimRow
	month time.Time
}

// BeginClaims implements store.Ledger. New keys and replays take one round
// trip; a key whose time is over takes one more.
func (s *Store) BeginClaims(ctx context.Context, tenant string, intents []store.ClaimRequest, keep time.Duration) ([]store.ClaimResult, error) {
	if err := store.CheckIntents(tenant, intents); err != nil {
		return nil, failed("begin claims", err)
	}
	keep = keep.Truncate(time.Microsecond)
	answers := make([]store.ClaimResult, len(intents))
	pending := make([]*pendingClaim, len(intents))
	random := make([]byte, 10*len(intents))
	rand.Read(random)
	for i := range intents {
		r := random[10*i : 10*i+10]
		r[0], r[2] = r[0]&0x0f|0x70, r[2]&0x3f|0x80 // version 7, variant 10
		pending[i] = &pendingClaim{ClaimRequest: intents[i], place: i, random: r}
	}
	for range maxClaimRounds {
		slices.SortFunc(pending, func(a, b *pendingClaim) int {
			return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.place, b.place))
		})
		now, month, err := s.insertClaims(ctx, tenant, pending, keep)
		if err != nil {
			return nil, err
		}
		if month.Before(store.MonthOf(now)) {
			if err := s.openLedgerMonth(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err := s.markLost(ctx, pending); err != nil {
			return nil, err
		}
		var replace, again []*pendingClaim
		for i, p := range pending {
			switch {
			case p.row == nil:
				again = append(again, p) // its partition was just dropped
			case !p.row.Expired(now, keep) || bytes.Equal(p.row.ID[6:], p.random):
				answers[p.place] = p.row.Claimed(p.Fingerprint)
			case !p.month.Equal(month) || i > 0 && pending[i-1].Key == p.Key:
				again = append(again, p) // the month was just changed, or an earlier one replaces it
			default:
				replace = append(replace, p)
			}
		}
		if err := s.replaceClaims(ctx, tenant, replace); err != nil {
			return nil, err
		}
		if pending = append(again, replace...); len(pending) == 0 {
			return answers, nil
		}
	}
	return nil, failed("begin claims", errors.New("others were faster every time"))
}

// insertClaims inserts the keys that are new and reads what there is then. It
// returns the time of the transaction and the open month; when that is over,
// nothing was inserted.
func (s *Store) insertClaims(ctx context.Context, tenant string, pending []*pendingClaim, keep time.Duration) (now, month time.Time, err error) {
	n := len(pending)
	keys, fingerprints, random := make([]string, n), make([][]byte, n), make([][]byte, n)
	for i, p := range pending {
		keys[i], fingerprints[i], random[i] = p.Key, p.Fingerprint[:], p.random
		p.row = nil
	}
	err = s.ledgerTrip(ctx, "begin claims", tenant, func(b *pgx.Batch) {
		b.Queue(sqlLedgerShared)
		b.Queue(sqlLedgerNow).QueryRow(func(row pgx.Row) error { return row.Scan(&now, &month) })
		b.Queue(sqlInsertClaims, tenant, keep.Microseconds(), keys, fingerprints, random)
		b.Queue(sqlReadClaims, tenant, keep.Microseconds(), keys).Query(func(rows pgx.Rows) error {
			var i int64
			var m time.Time
			for rows.Next() {
				row, err := scanClaim(rows, &i, &m)
				if err != nil {
					return err
				}
				if p := pending[i-1]; p.row == nil || p.month.Before(m) {
					p.row, p.month = row, m
				}
			}
			return rows.Err()
		})
	})
	return now, month, err
}

// markLost finds the responses to events that were lost with an inbox:
// those of before the newest one whose claims were not decided.
func (s *Store) markLost(ctx context.Context, pending []*pendingClaim) error {
	earlier := map[store.ClaimID]*store.ClaimRow{}
	for _, p := range pending {
		if p.row != nil && p.row.Earlier {
			earlier[p.row.ID] = p.row
		}
	}
	if len(earlier) == 0 {
		return nil
	}
	ids := uuids(slices.Collect(maps.Keys(earlier)))
	for _, row := range earlier {
		row.Lost = true
	}
	return s.inOneTrip(ctx, "begin claims", func(b *pgx.Batch) {
		b.Queue(sqlPipeline)
		b.Queue(sqlKnownDecided, ids).Query(func(rows pgx.Rows) error {
			var id [16]byte
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
				earlier[id].Lost = false
				return nil
			})
			return err
		})
	})
}

// replaceClaims makes rows new that insertClaims found over their time, unless they were
// changed since.
func (s *Store) replaceClaims(ctx context.Context, tenant string, claims []*pendingClaim) error {
	if len(claims) == 0 {
		return nil
	}
	slices.SortFunc(claims, func(a, b *pendingClaim) int { return bytes.Compare(a.row.ID[:], b.row.ID[:]) })
	n := len(claims)
	ids, months, fingerprints, random := make([][16]byte, n), make([]time.Time, n), make([][]byte, n), make([][]byte, n)
	for i, p := range claims {
		ids[i], months[i], fingerprints[i], random[i] = p.row.ID, p.month, p.Fingerprint[:], p.random
	}
	return s.ledgerTrip(ctx, "begin claims", tenant, func(b *pgx.Batch) {
		b.Queue(sqlLedgerShared) // the open month stays so
		b.Queue(sqlReplaceClaims, tenant, ids, months, fingerprints, random)
	})
}

// scanClaim reads the columns before claimColumns, then these.
func scanClaim(row pgx.Row, before ...any) (*store.ClaimRow, error) {
	var c store.ClaimRow
	var id [16]byte
	var fingerprint []byte
	var status *int32
	if err := row.Scan(append(before, &id, &fingerprint, &c.Made, &status, &c.Response.Body, &c.Earlier)...); err != nil {
		return nil, err
	}
	c.ID = id
	copy(c.Fingerprint[:], fingerprint)
	if status != nil {
		c.Answered, c.Response.Status = true, int(*status)
	}
	return &c, nil
}

// ledgerTrip runs a transaction in one round trip that reaches the rows of one
// tenant. Its repetition does no harm, so an unknown outcome is an error like
// any other.
func (s *Store) ledgerTrip(ctx context.Context, operation, tenant string, queue func(b *pgx.Batch)) error {
	return s.inOneTrip(ctx, operation, func(b *pgx.Batch) {
		b.Queue(sqlTenant, tenant)
		queue(b)
	})
}

func (s *Store) inOneTrip(ctx context.Context, operation string, queue func(b *pgx.Batch)) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return failed(operation, err)
	}
	defer release(conn)
	b := new(pgx.Batch)
	s.queueBegin(b)
	queue(b)
	queueCommit(b)
	return failed(operation, conn.SendBatch(ctx, b).Close())
}

// openLedgerMonth opens this month for claims, see above.
func (s *Store) openLedgerMonth(ctx context.Context) error {
	return s.inOneTrip(ctx, "open a month of the ledger", func(b *pgx.Batch) {
		b.Queue(sqlLedgerExclusive)
		b.Queue(`SELECT weir_ledger_month(` + thisMonth + `)`)
	})
}

// CompleteClaims implements store.Ledger, in one round trip.
func (s *Store) CompleteClaims(ctx context.Context, tenant string, done []store.Completion) ([]store.Response, error) {
	if err := store.CheckTenant(tenant); err != nil {
		return nil, failed("complete claims", err)
	}
	answers := make([]store.Response, len(done))
	sorted := slices.SortedFunc(slices.Values(done), func(a, b store.Completion) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	n := len(sorted)
	ids, months, status, bodies := make([][16]byte, n), make([]time.Time, n), make([]int32, n), make([][]byte, n)
	for i, c := range sorted {
		ids[i], months[i], status[i], bodies[i] = c.ID, c.ID.Month(), int32(c.Response.Status), notNil(c.Response.Body)
	}
	others := map[store.ClaimID]store.Response{}
	err := s.ledgerTrip(ctx, "complete claims", tenant, func(b *pgx.Batch) {
		b.Queue(sqlCompleteClaims, tenant, ids, months, status, bodies)
		b.Queue(sqlOtherResponses, tenant, ids, months, status, bodies).Query(func(rows pgx.Rows) error {
			var id [16]byte
			for rows.Next() {
				var r store.Response
				if err := rows.Scan(&id, &r.Status, &r.Body); err != nil {
					return err
				}
				others[id] = r
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, err
	}
	for i, c := range done {
		answers[i] = c.Response
		if other, ok := others[c.ID]; ok {
			answers[i] = other
		}
	}
	return answers, nil
}
