package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlLookup = `SELECT content, refused, version FROM dam WHERE entity = ? AND service = ?`
	sqlScan   = `SELECT service, content, refused, version FROM dam WHERE entity = ? AND service BETWEEN ? AND ?`
	sqlSwap   = `UPDATE dam SET content = ?3, refused = ?4, version = max(version, ?5) WHERE entity = ?1 AND service = ?2 AND content IS ?6 AND refused = ?7`
	sqlInsert = `INSERT INTO dam (entity, service, content, refused, version) VALUES (?, ?, ?, ?, ?) ON CONFLICT (entity, service) DO NOTHING`
)

// A scan over neighbouring rows of one entity is cheaper than a search for
// each when most of them are wanted: scanWaste rows read per row wanted cost
// about the same.
const scanWaste = 3

// span is the range of services wanted of one entity.
type span struct {
	entity   string
	from, to int32
}

// lookup reads dam rows in the order of keys.
func lookup(ctx context.Context, p preparer, keys []store.Key) ([]store.Row, error) {
	found := make([]store.Row, len(keys))
	byEntity := make(map[string][]int, len(keys))
	var entities []string // in the order of keys
	for i, k := range keys {
		if err := holdable(k.Entity); err != nil {
			return nil, err
		}
		found[i].Key = k
		if _, seen := byEntity[k.Entity]; !seen {
			entities = append(entities, k.Entity)
		}
		byEntity[k.Entity] = append(byEntity[k.Entity], i)
	}
	var single []int
	var scanned []span
	for _, e := range entities {
		at := byEntity[e]
		s := span{e, keys[at[0]].Service, keys[at[0]].Service}
		for _, i := range at {
			s.from, s.to = min(s.from, keys[i].Service), max(s.to, keys[i].Service)
		}
		if len(at) > 1 && int(s.to-s.from) < scanWaste*len(at) {
			scanned = append(scanned, s)
		} else {
			single = append(single, at...)
		}
	}
	err := each(ctx, p, sqlLookup, len(single), func(i int, statement *sql.Stmt) error {
		r := &found[single[i]]
		var version int64
		err := statement.QueryRowContext(ctx, r.Entity, r.Service).Scan((*[]byte)(&r.Content), &r.Refused, &version)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		r.Found, r.Version = true, change.Version(version)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, each(ctx, p, sqlScan, len(scanned), func(i int, statement *sql.Stmt) error {
		s := scanned[i]
		wanted := make(map[int32][]int, len(byEntity[s.entity]))
		for _, at := range byEntity[s.entity] {
			wanted[keys[at].Service] = append(wanted[keys[at].Service], at)
		}
		rows, err := statement.QueryContext(ctx, s.entity, s.from, s.to)
		return collect(rows, err, func() error {
			r := store.Row{Found: true, Key: store.Key{Entity: s.entity}}
			var version int64
			if err := rows.Scan(&r.Service, (*[]byte)(&r.Content), &r.Refused, &version); err != nil {
				return err
			}
			r.Version = change.Version(version)
			for _, at := range wanted[r.Service] {
				found[at] = r
			}
			return nil
		})
	})
}

// Rows implements store.Deliveries.
func (s *Store) Rows(ctx context.Context, keys []store.Key) (rows []store.Row, err error) {
	err = s.read(ctx, "read dam rows", func(t *sql.Tx) error {
		rows, err = lookup(ctx, t, keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// swap writes swaps; one that does not match is ErrFenced.
func (t tx) swap(swaps []store.Swap) error {
	swaps, distinct := store.SortSwaps(swaps)
	if !distinct {
		return bug("a dam row is swapped twice in one transaction")
	}
	var update, insert []store.Swap
	for _, s := range swaps {
		if err := holdable(s.Entity); err != nil {
			return err
		}
		if s.Insert {
			insert = append(insert, s)
		} else {
			update = append(update, s)
		}
	}
	one := func(n int64, err error) error {
		if err == nil && n != 1 {
			return store.ErrFenced
		}
		return err
	}
	err := each(t.ctx, t.conn, sqlSwap, len(update), func(i int, statement *sql.Stmt) error {
		s := update[i]
		return one(t.exec(statement, s.Entity, s.Service, []byte(s.New), s.Refused, int64(s.Version), []byte(s.Old), s.OldRefused))
	})
	if err != nil {
		return err
	}
	return each(t.ctx, t.conn, sqlInsert, len(insert), func(i int, statement *sql.Stmt) error {
		s := insert[i]
		return one(t.exec(statement, s.Entity, s.Service, []byte(s.New), s.Refused, int64(s.Version)))
	})
}
