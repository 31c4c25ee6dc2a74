package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Each month has two tables of its own, which the first claim of the month
// makes, or a decision about one, and RetainClaims drops whole. There is one
// writer, so a transaction sees everything that was claimed before it. New
// claims, and decided ones, go to the newest month there is, also when the
// clock went back behind its beginning.

// ledgerMonth is the name of a month: 2026_11.
type ledgerMonth string

const monthLayout = "2006_01"

func monthOf(t time.Time) ledgerMonth { return ledgerMonth(t.UTC().Format(monthLayout)) }

// first is the first moment of the month.
func (m ledgerMonth) first() (time.Time, error) { return time.Parse(monthLayout, string(m)) }

func (m ledgerMonth) sql(statement string) string {
	return strings.NewReplacer("$ledger", "ledger_"+string(m), "$decided", "decided_"+string(m)).Replace(statement)
}

const (
	sqlMakeLedger = `
CREATE TABLE $ledger (
    n            INTEGER PRIMARY KEY, -- none is ever deleted: the highest is how many there are
    tenant       TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    id           BLOB    NOT NULL UNIQUE, -- a UUIDv7 with the milliseconds of made_at
    fingerprint  BLOB    NOT NULL,
    made_at      INTEGER NOT NULL,
    leased_until INTEGER NOT NULL,
    generation   INTEGER NOT NULL DEFAULT 0, -- the newest inbox when the last attempt began
    status       INTEGER, -- of the response; null until there is one
    body         BLOB,
    UNIQUE (tenant, key)
)`
	sqlMakeInProgress = `CREATE INDEX $ledger_in_progress ON $ledger (leased_until) WHERE status IS NULL`
	sqlMakeDecided    = `
CREATE TABLE $decided (
    id      BLOB PRIMARY KEY,
    version INTEGER NOT NULL,
    key     BLOB, -- a digest of tenant and key; null where it is not known, or another claim has it
    content BLOB  -- the first bytes of the fingerprint
) WITHOUT ROWID`
	sqlMakeUse = `CREATE UNIQUE INDEX $decided_use ON $decided (key)`

	newestInbox  = `(SELECT coalesce(max(generation), 0) FROM inboxes)`
	claimColumns = `id, fingerprint, made_at, leased_until, status, body, status IS NOT NULL AND generation < ` + newestInbox

	sqlMonths      = `SELECT month FROM ledger_months ORDER BY month DESC`
	sqlClaim       = `SELECT ` + claimColumns + ` FROM $ledger WHERE tenant = ? AND key = ?`
	sqlInsertClaim = `INSERT INTO $ledger (tenant, key, id, fingerprint, made_at, leased_until, generation) VALUES (?, ?, ?, ?, ?, ?, ` + newestInbox + `)`

	sqlReplaceClaim = `
UPDATE $ledger SET id = ?3, fingerprint = ?4, made_at = ?5, leased_until = ?6, generation = ` + newestInbox + `, status = NULL, body = NULL
WHERE tenant = ?1 AND key = ?2`

	sqlLeaseClaim = `UPDATE $ledger SET leased_until = ?, generation = ` + newestInbox + `, status = NULL, body = NULL WHERE tenant = ? AND id = ?`

	// The second answer is that of the first caller.
	sqlCompleteClaim = `
UPDATE $ledger SET status = coalesce(status, ?3), body = coalesce(body, ?4)
WHERE tenant = ?1 AND id = ?2 RETURNING status, body`

	sqlAbandonClaim = `UPDATE $ledger SET leased_until = ?3 WHERE tenant = ?1 AND id = ?2 AND status IS NULL AND leased_until > ?3`

	sqlLoadDecided = `SELECT version FROM $decided WHERE id = ?`
	sqlLoadUse     = `SELECT id, version, content FROM $decided WHERE key = ?`
	sqlTakeKey     = `UPDATE $decided SET key = NULL, content = NULL WHERE key = ?`
	sqlPutDecided  = `INSERT INTO $decided (id, version, key, content) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`

	sqlHeldClaims  = `SELECT coalesce(max(n), 0) FROM $ledger`
	sqlOldestClaim = `SELECT min(made_at) FROM $ledger WHERE status IS NULL AND leased_until > ?`
)

// BeginClaims implements store.Ledger.
func (s *Store) BeginClaims(ctx context.Context, tenant string, intents []store.ClaimRequest, lease, keep time.Duration) ([]store.ClaimResult, error) {
	if err := store.CheckIntents(tenant, intents); err != nil {
		return nil, failed("begin claims", err)
	}
	answers := make([]store.ClaimResult, len(intents))
	err := s.writeAhead(ctx, "begin claims", func(t tx) error {
		now := s.now().Truncate(time.Microsecond)
		b, err := t.ledger(now, lease, keep)
		if err != nil {
			return err
		}
		for i, intent := range intents {
			if answers[i], err = b.begin(tenant, intent); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// beginning is a transaction of BeginClaims.
type beginning struct {
	tx
	now, until, made time.Time // made: of new claims
	keep             time.Duration
	open             ledgerMonth
	months           []ledgerMonth // the newest first: open
	live             []ledgerMonth // that may hold a claim which is not expired, the newest first: open
}

// ledger begins to claim in the month of now.
func (t tx) ledger(now time.Time, lease, keep time.Duration) (*beginning, error) {
	months, err := t.openMonth(now)
	if err != nil {
		return nil, err
	}
	first, err := months[0].first()
	if err != nil {
		return nil, err
	}
	b := &beginning{tx: t, now: now, until: now.Add(lease), made: now, keep: keep, open: months[0], months: months}
	if b.made.Before(first) {
		b.made = first
	}
	oldest := monthOf(now.Add(-keep))
	for i, m := range months {
		if i == 0 || m >= oldest {
			b.live = append(b.live, m)
		}
	}
	return b, nil
}

// openMonth returns the months, the newest first, which is that of now or later:
// it is made if it is not there yet.
func (t tx) openMonth(now time.Time) ([]ledgerMonth, error) {
	months, err := ledgerMonths(t.ctx, t.conn)
	if err != nil {
		return nil, err
	}
	if this := monthOf(now); len(months) == 0 || months[0] < this {
		return slices.Insert(months, 0, this), t.makeMonth(this)
	}
	return months, nil
}

// makeMonth makes the tables of a month.
func (t tx) makeMonth(m ledgerMonth) error {
	for _, statement := range []string{sqlMakeLedger, sqlMakeInProgress, sqlMakeDecided, sqlMakeUse} {
		if _, err := t.conn.ExecContext(t.ctx, m.sql(statement)); err != nil {
			return err
		}
	}
	_, err := t.once(`INSERT INTO ledger_months (month) VALUES (?)`, string(m))
	return err
}

// statement prepares a statement on a month's tables.
func (b *beginning) statement(m ledgerMonth, text string) (*sql.Stmt, error) {
	return b.conn.PrepareContext(b.ctx, m.sql(text))
}

func (b *beginning) exec(m ledgerMonth, text string, args ...any) error {
	s, err := b.statement(m, text)
	if err == nil {
		_, err = s.ExecContext(b.ctx, args...)
	}
	return err
}

// begin claims one key.
func (b *beginning) begin(tenant string, intent store.ClaimRequest) (store.ClaimResult, error) {
	replace := false
	for _, m := range b.live {
		statement, err := b.statement(m, sqlClaim)
		if err != nil {
			return store.ClaimResult{}, err
		}
		row, err := scanClaim(statement.QueryRowContext(b.ctx, tenant, intent.Key))
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return store.ClaimResult{}, err
		}
		if row.Expired(b.now, b.keep) {
			replace = replace || m == b.open
			continue
		}
		if row.Earlier {
			if row.Lost, err = b.undecided(row.ID); err != nil {
				return store.ClaimResult{}, err
			}
		}
		claimed := row.Claimed(intent.Fingerprint, b.now)
		if claimed.State == store.ClaimResumed {
			err = b.exec(m, sqlLeaseClaim, micros(b.until), tenant, row.ID[:])
		}
		return claimed, err
	}
	id := newClaimID(b.made)
	statement := sqlInsertClaim
	if replace {
		statement = sqlReplaceClaim
	}
	err := b.exec(b.open, statement, tenant, intent.Key, id[:], intent.Fingerprint[:], micros(b.made), micros(b.until))
	return store.ClaimResult{State: store.ClaimStarted, ID: id, Fingerprint: intent.Fingerprint}, err
}

// undecided reports whether no decision had the claim's effect. A decided claim
// is in the month of its decision.
func (b *beginning) undecided(id store.ClaimID) (bool, error) {
	for _, m := range b.months {
		statement, err := b.statement(m, sqlLoadDecided)
		if err != nil {
			return false, err
		}
		var version int64
		err = statement.QueryRowContext(b.ctx, id[:]).Scan(&version)
		if !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
	}
	return true, nil
}

// newClaimID makes a UUIDv7 (RFC 9562, section 5.7).
func newClaimID(made time.Time) (id store.ClaimID) {
	rand.Read(id[6:])
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(made.UnixMilli()))
	copy(id[:6], ms[2:])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80 // version 7, variant 10
	return id
}

func scanClaim(row scanner) (*store.ClaimRow, error) {
	var c store.ClaimRow
	var id, fingerprint []byte
	var made, leased int64
	var status *int64
	if err := row.Scan(&id, &fingerprint, &made, &leased, &status, &c.Response.Body, &c.Earlier); err != nil {
		return nil, err
	}
	copy(c.ID[:], id)
	copy(c.Fingerprint[:], fingerprint)
	c.Made, c.LeasedUntil = fromMicros(made), fromMicros(leased)
	if status != nil {
		c.Answered, c.Response.Status = true, int(*status)
	}
	return &c, nil
}

// ledgerMonths returns the months that have tables, the newest first.
func ledgerMonths(ctx context.Context, q querier) ([]ledgerMonth, error) {
	return list(ctx, q, scanValue[ledgerMonth], sqlMonths)
}

// ofMonths calls run for each claim with a prepared statement on the tables of
// its month; claims of months without tables are passed over.
func (t tx) ofMonths(n int, id func(i int) store.ClaimID, statement string, run func(i int, s *sql.Stmt) error) error {
	if n == 0 {
		return nil
	}
	months, err := ledgerMonths(t.ctx, t.conn)
	if err != nil {
		return err
	}
	byMonth := map[ledgerMonth][]int{}
	for i := range n {
		m := monthOf(id(i).Made())
		byMonth[m] = append(byMonth[m], i)
	}
	for _, m := range months {
		claims := byMonth[m]
		err := each(t.ctx, t.conn, m.sql(statement), len(claims), func(i int, s *sql.Stmt) error { return run(claims[i], s) })
		if err != nil {
			return err
		}
	}
	return nil
}

// CompleteClaims implements store.Ledger.
func (s *Store) CompleteClaims(ctx context.Context, tenant string, done []store.Completion) ([]store.Response, error) {
	if err := store.CheckTenant(tenant); err != nil {
		return nil, failed("complete claims", err)
	}
	answers := make([]store.Response, len(done))
	for i := range done {
		answers[i] = done[i].Response
	}
	err := s.writeAhead(ctx, "complete claims", func(t tx) error {
		id := func(i int) store.ClaimID { return done[i].ID }
		return t.ofMonths(len(done), id, sqlCompleteClaim, func(i int, statement *sql.Stmt) error {
			r := done[i].Response
			var stored store.Response
			err := statement.QueryRowContext(t.ctx, tenant, done[i].ID[:], r.Status, notNil(r.Body)).Scan(&stored.Status, &stored.Body)
			if errors.Is(err, sql.ErrNoRows) {
				return nil // gone
			} else if err != nil {
				return err
			}
			answers[i] = stored
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// AbandonClaims implements store.Ledger.
func (s *Store) AbandonClaims(ctx context.Context, tenant string, ids []store.ClaimID) error {
	if err := store.CheckTenant(tenant); err != nil {
		return failed("abandon claims", err)
	}
	return s.writeAhead(ctx, "abandon claims", func(t tx) error {
		now := micros(s.now())
		id := func(i int) store.ClaimID { return ids[i] }
		return t.ofMonths(len(ids), id, sqlAbandonClaim, func(i int, statement *sql.Stmt) error {
			_, err := t.exec(statement, tenant, ids[i][:], now)
			return err
		})
	})
}

// RetainClaims implements store.Ledger. The next months are made by the
// first claim that needs it.
func (s *Store) RetainClaims(ctx context.Context, keep time.Duration) (dropped int, err error) {
	err = s.write(ctx, "retain claims", func(t tx) error {
		dropped = 0
		before := s.now().Add(-keep)
		months, err := ledgerMonths(t.ctx, t.conn)
		if err != nil {
			return err
		}
		for _, m := range months {
			first, err := m.first()
			if err != nil {
				return bug("month %s: %w", m, err)
			}
			if first.AddDate(0, 1, 0).After(before) {
				continue
			}
			for _, statement := range []string{`DROP TABLE $ledger`, `DROP TABLE $decided`} {
				if _, err := t.conn.ExecContext(t.ctx, m.sql(statement)); err != nil {
					return err
				}
			}
			if _, err := t.once(`DELETE FROM ledger_months WHERE month = ?`, string(m)); err != nil {
				return err
			}
			dropped++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}

// LedgerStats implements store.Ledger. Its counts are exact.
func (s *Store) LedgerStats(ctx context.Context) (stats store.LedgerStats, err error) {
	err = s.write(ctx, "ledger statistics", func(t tx) error { // behind all claims
		stats = store.LedgerStats{Now: s.now().UTC()}
		months, err := ledgerMonths(t.ctx, t.conn)
		if err != nil {
			return err
		}
		now := micros(stats.Now)
		for _, m := range slices.Backward(months) {
			first, err := m.first()
			if err != nil {
				return fmt.Errorf("month %s: %w", m, err)
			}
			month := store.LedgerMonth{Month: first}
			if err := t.conn.QueryRowContext(t.ctx, m.sql(sqlHeldClaims)).Scan(&month.Held); err != nil {
				return err
			}
			stats.Held += month.Held
			stats.Months = append(stats.Months, month)
			var oldest *int64
			if err := t.conn.QueryRowContext(t.ctx, m.sql(sqlOldestClaim), now).Scan(&oldest); err != nil {
				return err
			}
			if oldest != nil && stats.OldestInProgress.IsZero() {
				stats.OldestInProgress = fromMicros(*oldest)
			}
		}
		return nil
	})
	return stats, err
}

// loadDecided looks claims and keys of a decision up, in all months: a decided claim
// is in that of its decision. Both are nil when nothing is found.
func loadDecided(ctx context.Context, q querier, d store.Decision) (decided map[store.ClaimID]change.Version, uses map[store.KeyDigest]store.Decided, err error) {
	if len(d.Claims) == 0 {
		return nil, nil, nil
	}
	months, err := ledgerMonths(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range months {
		err := each(ctx, q, m.sql(sqlLoadDecided), len(d.Claims), func(i int, statement *sql.Stmt) error {
			var version int64
			err := statement.QueryRowContext(ctx, d.Claims[i][:]).Scan(&version)
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			} else if err != nil {
				return err
			}
			if decided == nil {
				decided = map[store.ClaimID]change.Version{}
			}
			decided[d.Claims[i]] = change.Version(version)
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		err = each(ctx, q, m.sql(sqlLoadUse), len(d.Keys), func(i int, statement *sql.Stmt) error {
			var version int64
			var id, content []byte
			err := statement.QueryRowContext(ctx, d.Keys[i][:]).Scan(&id, &version, &content)
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			} else if err != nil {
				return err
			}
			if uses == nil {
				uses = map[store.KeyDigest]store.Decided{}
			}
			u := store.Decided{Version: change.Version(version), Use: store.Use{Key: d.Keys[i]}}
			copy(u.ID[:], id)
			copy(u.Content[:], content)
			uses[u.Key] = u
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return decided, uses, nil
}

// compareDecided returns ErrFenced when claims and keys are not as they were loaded.
func (t tx) compareDecided(d store.Decision, loaded store.Loaded) error {
	decided, uses, err := loadDecided(t.ctx, t.conn, d)
	if err == nil && !(maps.Equal(decided, loaded.Decided) && maps.Equal(uses, loaded.Uses)) {
		err = store.ErrFenced
	}
	return err
}

// putDecided writes the claims that have their effect by a decision at now,
// which found had.
func (t tx) putDecided(d store.Decision, claims []store.Decided, had map[store.KeyDigest]store.Decided, now time.Time) error {
	if len(claims) == 0 {
		return nil
	}
	if len(d.Claims) == 0 {
		return bug("decide: a claim has its effect that was not looked up")
	}
	sorted, distinct := store.SortDecided(claims)
	if !distinct {
		return bug("a claim or a key has its effect twice in one transaction")
	}
	months, err := t.openMonth(now)
	if err != nil {
		return err
	}
	previous := store.PreviousHolders(sorted, had)
	for _, m := range months {
		err := each(t.ctx, t.conn, m.sql(sqlTakeKey), len(previous), func(i int, statement *sql.Stmt) error {
			_, err := t.exec(statement, previous[i].Key[:])
			return err
		})
		if err != nil {
			return err
		}
	}
	return each(t.ctx, t.conn, months[0].sql(sqlPutDecided), len(sorted), func(i int, statement *sql.Stmt) error {
		c := &sorted[i]
		var key, content []byte
		if c.Key != (store.KeyDigest{}) {
			key, content = c.Key[:], c.Content[:]
		}
		n, err := t.exec(statement, c.ID[:], int64(c.Version), key, content)
		if err == nil && n == 0 {
			err = store.ErrFenced
		}
		return err
	})
}
