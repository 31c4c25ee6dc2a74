package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// retainPatience bounds the wait for the locks that dropping a partition needs:
// whoever wants the ledger meanwhile waits as well.
const retainPatience = "5s"

// RetainClaims implements store.Ledger.
func (s *Store) RetainClaims(ctx context.Context, before time.Time) (dropped int, err error) {
	err = s.inTx(ctx, "retain claims", func(tx pgx.Tx) error {
		dropped = 0
		b := new(pgx.Batch)
		b.Queue(`SET LOCAL lock_timeout = '` + retainPatience + `'`)
		b.Queue(sqlLedgerExclusive)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `DELETE FROM ledger_months WHERE (month + interval '1 month') AT TIME ZONE 'UTC' <= $1 RETURNING to_char(month, '_YYYY_MM')`, before)
		if err != nil {
			return err
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
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
		_, err = tx.Exec(ctx, `SELECT weir_ledger_month(`+thisMonth+`), weir_ledger_month((`+thisMonth+` + interval '1 month')::date)`)
		return err
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}

// countedClaims is up to how many claims of a month LedgerStats counts.
const countedClaims = 10_000

// LedgerStats implements store.Ledger. Beyond countedClaims, Held is what the
// server's statistics say; they start anew after its crash, until ANALYZE.
func (s *Store) LedgerStats(ctx context.Context) (stats store.LedgerStats, err error) {
	err = s.inOneTrip(ctx, "ledger statistics", func(b *pgx.Batch) {
		b.Queue(sqlPipeline)
		b.Queue(sqlLedgerMonths, countedClaims).Query(func(rows pgx.Rows) error {
			var m store.LedgerMonth
			_, err := pgx.ForEachRow(rows, []any{&m.Month, &m.Held}, func() error {
				m.Month = m.Month.UTC()
				stats.Held += m.Held
				stats.Months = append(stats.Months, m)
				return nil
			})
			return err
		})
		b.Queue(sqlOldestClaim).QueryRow(func(row pgx.Row) error {
			var oldest *time.Time
			if err := row.Scan(&oldest); err != nil || oldest == nil {
				return err
			}
			stats.OldestInProgress = oldest.UTC()
			return nil
		})
	})
	return stats, err
}

// reopenClaims takes the responses of claims that were not decided, see
// store.Configurations.ResolveInbox.
func reopenClaims(ctx context.Context, tx pgx.Tx) error {
	b := new(pgx.Batch)
	b.Queue(sqlPipeline)
	b.Queue(sqlReopenClaims)
	return tx.SendBatch(ctx, b).Close()
}

// queueLoadDecided queues the look-up of claims in a decision.
func queueLoadDecided(b *pgx.Batch, claims []store.ClaimID, decided *map[store.ClaimID]change.Version) {
	ids, months := claimArrays(claims)
	b.Queue(sqlPipeline)
	b.Queue(sqlLoadDecided, ids, months).Query(func(rows pgx.Rows) error {
		var id [16]byte
		var version int64
		_, err := pgx.ForEachRow(rows, []any{&id, &version}, func() error {
			if *decided == nil {
				*decided = map[store.ClaimID]change.Version{}
			}
			(*decided)[id] = change.Version(version)
			return nil
		})
		return err
	})
}

// queuePutDecided queues the claims that have their effect by a decision; one
// that another decision wrote first ends the transaction with ErrFenced.
func queuePutDecided(b *pgx.Batch, claims []store.Decided) error {
	if len(claims) == 0 {
		return nil
	}
	sorted, distinct := store.SortDecided(claims)
	if !distinct {
		return bug("a claim has its effect twice in one transaction")
	}
	ids, months, versions := make([][16]byte, len(sorted)), make([]time.Time, len(sorted)), make([]int64, len(sorted))
	for i, c := range sorted {
		ids[i], months[i], versions[i] = c.ID, c.ID.Month(), int64(c.Version)
	}
	b.Queue(sqlPipeline)
	b.Queue(sqlDecidedMonths, slices.CompactFunc(slices.Clone(months), time.Time.Equal)) // in order, as the ids are
	b.Queue(sqlPutDecided, ids, months, versions)
	return nil
}
