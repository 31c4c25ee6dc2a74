package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// retainPatience bounds the wait for the locks that dropping a partition needs:
// others that need the ledger meanwhile wait as well.
const retainPatience = "5s"

// RetainClaims implements store.Ledger.
func (s *Store) RetainClaims(ctx context.Context, keep time.Duration) (dropped int, err error) {
	err = s.inTx(ctx, "retain claims", func(tx pgx.Tx) error {
		dropped = 0
		b := new(pgx.Batch)
		b.Queue(`SET LOCAL lock_timeout = '` + retainPatience + `'`)
		b.Queue(sqlLedgerExclusive)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		names, err := list(ctx, tx, scanValue[string], `SELECT to_char(month, '_YYYY_MM') FROM ledger_months
WHERE (month + interval '1 month') AT TIME ZONE 'UTC' <= now() - $1::int8 * interval '1 microsecond'`, keep.Microseconds())
		if err != nil {
			return err
		}
		for _, name := range names {
			for _, table := range []string{"ledger", "ledger_decided"} {
				if _, err := tx.Exec(ctx, "DROP TABLE "+pgx.Identifier{table + name}.Sanitize()); err != nil {
					return err
				}
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

// countedClaims is up to how many claims of a month LedgerStats counts.
const countedClaims = 10_000

// LedgerStats implements store.Ledger. Beyond countedClaims, Held is an
// estimate of the server's statistics; they start anew after its crash, until ANALYZE.
func (s *Store) LedgerStats(ctx context.Context) (stats store.LedgerStats, err error) {
	err = s.inOneTrip(ctx, "ledger statistics", func(b *pgx.Batch) {
		b.Queue(sqlPipeline)
		b.Queue(sqlLedgerMonths, countedClaims).Query(func(rows pgx.Rows) error {
			var month time.Time
			var held int64
			_, err := pgx.ForEachRow(rows, []any{&month, &held}, func() error {
				stats.Held += held
				if stats.OldestMonth.IsZero() {
					stats.OldestMonth = month
				}
				return nil
			})
			return err
		})
	})
	return stats, err
}

// errMonthOver ends a decision about claims before it began: its month must be
// opened first.
var errMonthOver = store.WithClass(errors.New("a month of the ledger began"), store.Retry)

// claimLook is the state of claims that a decision reads.
type claimLook struct {
	now, month time.Time // of the transaction, and the open one
	loaded     store.Loaded
}

// queue queues the look-up. The lock keeps the month open until the transaction
// ends, see the beginning of ledger.go.
func (l *claimLook) queue(b *pgx.Batch, d store.Decision) {
	b.Queue(sqlPipeline)
	b.Queue(sqlLedgerShared)
	b.Queue(sqlLedgerNow).QueryRow(func(row pgx.Row) error { return row.Scan(&l.now, &l.month) })
	b.Queue(sqlLoadDecided, uuids(d.Claims), uuids(d.Keys)).Query(func(rows pgx.Rows) error {
		var id [16]byte
		var version int64
		var key pgtype.UUID
		var content []byte
		_, err := pgx.ForEachRow(rows, []any{&id, &version, &key, &content}, func() error {
			if !key.Valid {
				if l.loaded.Decided == nil {
					l.loaded.Decided = map[store.ClaimID]change.Version{}
				}
				l.loaded.Decided[id] = change.Version(version)
				return nil
			}
			if l.loaded.Uses == nil {
				l.loaded.Uses = map[store.KeyDigest]store.Decided{}
			}
			c := store.Decided{ID: id, Version: change.Version(version), Use: store.Use{Key: key.Bytes}}
			copy(c.Content[:], content)
			l.loaded.Uses[c.Key] = c
			return nil
		})
		return err
	})
}

// queuePutDecided queues the claims that have their effect by a decision, which
// found had; one that another decision wrote first ends the transaction with
// ErrFenced.
func queuePutDecided(b *pgx.Batch, d store.Decision, claims []store.Decided, had map[store.KeyDigest]store.Decided) error {
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
	ids, versions := make([][16]byte, len(sorted)), make([]int64, len(sorted))
	keys, contents := make([]pgtype.UUID, len(sorted)), make([][]byte, len(sorted))
	for i, c := range sorted {
		ids[i], versions[i] = c.ID, int64(c.Version)
		if c.Key != (store.KeyDigest{}) {
			keys[i], contents[i] = pgtype.UUID{Bytes: c.Key, Valid: true}, c.Content[:]
		}
	}
	b.Queue(sqlPipeline)
	if previous := store.PreviousHolders(sorted, had); len(previous) > 0 {
		from := make([][16]byte, len(previous))
		for i := range previous {
			from[i] = previous[i].ID
		}
		b.Queue(sqlTakeKeys, from)
	}
	b.Queue(sqlPutDecided, ids, versions, keys, contents)
	return nil
}

func uuids[T ~[16]byte](list []T) [][16]byte {
	out := make([][16]byte, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}
