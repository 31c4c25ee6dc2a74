package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-86dfc502/weir/sources/internal/setup"
)

// rowsPerEntity bounds the rows of one entity in flight. Rows that a dead process did
// not delete are redelivered, and an entity remembers the last eight events of a source
// (package decide).
const rowsPerEntity = 8

// scan is how many times a batch is looked through for rows that may be taken.
const scan = 8

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// column returns a column of the table under an alias, as text; NULL when it is
// not configured.
func column(alias, name string) string {
	if name == "" {
		return "NULL::text"
	}
	return alias + "." + quote(name) + "::text"
}

// table is the database's description of the table, and the statements made of it.
type table struct {
	identity string // of the stream of positions, see doc.go
	lock     string // returns the ids of rows that are locked now
	choose   string // returns the ids that may be handed out
	settle   string // deletes rows
	waiting  string // reports whether a row waits
	lag      string // counts rows, and returns the ids of the oldest and the newest
}

// describe reads the table's description and tries the statements on no row,
// so that a wrong name, type or right is said at the start. Its errors are the
// database's, or a *SetupError.
func (s *Source) describe(ctx context.Context, conn *pgxpool.Conn) (*table, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	// The server must notice soon that this machine is down, since it keeps the locks.
	if _, err := conn.Exec(ctx, "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4"); err != nil {
		return nil, err
	}
	var oid *uint32
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1)::oid", s.table).Scan(&oid); err != nil {
		return nil, err
	}
	if oid == nil {
		return nil, setup.Errorf(kind, "there is no table %s", s.table)
	}
	types, err := s.types(ctx, conn, *oid)
	if err != nil {
		return nil, err
	}
	if err := s.checkIDs(ctx, conn, *oid, types[s.opt.Columns.ID]); err != nil {
		return nil, err
	}
	t := s.statements(types[s.opt.Columns.ID], types[s.opt.Columns.Payload])
	// Positions of a table are comparable as long as it is the same table of the
	// same history of the same database.
	err = conn.QueryRow(ctx, `SELECT 'outbox-' || system_identifier || '-' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
		|| '-' || (SELECT oid FROM pg_database WHERE datname = current_database()) || '-' || $1::oid::text FROM pg_control_system()`, *oid).Scan(&t.identity)
	if err != nil {
		return nil, err
	}
	if err := s.try(ctx, conn, t); err != nil {
		return nil, err
	}
	s.described.Store(t)
	return t, nil
}

// types returns the types of the table's columns, as a cast names them. With the modifier -1
// they have any width: a cast to character or bit alone would cut the value to length 1.
func (s *Source) types(ctx context.Context, conn *pgxpool.Conn, oid uint32) (map[string]string, error) {
	rows, err := conn.Query(ctx, `SELECT attname, format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped`, oid)
	if err != nil {
		return nil, err
	}
	types := map[string]string{}
	var name, typ string
	if _, err := pgx.ForEachRow(rows, []any{&name, &typ}, func() error { types[name] = typ; return nil }); err != nil {
		return nil, err
	}
	c := s.opt.Columns
	var faults []error
	for _, name := range []string{c.ID, c.Order, c.Entity, c.Payload, c.EventID, c.Operation, c.Headers} {
		if name != "" && types[name] == "" {
			faults = append(faults, fmt.Errorf("table %s has no column %q", s.table, name))
		}
	}
	if t := types[c.Payload]; t != "" && !slices.Contains([]string{"json", "jsonb", "text", "character varying", "bytea"}, t) {
		faults = append(faults, fmt.Errorf("column %q of table %s is of type %s, which holds no JSON", c.Payload, s.table, t))
	}
	if t := types[c.Headers]; c.Headers != "" && t != "" && t != "json" && t != "jsonb" {
		faults = append(faults, fmt.Errorf("column %q of table %s is of type %s, not json or jsonb", c.Headers, s.table, t))
	}
	if len(faults) > 0 {
		return nil, &SetupError{Kind: kind, Err: errors.Join(faults...)}
	}
	return types, nil
}

// try runs the statements on no row.
func (s *Source) try(ctx context.Context, conn *pgxpool.Conn, t *table) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, attempt := range []struct {
			sql string
			arg any
		}{{t.lock, 0}, {t.choose, []string{}}, {t.settle, []string{}}} {
			if _, err := tx.Exec(ctx, attempt.sql, attempt.arg); err != nil {
				return err
			}
		}
		return nil
	})
}

// statements makes the statements. Ids of any type travel as text.
func (s *Source) statements(idType, payloadType string) *table {
	c := s.opt.Columns
	id, entity := quote(c.ID), quote(c.Entity)
	ids := "$1::text[]::" + idType + "[]"
	payload := column("o", c.Payload)
	if payloadType == "bytea" {
		payload = "o." + quote(c.Payload)
	}
	return &table{
		lock: fmt.Sprintf(`SELECT o.%[2]s::text FROM %[1]s o
			WHERE o.%[2]s = ANY (ARRAY(
				SELECT capped.id FROM (
					SELECT head.%[2]s AS id, row_number() OVER (PARTITION BY head.%[3]s ORDER BY %[6]s) AS n FROM (
						SELECT p.%[3]s, %[7]s FROM %[1]s p ORDER BY %[7]s LIMIT %[4]d
					) head
				) capped WHERE capped.n <= %[5]d
			))
			ORDER BY %[8]s LIMIT $1 FOR UPDATE OF o SKIP LOCKED`,
			s.table, id, entity, scan*s.opt.Batch, rowsPerEntity, c.orderedBy("head"), c.orderedBy("p"), c.orderedBy("o")),
		// A statement of its own, so that it sees what others committed until the locks were
		// taken. The place in the log is read after that.
		choose: fmt.Sprintf(`WITH place AS MATERIALIZED (SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS lsn)
			SELECT o.%[2]s::text, o.%[3]s::text, %[4]s, %[5]s, %[6]s, %[7]s, o.xmin::text, place.lsn
			FROM %[1]s o CROSS JOIN place
			WHERE o.%[2]s = ANY (%[8]s) AND NOT EXISTS (
				SELECT 1 FROM %[1]s p WHERE p.%[3]s = o.%[3]s AND %[9]s AND p.%[2]s <> ALL (%[8]s)
			)
			ORDER BY %[10]s`,
			s.table, id, entity, payload, column("o", c.EventID), column("o", c.Operation), column("o", c.Headers),
			ids, c.before("p", "o"), c.orderedBy("o")),
		settle:  fmt.Sprintf(`DELETE FROM %s WHERE %s = ANY (%s)`, s.table, id, ids),
		waiting: fmt.Sprintf(`SELECT EXISTS (SELECT FROM %s)`, s.table),
		lag: fmt.Sprintf(`SELECT (SELECT count(*) FROM (SELECT FROM %[1]s LIMIT $1) waiting),
			(SELECT p.%[2]s::text FROM %[1]s p ORDER BY %[4]s LIMIT 1),
			(SELECT p.%[2]s::text FROM %[1]s p ORDER BY %[5]s LIMIT 1),
			EXISTS (SELECT FROM %[1]s p WHERE p.%[2]s = $2::text::%[3]s)`, s.table, id, idType, c.orderedBy("p"), c.inOrder("p", " DESC")),
	}
}
