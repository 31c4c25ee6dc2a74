package clickhouse

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

var (
	_ sinks.Scannable = (*Sink)(nil)
	_ sinks.Versioned = (*Sink)(nil)
)

// Scan implements sinks.Scannable. It needs no FINAL: of several rows of an
// entity the one with the highest version counts, retractions included.
func (s *Sink) Scan(ctx context.Context, afterEntity string, limit int, visit func(sinks.TargetRow) error) error {
	opened := s.session.Load()
	if opened == nil {
		return sqlsink.ErrNotOpen
	}
	return sqlsink.Held(ctx, s.server, func() error { return s.scan(ctx, opened, afterEntity, limit, visit) })
}

// Highest implements sinks.Versioned. It reads one column of the service.
func (s *Sink) Highest(ctx context.Context) (change.Version, error) {
	opened := s.session.Load()
	if opened == nil {
		return 0, sqlsink.ErrNotOpen
	}
	var version uint64
	err := sqlsink.Held(ctx, s.server, func() error {
		if err := opened.conn.QueryRow(ctx, fmt.Sprintf("SELECT max(version) FROM %s WHERE service = ?", s.name("")), s.options.Service).Scan(&version); err != nil {
			return classify("highest version", err, false)
		}
		return nil
	})
	return change.Version(version), err
}

func (s *Sink) scan(ctx context.Context, opened *session, afterEntity string, limit int, visit func(sinks.TargetRow) error) error {
	doc := "''"
	if len(s.options.Columns) == 0 {
		doc = "argMax(doc, version)"
	}
	query := fmt.Sprintf(`SELECT toString(entity), max(version), argMax(is_deleted, version), %s FROM %s
WHERE service = ? AND entity > ? GROUP BY entity ORDER BY entity LIMIT %d`, doc, s.name(""), limit)
	if opened.version.atLeast(aggregationInOrder) {
		query += " SETTINGS optimize_aggregation_in_order = 1"
	}
	rows, err := opened.conn.Query(ctx, query, s.options.Service, afterEntity)
	if err != nil {
		return classify("scan", err, false)
	}
	defer rows.Close()
	for rows.Next() {
		var entity, text string
		var version uint64
		var deleted uint8
		if err := rows.Scan(&entity, &version, &deleted, &text); err != nil {
			return classify("scan", err, false)
		}
		h := sinks.TargetRow{Entity: entity, Version: change.Version(version), Deleted: deleted != 0}
		if !h.Deleted && text != "" {
			h.Doc = []byte(text)
		}
		if err := visit(h); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return classify("scan", err, false)
	}
	return nil
}

// DeleteStatement implements sinks.Scannable.
func (s *Sink) DeleteStatement(entity string) string {
	return fmt.Sprintf("ALTER TABLE %s DELETE WHERE service = %s AND entity = %s", s.name(""), text(s.options.Service), text(entity))
}

// text is a literal of ClickHouse's SQL.
func text(s string) string {
	return "'" + strings.NewReplacer("\\", "\\\\", "'", "\\'").Replace(s) + "'"
}
