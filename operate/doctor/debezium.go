package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sources/kafka"
	"github.com/seed-86dfc502/weir/sources/outbox"
	"github.com/seed-86dfc502/weir/sources/postgres"
)

// sqlImage reads of a table its replica identity, the columns of its primary key, and those
// whose large values Debezium writes as null when an update leaves them alone.
const sqlImage = `SELECT c.relreplident::text,
  coalesce((SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = c.oid AND i.indisprimary), '{}'),
  coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attstorage <> 'p'
      AND (CASE WHEN t.typtype = 'd' THEN t.typbasetype::regtype::text ELSE t.typname::text END) <> ALL ($3)), '{}')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')`

// placeheld are the types that get Debezium's placeholder.
var placeheld = []string{
	"text", "varchar", "character varying", "bpchar", "character", "json", "jsonb", "xml", "bytea", "hstore",
	"_text", "_varchar", "_int4", "_int8", "_date",
}

// debezium asks the PostgreSQL databases of the configuration, by which other sources read,
// about the tables of its Debezium topics: their names are the last parts of a topic's.
func (e *examination) debezium(ctx context.Context, answers map[string]bool) {
	databases := map[string]*pgx.Conn{}
	defer func() {
		for _, conn := range databases {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for i := range e.cfg.Sources {
		s := &e.cfg.Sources[i]
		topic, ok := s.Input.(*kafka.Config)
		if !ok || !s.OfDebezium() {
			continue
		}
		parts := strings.Split(topic.Topic, ".")
		if len(parts) < 2 {
			continue
		}
		for j := range e.cfg.Sources {
			var address string
			switch d := e.cfg.Sources[j].Input.(type) {
			case *postgres.Config:
				address = d.URL.Reveal()
			case *outbox.Config:
				address = d.URL.Reveal()
			}
			if address == "" || !answers["source "+e.cfg.Sources[j].Name] {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			found, err := e.image(ctx, databases, address, s, parts[len(parts)-2], parts[len(parts)-1])
			cancel()
			if err != nil {
				e.add("source "+s.Name, operate.LevelDegraded, "the replica identity of its table cannot be read: "+oneLine(err), "look at it: \\d+ of psql shows it")
			}
			if found || err != nil {
				break
			}
		}
	}
}

// image adds the findings about one table; found is false if the database does not have it.
func (e *examination) image(ctx context.Context, databases map[string]*pgx.Conn, address string, s *config.Source, schema, table string) (found bool, err error) {
	conn := databases[address]
	if conn == nil {
		if conn, err = pgx.Connect(ctx, address); err != nil {
			return false, err
		}
		databases[address] = conn
	}
	var identity string
	var key, large []string
	switch err := conn.QueryRow(ctx, sqlImage, schema, table, placeheld).Scan(&identity, &key, &large); {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	what, name := "source "+s.Name, schema+"."+table
	alter := "ALTER TABLE " + pgx.Identifier{schema, table}.Sanitize() + " REPLICA IDENTITY FULL"
	entity := strings.TrimPrefix(s.Entity.Path, s.Payload.Path+".")
	inKey := slices.Contains(key, entity)
	large = slices.DeleteFunc(large, func(column string) bool { return slices.Contains(s.UnchangedAsNull, column) })
	switch full := identity == "f"; {
	case s.RowImage != "" && !full:
		e.add(what, operate.LevelDown, "it says row_image: full, and "+name+" does not log whole rows: a delete may retract another entity", alter)
	case full && s.RowImage == "" && entity != "" && !inKey:
		e.add(what, operate.LevelDegraded, name+" logs whole rows, and its records do not always show that: such deletes become dead letters no_entity", "say row_image: full")
	case full:
	case identity != "d" || entity != "" && !inKey:
		e.add(what, operate.LevelDegraded, name+" does not log the entity id of a deleted row, nor the former one of a row that moves", alter+", then row_image: full")
	case len(large) > 0:
		e.add(what, operate.LevelDegraded, fmt.Sprintf("Debezium writes a large value of %s as null when an update of %s leaves it alone", strings.Join(large, ", "), name), alter+"; or unchanged_as_null, where they are never null")
	}
	return true, nil
}
