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
			return failed("update report", err)
		}
		if body, err = f(body); err != nil {
			return failed("update report", err)
		}
		_, err = t.conn.ExecContext(t.ctx, `
INSERT INTO reports (kind, name, body, updated_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (kind, name) DO UPDATE SET body = ?3, updated_at = ?4`, kind, name, body, micros(time.Now()))
		return failed("update report", err)
	})
}

// ListReports implements store.Reports.
func (s *Store) ListReports(ctx context.Context, kind string) ([]store.Report, error) {
	var reports []store.Report
	rows, err := s.readers.QueryContext(ctx, `SELECT kind, name, body, updated_at FROM reports WHERE kind = ? ORDER BY name`, kind)
	err = collect(rows, err, func() error {
		var r store.Report
		var updated int64
		err := rows.Scan(&r.Kind, &r.Name, &r.Body, &updated)
		r.Updated = fromMicros(updated)
		reports = append(reports, r)
		return err
	})
	if err != nil {
		return nil, failed("list reports", err)
	}
	return reports, nil
}

// PruneReports implements store.Reports.
func (s *Store) PruneReports(ctx context.Context, kind string, before time.Time) (n int, err error) {
	err = s.write(ctx, "prune reports", func(t tx) error {
		r, err := t.conn.ExecContext(t.ctx, `DELETE FROM reports WHERE kind = ? AND updated_at < ?`, kind, micros(before))
		if err != nil {
			return failed("prune reports", err)
		}
		some, err := r.RowsAffected()
		n = int(some)
		return failed("prune reports", err)
	})
	return n, err
}
