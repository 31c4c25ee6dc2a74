package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

var (
	_ sinks.Scannable = (*Sink)(nil)
	_ sinks.Versioned = (*Sink)(nil)
)

// Scan implements sinks.Scannable. In append mode it returns each entity's newest row.
func (s *Sink) Scan(ctx context.Context, afterEntity string, limit int, visit func(sinks.TargetRow) error) error {
	pool := s.pool.Load()
	if pool == nil {
		return sqlsink.ErrNotOpen
	}
	return sqlsink.Held(ctx, s.server, func() error { return s.scan(ctx, pool, afterEntity, limit, visit) })
}

// Highest implements sinks.Versioned. It reads the whole table.
func (s *Sink) Highest(ctx context.Context) (change.Version, error) {
	pool := s.pool.Load()
	if pool == nil {
		return 0, sqlsink.ErrNotOpen
	}
	var version int64
	err := sqlsink.Held(ctx, s.server, func() error {
		err := pool.QueryRow(ctx, fmt.Sprintf(`SELECT coalesce(max(version), 0) FROM %s WHERE service = $1`, s.table.Sanitize()), s.options.Service).Scan(&version)
		if err != nil {
			return classify("highest version", err)
		}
		return nil
	})
	return change.Version(version), err
}

func (s *Sink) scan(ctx context.Context, pool *pgpool.Pool, afterEntity string, limit int, visit func(sinks.TargetRow) error) error {
	rows, err := pool.Query(ctx, s.scanStatement(), s.options.Service, afterEntity, limit)
	if err != nil {
		return classify("scan", err)
	}
	defer rows.Close()
	for rows.Next() {
		var h sinks.TargetRow
		var version int64
		if err := rows.Scan(&h.Entity, &version, &h.Deleted, &h.Doc); err != nil {
			return classify("scan", err)
		}
		h.Version, h.Respelled = change.Version(version), true // by jsonb
		if h.Deleted {
			h.Doc = nil
		}
		if err := visit(h); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return classify("scan", err)
	}
	return nil
}

func (s *Sink) scanStatement() string {
	doc := "NULL::bytea"
	if len(s.options.Columns) == 0 {
		doc = "convert_to(doc::text, 'UTF8')"
	}
	return fmt.Sprintf(`SELECT DISTINCT ON (entity COLLATE "C") entity, version, is_deleted, %s FROM %s
WHERE service = $1 AND entity COLLATE "C" > $2
ORDER BY entity COLLATE "C", version DESC LIMIT $3`, doc, s.table.Sanitize())
}

// DeleteStatement implements sinks.Scannable.
func (s *Sink) DeleteStatement(entity string) string {
	return fmt.Sprintf("DELETE FROM %s WHERE service = %s AND entity = %s", s.table.Sanitize(), literal(s.options.Service), literal(entity))
}

// literal is a text in SQL, for either standard_conforming_strings.
func literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
