package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

var (
	_ sinks.Scannable = (*Sink)(nil)
	_ sinks.Versioned = (*Sink)(nil)
)

// read calls work with the pool of Open, while the service holds one of the target's connections.
func (s *Sink) read(ctx context.Context, op string, work func(*pgpool.Pool) error) error {
	if err := sqlsink.Read(ctx, s.server, &s.pool, work); err != nil {
		return classify(op, err)
	}
	return nil
}

// Scan implements sinks.Scannable. In append mode it returns each entity's newest row.
func (s *Sink) Scan(ctx context.Context, afterEntity string, limit int, visit func(sinks.TargetRow) error) error {
	var stop error // of visit
	err := s.read(ctx, "scan", func(pool *pgpool.Pool) error {
		rows, err := pool.Query(ctx, s.scanStatement(), s.options.Service, afterEntity, limit)
		if err != nil {
			return err
		}
		var h sinks.TargetRow
		var version int64
		_, err = pgx.ForEachRow(rows, []any{&h.Entity, &version, &h.Deleted, &h.Doc}, func() error {
			h.Version, h.Respelled = change.Version(version), true // by jsonb
			if h.Deleted {
				h.Doc = nil
			}
			stop = visit(h)
			return stop
		})
		return err
	})
	return cmp.Or(stop, err)
}

// Highest implements sinks.Versioned. It reads the whole table.
func (s *Sink) Highest(ctx context.Context) (change.Version, error) {
	var version int64
	err := s.read(ctx, "highest version", func(pool *pgpool.Pool) error {
		return pool.QueryRow(ctx, fmt.Sprintf(`SELECT coalesce(max(version), 0) FROM %s WHERE service = $1`, s.name.Sanitize()), s.options.Service).Scan(&version)
	})
	return change.Version(version), err
}

// Compare implements sinks.Scannable.
func (s *Sink) Compare(ctx context.Context, expected []sinks.Expected) (map[string][]string, error) {
	differing := map[string][]string{}
	var docs []string
	var rows []sinks.Expected
	for _, e := range expected {
		if text, err := s.document(e.Doc); err == nil {
			rows, docs = append(rows, e), append(docs, text)
		}
	}
	err := s.read(ctx, "compare", func(pool *pgpool.Pool) error { return s.compare(ctx, pool, rows, docs, differing) })
	return differing, err
}

// compare halves the rows until it has left out those that the server refuses to convert.
func (s *Sink) compare(ctx context.Context, pool *pgpool.Pool, rows []sinks.Expected, docs []string, differing map[string][]string) error {
	if len(rows) == 0 {
		return nil
	}
	found := map[string][]string{}
	err := s.compareValues(ctx, pool, rows, docs, found)
	if err != nil && classify("compare", err).Class == sinks.Reject {
		if len(rows) == 1 {
			return nil
		}
		half := len(rows) / 2
		if err := s.compare(ctx, pool, rows[:half], docs[:half], differing); err != nil {
			return err
		}
		return s.compare(ctx, pool, rows[half:], docs[half:], differing)
	}
	maps.Copy(differing, found)
	return err
}

func (s *Sink) compareValues(ctx context.Context, pool *pgpool.Pool, rows []sinks.Expected, docs []string, differing map[string][]string) (failure error) {
	entities, versions := make([]string, len(rows)), make([]int64, len(rows))
	for i, e := range rows {
		entities[i], versions[i] = e.Entity, int64(e.Version)
	}
	var batch pgx.Batch // one transaction
	batch.Queue(session + exactFloats)
	batch.Queue(s.compareStatement(), s.options.Service, entities, versions, docs)
	results := pool.SendBatch(ctx, &batch)
	defer func() { failure = cmp.Or(failure, results.Close()) }()
	if _, err := results.Exec(); err != nil {
		return err
	}
	found, err := results.Query()
	if err != nil {
		return err
	}
	var place int
	var held, wanted []*string
	_, err = pgx.ForEachRow(found, []any{&place, &held, &wanted}, func() error {
		e := rows[place-1]
		differing[e.Entity] = append(differing[e.Entity], sqlsink.Differing(s.content(), e, held, wanted)...)
		return nil
	})
	return err
}

// exactFloats extends session: the server prints all digits of a float.
const exactFloats = ", set_config('extra_float_digits', '1', true)"

// compareStatement returns the values of each row as JSON: as held, and as converted by the
// column's type in the table.
func (t *table) compareStatement() string {
	var held, wanted []string
	spread := ""
	for i, c := range t.content() {
		value := "r.doc"
		if len(t.options.Columns) > 0 {
			value = "c." + quote(c.Name)
		}
		held = append(held, fmt.Sprintf("to_json(t.%s)::text", quote(c.Name)))
		wanted = append(wanted, fmt.Sprintf("to_json(%s::%s)::text", value, t.types[i]))
	}
	if len(t.options.Columns) > 0 {
		spread = " CROSS JOIN LATERAL json_to_record(r.doc::json) AS c(" + definitions(t.options.Columns) + ")"
	}
	return fmt.Sprintf(`SELECT r.place, ARRAY[%s], ARRAY[%s]
FROM unnest($2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY AS r(entity, version, doc, place)
JOIN %s AS t ON t.service = $1 AND t.entity = r.entity AND t.version = r.version AND NOT t.is_deleted%s`,
		strings.Join(held, ", "), strings.Join(wanted, ", "), t.name.Sanitize(), spread)
}

func (t *table) scanStatement() string {
	doc := "NULL::bytea"
	if len(t.options.Columns) == 0 {
		doc = "convert_to(doc::text, 'UTF8')"
	}
	return fmt.Sprintf(`SELECT DISTINCT ON (entity COLLATE "C") entity, version, is_deleted, %s FROM %s
WHERE service = $1 AND entity COLLATE "C" > $2
ORDER BY entity COLLATE "C", version DESC LIMIT $3`, doc, t.name.Sanitize())
}

// DeleteStatement implements sinks.Scannable.
func (s *Sink) DeleteStatement(entity string) string {
	return fmt.Sprintf("DELETE FROM %s WHERE service = %s AND entity = %s", s.name.Sanitize(), literal(s.options.Service), literal(entity))
}

// literal is a text in SQL, for either standard_conforming_strings.
func literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
