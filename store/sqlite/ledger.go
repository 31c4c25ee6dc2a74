package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// There is one writer, so a transaction sees everything that was claimed before it. Ids begin
// with the time of the claim: RetainClaims deletes from the lowest on.
const (
	newestInbox  = `(SELECT coalesce(max(generation), 0) FROM inboxes)`
	claimColumns = `id, fingerprint, made_at, status, body, status IS NOT NULL AND generation < ` + newestInbox

	sqlNewClaim = `
INSERT INTO ledger (tenant, key, id, fingerprint, made_at, generation) VALUES (?1, ?2, ?3, ?4, ?5, ` + newestInbox + `)
ON CONFLICT (tenant, key) DO NOTHING`
	sqlClaim      = `SELECT ` + claimColumns + ` FROM ledger WHERE tenant = ? AND key = ?`
	sqlRenewClaim = `
UPDATE ledger SET id = ?3, fingerprint = ?4, made_at = ?5, generation = ` + newestInbox + `, status = NULL, body = NULL
WHERE tenant = ?1 AND key = ?2`

	// The second caller gets the first caller's answer.
	sqlCompleteClaim = `UPDATE ledger SET status = ?3, body = ?4 WHERE tenant = ?1 AND id = ?2 AND status IS NULL`
	sqlAnswer        = `SELECT status, body FROM ledger WHERE tenant = ? AND id = ?`

	sqlLoadDecided = `SELECT version FROM ledger_decided WHERE id = ?`
	sqlFindDecided = `
SELECT id, version, NULL FROM ledger_decided WHERE id = ?1 UNION ALL SELECT id, version, content FROM ledger_decided WHERE key = ?2`
	// Of the claim that was found with the key: the insert conflicts with one that took it since.
	sqlTakeKey    = `UPDATE ledger_decided SET key = NULL, content = NULL WHERE id = ?`
	sqlPutDecided = `INSERT INTO ledger_decided (id, version, key, content, decided_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

	sqlOldestClaim = `SELECT id FROM ledger ORDER BY id LIMIT 1`
	sqlHeldClaims  = `SELECT coalesce(max(n) - min(n) + 1, 0) FROM ledger`

	// A claim decided later than it was made is kept from its decision on.
	sqlDropClaims  = `DELETE FROM ledger WHERE id IN (SELECT id FROM ledger WHERE id < ? ORDER BY id LIMIT ?)`
	sqlDropDecided = `
DELETE FROM ledger_decided WHERE id IN (SELECT id FROM ledger_decided WHERE id < ?1 AND decided_at < ?3 ORDER BY id LIMIT ?2)`
)

// BeginClaims implements store.Ledger.
func (s *Store) BeginClaims(ctx context.Context, tenant string, intents []store.ClaimRequest, keep time.Duration) ([]store.ClaimResult, error) {
	if err := store.CheckIntents(tenant, intents); err != nil {
		return nil, failed("begin claims", err)
	}
	answers := make([]store.ClaimResult, len(intents))
	err := s.writeAhead(ctx, "begin claims", func(t tx) (err error) {
		now := s.now().Truncate(time.Microsecond)
		for i := range intents {
			if answers[i], err = t.claim(tenant, &intents[i], now, keep); err != nil {
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

// claim claims one key. Most are new.
func (t tx) claim(tenant string, intent *store.ClaimRequest, now time.Time, keep time.Duration) (store.ClaimResult, error) {
	id := newClaimID(now)
	fresh := store.ClaimResult{State: store.ClaimOpen, ID: id, Fingerprint: intent.Fingerprint}
	row := []any{tenant, intent.Key, id[:], intent.Fingerprint[:], now.UnixMicro()}
	if n, err := t.once(sqlNewClaim, row...); err != nil || n == 1 {
		return fresh, err
	}
	found, err := scanClaim(t.conn.QueryRowContext(t.ctx, sqlClaim, tenant, intent.Key))
	if err == nil && found.Expired(now, keep) {
		_, err = t.once(sqlRenewClaim, row...)
		return fresh, err
	}
	if err == nil && found.Earlier {
		found.Lost, err = t.undecided(found.ID)
	}
	if err != nil {
		return store.ClaimResult{}, err
	}
	return found.Claimed(intent.Fingerprint), nil
}

// undecided reports whether no decision had the claim's effect.
func (t tx) undecided(id store.ClaimID) (bool, error) {
	var version int64
	err := t.conn.QueryRowContext(t.ctx, sqlLoadDecided, id[:]).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, err
}

// newClaimID makes a UUIDv7 (RFC 9562, section 5.7).
func newClaimID(made time.Time) (id store.ClaimID) {
	id = claimIDAt(made)
	rand.Read(id[6:])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80 // version 7, variant 10
	return id
}

// claimIDAt is below every id of a claim made at a time or later.
func claimIDAt(made time.Time) (id store.ClaimID) {
	binary.BigEndian.PutUint64(id[:], uint64(made.UnixMilli())<<16)
	return id
}

func scanClaim(row scanner) (*store.ClaimRow, error) {
	var c store.ClaimRow
	var id, fingerprint []byte
	var made int64
	var status *int64
	if err := row.Scan(&id, &fingerprint, &made, &status, &c.Response.Body, &c.Earlier); err != nil {
		return nil, err
	}
	copy(c.ID[:], id)
	copy(c.Fingerprint[:], fingerprint)
	c.Made = fromMicros(made)
	if status != nil {
		c.Answered, c.Response.Status = true, int(*status)
	}
	return &c, nil
}

// CompleteClaims implements store.Ledger.
func (s *Store) CompleteClaims(ctx context.Context, tenant string, done []store.Completion) ([]store.Response, error) {
	if err := store.CheckTenant(tenant); err != nil {
		return nil, failed("complete claims", err)
	}
	answers := make([]store.Response, len(done))
	err := s.writeAhead(ctx, "complete claims", func(t tx) error {
		return each(t.ctx, t.conn, sqlCompleteClaim, len(done), func(i int, statement *sql.Stmt) error {
			r := done[i].Response
			n, err := t.exec(statement, tenant, done[i].ID[:], r.Status, notNil(r.Body))
			if err != nil || n == 1 {
				answers[i] = r
				return err
			}
			var stored store.Response
			err = t.conn.QueryRowContext(t.ctx, sqlAnswer, tenant, done[i].ID[:]).Scan(&stored.Status, &stored.Body)
			if errors.Is(err, sql.ErrNoRows) { // expired
				stored, err = r, nil
			}
			answers[i] = stored
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// retainPage bounds one transaction of RetainClaims: requests wait for it.
const retainPage = 2000

// RetainClaims implements store.Ledger: claims of a month are deleted in short transactions.
func (s *Store) RetainClaims(ctx context.Context, keep time.Duration) (dropped int, err error) {
	before := s.now().Add(-keep)
	month := store.MonthOf(before)
	for {
		oldest, err := s.oldestClaim(ctx)
		if err != nil {
			return dropped, err
		}
		end := oldest.AddDate(0, 1, 0)
		if oldest.IsZero() || end.After(before) {
			_, err := s.dropClaims(ctx, sqlDropDecided, month, month.UnixMicro())
			return dropped, err
		}
		if _, err := s.dropClaims(ctx, sqlDropClaims, end); err != nil {
			return dropped, err
		}
		dropped++
	}
}

// dropClaims deletes the rows whose claims were made before a time.
func (s *Store) dropClaims(ctx context.Context, statement string, before time.Time, more ...any) (n int64, err error) {
	first := claimIDAt(before)
	for n = retainPage; err == nil && n == retainPage; {
		err = s.write(ctx, "retain claims", func(t tx) error {
			n, err = t.once(statement, append([]any{first[:], retainPage}, more...)...)
			return err
		})
	}
	return n, err
}

// oldestClaim returns the month of the oldest claim, zero without any.
func (s *Store) oldestClaim(ctx context.Context) (month time.Time, err error) {
	err = s.write(ctx, "read the oldest claim", func(t tx) error { // behind all claims
		ids, err := list(t.ctx, t.conn, scanValue[[]byte], sqlOldestClaim)
		if len(ids) > 0 {
			month = store.ClaimID(ids[0]).Month()
		}
		return err
	})
	return month, err
}

// LedgerStats implements store.Ledger. Held counts rows that were deleted between others, too.
func (s *Store) LedgerStats(ctx context.Context) (stats store.LedgerStats, err error) {
	if stats.OldestMonth, err = s.oldestClaim(ctx); err != nil {
		return stats, err
	}
	err = s.readers.QueryRowContext(ctx, sqlHeldClaims).Scan(&stats.Held)
	return stats, failed("ledger statistics", err)
}

// loadDecided looks up claims and keys of a decision. Both are nil when nothing is found.
func loadDecided(ctx context.Context, q *keptConn, d store.Decision) (decided map[store.ClaimID]change.Version, uses map[store.KeyDigest]store.Decided, err error) {
	if len(d.Claims) == 0 {
		return nil, nil, nil
	}
	err = each(ctx, q, sqlFindDecided, max(len(d.Claims), len(d.Keys)), func(i int, statement *sql.Stmt) error {
		var claim, key []byte
		if i < len(d.Claims) {
			claim = d.Claims[i][:]
		}
		if i < len(d.Keys) {
			key = d.Keys[i][:]
		}
		rows, err := statement.QueryContext(ctx, claim, key)
		return collect(rows, err, func() error {
			var version int64
			var id, content []byte
			if err := rows.Scan(&id, &version, &content); err != nil {
				return err
			}
			found := store.Decided{ID: store.ClaimID(id), Version: change.Version(version)}
			if content == nil {
				if decided == nil {
					decided = map[store.ClaimID]change.Version{}
				}
				decided[found.ID] = found.Version
				return nil
			}
			if uses == nil {
				uses = map[store.KeyDigest]store.Decided{}
			}
			found.Key = d.Keys[i]
			copy(found.Content[:], content)
			uses[found.Key] = found
			return nil
		})
	})
	return decided, uses, err
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
	previous := store.PreviousHolders(sorted, had)
	err := each(t.ctx, t.conn, sqlTakeKey, len(previous), func(i int, statement *sql.Stmt) error {
		_, err := t.exec(statement, previous[i].ID[:])
		return err
	})
	if err != nil {
		return err
	}
	return each(t.ctx, t.conn, sqlPutDecided, len(sorted), func(i int, statement *sql.Stmt) error {
		c := &sorted[i]
		var key, content []byte
		if c.Key != (store.KeyDigest{}) {
			key, content = c.Key[:], c.Content[:]
		}
		n, err := t.exec(statement, c.ID[:], int64(c.Version), key, content, now.UnixMicro())
		if err == nil && n == 0 {
			err = store.ErrFenced
		}
		return err
	})
}
