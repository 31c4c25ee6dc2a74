package shared

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Tombstones implements store.Reader.
func (s *Store) Tombstones(ctx context.Context, before time.Time, after store.Tombstone, limit int) ([]store.Tombstone, error) {
	return list(ctx, s, "page tombstones", sqlTombstones(before, after, max(limit, 0)),
		func(row Row) (t store.Tombstone, err error) {
			var version int64
			err = row.Scan(&t.Entity, &version, &t.Deleted)
			t.Version = change.Version(version)
			return t, err
		})
}

// prunePage bounds one transaction of Prune, so that decisions never wait long for it.
const prunePage = 2000

// Prune implements store.DeadLetters.
func (s *Store) Prune(ctx context.Context, letters, audit time.Time) (total int, err error) {
	n, err := s.pruned(ctx, sqlPruneLetters(letters, prunePage))
	if total += n; err != nil {
		return total, err
	}
	n, err = s.pruneOpen(ctx, letters)
	if total += n; err != nil {
		return total, err
	}
	n, err = s.pruned(ctx, sqlPruneAudit(audit, prunePage))
	if total += n; err != nil {
		return total, err
	}
	_, err = s.pruned(ctx, sqlPruneJobs(audit, prunePage))
	return total, err
}

// pruned repeats a call that deletes up to prunePage rows, and returns how many it deleted. A
// page that was deleted stays so if a later one fails.
func (s *Store) pruned(ctx context.Context, c Call) (total int, err error) {
	for {
		n, err := s.write(ctx, "prune", c.forTenant(AllTenants))
		if total += int(n); err != nil || n < prunePage {
			return total, err
		}
	}
}

// oldLetter is an open letter of a delivery that is over its time.
type oldLetter struct {
	id   int64
	last time.Time
	of   store.Row
}

// pruneOpen deletes open letters of deliveries, but for those whose content is refused.
func (s *Store) pruneOpen(ctx context.Context, before time.Time) (total int, err error) {
	for after := (oldLetter{}); ; {
		old, err := list(ctx, s, "read old dead letters", sqlOldOpenLetters(before, after.last, after.id, prunePage),
			func(row Row) (l oldLetter, err error) {
				var version int64
				err = row.Scan(&l.id, &l.last, &l.of.Entity, &version, &l.of.Service)
				l.of.Version = change.Version(version)
				return l, err
			})
		if err != nil || len(old) == 0 {
			return total, err
		}
		keys := make([]store.Key, len(old))
		for i, l := range old {
			keys[i] = l.of.Key
		}
		rows, err := s.Dam.Rows(ctx, keys)
		if err != nil {
			return total, err
		}
		var ids []int64
		for i, l := range old {
			if !rows[i].Refused || rows[i].Version != l.of.Version {
				ids = append(ids, l.id)
			}
		}
		if len(ids) > 0 {
			n, err := s.write(ctx, "prune", sqlPruneOpenLetters(before, ids))
			if total += int(n); err != nil {
				return total, err
			}
		}
		after = old[len(old)-1]
	}
}
