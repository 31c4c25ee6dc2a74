package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-86dfc502/weir/sources/internal/setup"
)

// orderedBy returns the columns that order the events of an entity, under an alias: the id
// breaks ties of an order column.
func (c *Columns) orderedBy(alias string) string { return c.inOrder(alias, "") }

func (c *Columns) inOrder(alias, direction string) string {
	id := alias + "." + quote(c.ID) + direction
	if c.Order == "" {
		return id
	}
	return alias + "." + quote(c.Order) + direction + ", " + id
}

// before is true where the row of one alias comes before that of another.
func (c *Columns) before(alias, other string) string {
	return "(" + c.orderedBy(alias) + ") < (" + c.orderedBy(other) + ")"
}

// checkIDs refuses ids that do not order the events of an entity: random UUIDs, by the
// column's default or by the version of ids that are there. It reads up to sampleIDs rows;
// later rows are checked when they are taken.
func (s *Source) checkIDs(ctx context.Context, conn *pgxpool.Conn, oid uint32, idType string) error {
	if s.opt.Columns.Order != "" {
		var nullable bool
		if err := conn.QueryRow(ctx, `SELECT NOT attnotnull FROM pg_attribute WHERE attrelid = $1 AND attname = $2`, oid, s.opt.Columns.Order).Scan(&nullable); err != nil {
			return err
		}
		if nullable {
			return setup.Errorf(kind, "column %q of table %s may be null, so it does not order every row: make it NOT NULL", s.opt.Columns.Order, s.table)
		}
	}
	if !s.byID() || !slices.Contains([]string{"uuid", "text", "character varying", "bpchar"}, idType) {
		return nil
	}
	var byDefault string
	err := conn.QueryRow(ctx, `SELECT coalesce((SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
		JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE a.attrelid = $1 AND a.attname = $2), '')`, oid, s.opt.Columns.ID).Scan(&byDefault)
	if err != nil {
		return err
	}
	for _, random := range []string{"gen_random_uuid", "uuid_generate_v", "uuidv4"} {
		if strings.Contains(byDefault, random) {
			return s.unordered()
		}
	}
	rows, err := conn.Query(ctx, fmt.Sprintf(`SELECT p.%s::text FROM %s p WHERE p.%[1]s IS NOT NULL LIMIT $1`, quote(s.opt.Columns.ID), s.table), sampleIDs)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.checkID(id); err != nil {
			return err
		}
	}
	return nil
}

const sampleIDs = 100

// byID reports whether ids alone give the order of an entity's events.
func (s *Source) byID() bool { return s.opt.Columns.Order == "" && !s.opt.Sequenced }

// checkID refuses an id that is a UUID without order, where ids alone give the order.
// Versions 6 and 7 begin with their time.
func (s *Source) checkID(id string) error {
	if !s.byID() || len(id) != 36 {
		return nil
	}
	if u, err := uuid.Parse(id); err != nil || u.Version() == 6 || u.Version() == 7 {
		return nil //nolint:nilerr // it is no UUID
	}
	return s.unordered()
}

func (s *Source) unordered() error {
	return setup.Errorf(kind, "the ids in column %q of table %s are random UUIDs, which do not order the events of an entity: "+
		"name a column that does in columns.order, or configure sequence, or use UUIDs of version 7", s.opt.Columns.ID, s.table)
}
