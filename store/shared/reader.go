package shared

import (
	"context"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Watermarks implements store.Decisions.
func (s *Store) Watermarks(ctx context.Context) (map[store.Partition]int64, error) {
	marks := make(map[store.Partition]int64)
	err := s.DB.Read(ctx, "read watermarks", sqlWatermarks(), func(row Row) error {
		var p store.Partition
		var n int64
		err := row.Scan(&p.Generation, &p.Number, &n)
		marks[p] = n
		return err
	})
	if err != nil {
		return nil, err
	}
	return marks, nil
}

// CountEntities implements store.Reader.
func (s *Store) CountEntities(ctx context.Context) (int64, error) {
	return one(list(ctx, s, "count entities", sqlCountEntities(), scanValue[int64]))
}

// Position implements store.SourcePositions.
func (s *Store) Position(ctx context.Context, source, identity string) (store.SourcePosition, error) {
	return one(list(ctx, s, "read source position", sqlSourcePosition(source, identity), func(row Row) (p store.SourcePosition, err error) {
		p.Source, p.Identity = source, identity
		err = row.Scan(&p.Offset, &p.State)
		return p, err
	}))
}

// SetPosition implements store.SourcePositions.
func (s *Store) SetPosition(ctx context.Context, p store.SourcePosition) error {
	_, err := s.write(ctx, "set source position", sqlSetSourcePosition(p))
	return err
}

// ServiceRows implements store.Operations.
func (s *Store) ServiceRows(ctx context.Context, service int32, after string, limit int) ([]store.Row, error) {
	return store.Scan(after, limit, func(r store.Row) bool { return r.Service == service },
		func(after string, n int) ([]store.Entity, error) { return s.Dam.States(ctx, after, n) })
}

// Moved implements store.Deliveries.
func (s *Store) Moved(ctx context.Context, from, to change.Version, after string, limit int) (rows []store.Row, last string, err error) {
	entities, err := s.Dam.States(ctx, after, limit)
	if err != nil {
		return nil, "", err
	}
	rows, last = store.MovedIn(entities, limit, from, to)
	return rows, last, nil
}

// UpdateReport implements store.Reports. To repeat it would add what f adds twice, so its
// outcome is certain.
func (s *Store) UpdateReport(ctx context.Context, kind, name string, f func(body []byte) ([]byte, error)) error {
	if kind == "" || name == "" {
		return store.WithClass(errors.New("update report: kind and name are needed"), store.Fatal)
	}
	return s.DB.WriteOnce(ctx, "update report", func(t Tx) ([]Call, error) {
		body, err := one(listIn(t, sqlOpenReport(kind, name, now()), scanValue[[]byte]))
		if err == nil {
			body, err = f(body)
		}
		return []Call{sqlWriteReport(kind, name, body)}, err
	})
}

// ListReports implements store.Reports.
func (s *Store) ListReports(ctx context.Context, kind string) ([]store.Report, error) {
	return list(ctx, s, "list reports", sqlReports(kind), func(row Row) (r store.Report, err error) {
		err = row.Scan(&r.Kind, &r.Name, &r.Body, &r.Updated)
		return r, err
	})
}

// PruneReports implements store.Reports.
func (s *Store) PruneReports(ctx context.Context, kind string, before time.Time) (int, error) {
	n, err := s.write(ctx, "prune reports", sqlPruneReports(kind, before))
	return int(n), err
}
