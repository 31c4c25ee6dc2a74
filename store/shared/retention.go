package shared

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Tombstones implements store.Reader.
func (s *Store) Tombstones(ctx context.Context, before time.Time, after store.Tombstone, limit int) ([]store.Tombstone, error) {
	return list(ctx, s, "page tombstones", call("tombstones", args{"before": before.UTC(), "deleted": after.Deleted.UTC(), "after": after.Entity, "limit": max(limit, 0)}),
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
	letters, audit = letters.UTC(), audit.UTC()
	n, err := s.pruned(ctx, "prune_letters", letters)
	if total += n; err != nil {
		return total, err
	}
	n, err = s.pruneOpen(ctx, letters)
	if total += n; err != nil {
		return total, err
	}
	n, err = s.pruned(ctx, "prune_audit", audit)
	if total += n; err != nil {
		return total, err
	}
	_, err = s.pruned(ctx, "prune_jobs", audit)
	return total, err
}

// pruned deletes page by page and returns how many rows. A page that was deleted stays so
// if a later one fails.
func (s *Store) pruned(ctx context.Context, statement string, before time.Time) (total int, err error) {
	for {
		c := call(statement, args{"before": before, "limit": prunePage})
		c.Tenant = AllTenants
		n, err := s.write(ctx, "prune", c)
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
		old, err := list(ctx, s, "read old dead letters", call("old_open_letters", args{"before": before, "last": after.last.UTC(), "id": after.id, "limit": prunePage}),
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
			n, err := s.write(ctx, "prune", call("prune_open_letters", args{"ids": ids, "before": before}))
			if total += int(n); err != nil {
				return total, err
			}
		}
		after = old[len(old)-1]
	}
}
