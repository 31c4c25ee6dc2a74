package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/config"
)

// TableOf returns the database, the table and the columns of the entity's id that a source
// reads; ok is false for a source of another kind.
func TableOf(s config.SourceConfig) (url, table string, entity []string, ok bool) {
	t, ok := s.(*tableSource)
	if !ok {
		return "", "", nil, false
	}
	return t.URL.Reveal(), t.table.Name, t.table.Entity, true
}

// sampleTimeout bounds a sample, which may read a whole table.
const sampleTimeout = "5s"

// SampleIDs returns up to limit entity ids of a table; with among, of those alone. It opens a
// connection of its own, and fails for a table that takes longer than five seconds.
func SampleIDs(ctx context.Context, url, table string, entity, among []string, limit int) (ids []string, err error) {
	cfg, err := connConfig(url, "weir doctor")
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["statement_timeout"] = sampleTimeout
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	var id, known []string // as shape.id makes it
	for _, column := range entity {
		name := pgx.Identifier{column}.Sanitize()
		known = append(known, name+" IS NOT NULL")
		text := "concat(" + name + ")"
		if len(entity) > 1 {
			text = fmt.Sprintf(`replace(replace(%s, '\', '\\'), '/', '\/')`, text)
		}
		id = append(id, text)
	}
	schema, name, _ := strings.Cut(table, ".")
	where, args := strings.Join(known, " AND "), []any{limit}
	of := "concat_ws('/', " + strings.Join(id, ", ") + ")"
	if among != nil {
		where, args = where+" AND "+of+" = ANY($2)", append(args, among)
	}
	rows, err := conn.Query(ctx, "SELECT "+of+" FROM "+pgx.Identifier{schema, name}.Sanitize()+" WHERE "+where+" LIMIT $1", args...)
	if err != nil {
		return nil, classify(err)
	}
	ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, classify(err)
}
