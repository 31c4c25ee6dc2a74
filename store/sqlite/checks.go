package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlCheckRow = `SELECT revision, content, version, delivered_version, delivered, memory FROM checks WHERE entity = ? AND service = ?`

	sqlSwapCheck = `
UPDATE checks SET revision = revision + 1, content = ?4, version = ?5, delivered_version = ?6, delivered = ?7, memory = ?8
WHERE entity = ?1 AND service = ?2 AND revision = ?3`

	sqlInsertCheck = `
INSERT INTO checks (entity, service, revision, content, version, delivered_version, delivered, memory)
VALUES (?1, ?2, ?3 + 1, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (entity, service) DO NOTHING`
)

// CheckRows implements store.CheckRows.
func (s *Store) CheckRows(ctx context.Context, keys []store.Key) ([]store.CheckRow, error) {
	found := make([]store.CheckRow, len(keys))
	for i, k := range keys {
		if err := holdable(k.Entity); err != nil {
			return nil, err
		}
		found[i].Key = k
	}
	err := s.read(ctx, "read check rows", func(t *keptConn) error {
		return each(ctx, t, sqlCheckRow, len(keys), func(i int, statement *sql.Stmt) error {
			r := &found[i]
			var version, delivered int64
			err := statement.QueryRowContext(ctx, r.Entity, r.Service).Scan(&r.Revision, (*[]byte)(&r.Content), &version,
				&delivered, (*[]byte)(&r.Delivered), &r.Memory)
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			}
			r.Found, r.Version, r.DeliveredVersion = true, change.Version(version), change.Version(delivered)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// SwapCheckRows implements store.CheckRows.
func (s *Store) SwapCheckRows(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	swapped := make([]bool, len(rows))
	if len(rows) == 0 {
		return swapped, nil
	}
	order, distinct := store.SortCheckRows(rows)
	if !distinct {
		return nil, bug("a check row is swapped twice in one call")
	}
	var insert, update []int
	for _, i := range order {
		if err := holdable(rows[i].Entity); err != nil {
			return nil, err
		}
		if rows[i].Revision == 0 {
			insert = append(insert, i)
		} else {
			update = append(update, i)
		}
	}
	err := s.write(ctx, "swap check rows", func(t tx) error {
		swap := func(query string, places []int) error {
			return each(t.ctx, t.conn, query, len(places), func(n int, statement *sql.Stmt) error {
				r := &rows[places[n]]
				changed, err := t.exec(statement, r.Entity, r.Service, r.Revision, []byte(r.Content), int64(r.Version),
					int64(r.DeliveredVersion), []byte(r.Delivered), r.Memory)
				swapped[places[n]] = changed == 1
				return err
			})
		}
		if err := swap(sqlInsertCheck, insert); err != nil {
			return err
		}
		return swap(sqlSwapCheck, update)
	})
	if err != nil {
		return nil, err
	}
	return swapped, nil
}
