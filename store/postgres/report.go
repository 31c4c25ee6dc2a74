package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlMakeReport   = `INSERT INTO reports (kind, name) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	sqlReadReport   = `SELECT body FROM reports WHERE kind = $1 AND name = $2 FOR UPDATE`
	sqlWriteReport  = `UPDATE reports SET body = $3, updated_at = now() WHERE kind = $1 AND name = $2`
	sqlListReports  = `SELECT kind, name, body, updated_at FROM reports WHERE kind = $1 ORDER BY name`
	sqlPruneReports = `DELETE FROM reports WHERE kind = $1 AND updated_at < $2`
)

// ServiceRows implements store.Operations.
func (s *Store) ServiceRows(ctx context.Context, service int32, after string, limit int) ([]store.Row, error) {
	rows, err := store.Scan(after, limit, func(r store.Row) bool { return r.Service == service },
		func(after string, n int) ([]store.Entity, error) { return s.states(ctx, after, n) })
	return rows, failed("page dam rows", err)
}

// UpdateReport implements store.Reports.
func (s *Store) UpdateReport(ctx context.Context, kind, name string, f func(body []byte) ([]byte, error)) error {
	if kind == "" || name == "" {
		return bug("update report: kind and name are needed")
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return failed("update report", err)
	}
	defer release(conn)
	var body []byte
	if _, err = conn.Exec(ctx, s.beginning()); err == nil {
		if _, err = conn.Exec(ctx, sqlMakeReport, kind, name); err == nil {
			err = conn.QueryRow(ctx, sqlReadReport, kind, name).Scan(&body)
		}
	}
	if err == nil {
		body, err = f(body)
	}
	if err != nil {
		return failed("update report", err)
	}
	// To repeat it would add what f adds twice, so the outcome must be certain.
	b := new(pgx.Batch)
	b.Queue(sqlWriteReport, kind, name, body)
	queueCommit(b)
	return failedCommit("update report", conn.SendBatch(ctx, b).Close())
}

// ListReports implements store.Reports.
func (s *Store) ListReports(ctx context.Context, kind string) ([]store.Report, error) {
	reports, err := list(ctx, s.pool, func(row pgx.Row) (r store.Report, err error) {
		err = row.Scan(&r.Kind, &r.Name, &r.Body, &r.Updated)
		return r, err
	}, sqlListReports, kind)
	return reports, failed("list reports", err)
}

// PruneReports implements store.Reports.
func (s *Store) PruneReports(ctx context.Context, kind string, before time.Time) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlPruneReports, kind, before)
	return int(tag.RowsAffected()), failed("prune reports", err)
}
