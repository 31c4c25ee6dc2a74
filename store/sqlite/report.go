package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// ServiceRows implements store.Operations.
func (s *Store) ServiceRows(ctx context.Context, service int32, after string, limit int) ([]store.Row, error) {
	return store.Scan(after, limit, func(r store.Row) bool { return r.Service == service },
		func(after string, n int) ([]store.Entity, error) { return s.states(ctx, after, n) })
}

// UpdateReport implements store.Reports.
func (s *Store) UpdateReport(ctx context.Context, kind, name string, f func(body []byte) ([]byte, error)) error {
	if kind == "" || name == "" {
		return bug("update report: kind and name are needed")
	}
	return s.write(ctx, "update report", func(t tx) error {
		var body []byte
		err := t.conn.QueryRowContext(t.ctx, `SELECT body FROM reports WHERE kind = ? AND name = ?`, kind, name).Scan(&body)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if body, err = f(body); err != nil {
			return err
		}
		_, err = t.once(`
INSERT INTO reports (kind, name, body, updated_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (kind, name) DO UPDATE SET body = ?3, updated_at = ?4`, kind, name, body, micros(time.Now()))
		return err
	})
}

// ListReports implements store.Reports.
func (s *Store) ListReports(ctx context.Context, kind string) ([]store.Report, error) {
	reports, err := list(ctx, s.readers, func(row scanner) (r store.Report, err error) {
		var updated int64
		err = row.Scan(&r.Kind, &r.Name, &r.Body, &updated)
		r.Updated = fromMicros(updated)
		return r, err
	}, `SELECT kind, name, body, updated_at FROM reports WHERE kind = ? ORDER BY name`, kind)
	return reports, failed("list reports", err)
}

// PruneReports implements store.Reports.
func (s *Store) PruneReports(ctx context.Context, kind string, before time.Time) (int, error) {
	var n int64
	err := s.write(ctx, "prune reports", func(t tx) (err error) {
		n, err = t.once(`DELETE FROM reports WHERE kind = ? AND updated_at < ?`, kind, micros(before))
		return err
	})
	return int(n), err
}
