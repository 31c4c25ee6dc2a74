package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// inDDL runs fn in a transaction that no other sink of this table shares:
// CREATE … IF NOT EXISTS alone fails when two run at a time.
func (t *table) inDDL(ctx context.Context, pool *pgpool.Pool, fn func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $2, true), pg_advisory_xact_lock(hashtextextended($1, 0))",
			"weir sink "+t.name.Sanitize(), lockTimeout); err != nil {
			return err
		}
		return fn(tx)
	})
}

// prepareTable creates missing objects, if that is allowed, and checks all of them.
func (t *table) prepareTable(ctx context.Context, pool *pgpool.Pool) error {
	return t.inDDL(ctx, pool, func(tx pgx.Tx) error {
		schema := sqlsink.Schema{
			Table: t.name.Sanitize(), View: t.sibling(sqlsink.SuffixCurrent), MayCreate: *t.options.CreateTable,
			Exists: func(suffix string) (bool, error) {
				oid, err := t.lookUp(ctx, tx, suffix)
				return oid != 0, err
			},
			Create: func() error { return t.create(ctx, tx) },
			Faults: func() ([]string, error) { return t.mismatches(ctx, tx) },
		}
		if t.options.Mode == Upsert {
			schema.CreateView = func(columns []string) error { return t.createView(ctx, tx, columns) }
			schema.Missing = func(columns []string) ([]string, error) { return t.missing(ctx, tx, columns) }
		}
		return schema.Prepare(t.content())
	})
}

// lookUp returns the oid of the table or of a sibling, 0 if there is none.
func (t *table) lookUp(ctx context.Context, tx pgx.Tx, suffix string) (oid uint32, err error) {
	err = tx.QueryRow(ctx, "SELECT coalesce(to_regclass($1)::oid, 0)", t.sibling(suffix)).Scan(&oid)
	return oid, err
}

func (t *table) create(ctx context.Context, tx pgx.Tx) error {
	columns := []string{
		"service text NOT NULL",
		`entity text COLLATE "C" NOT NULL`, // the order that Scan gives, from the key's index
		"version bigint NOT NULL",
		"is_deleted boolean NOT NULL",
		"key text NOT NULL",
		"changed_at timestamptz NOT NULL",
		"synced_at timestamptz NOT NULL",
		definitions(t.content()),
	}
	// A column of type json or jsonb is compressed only above 2 kB either way;
	// room in the page lets updates stay in it.
	primary, tail := "service, entity", " WITH (fillfactor = 85)"
	if t.options.Mode == Append {
		columns = append([]string{"seq bigserial NOT NULL"}, columns...)
		primary, tail = "key, changed_at", ""
		if t.options.Retention > 0 {
			tail = " PARTITION BY RANGE (changed_at)"
		}
	}
	statement := fmt.Sprintf("CREATE TABLE %s (%s, PRIMARY KEY (%s))%s",
		t.name.Sanitize(), strings.Join(columns, ", "), primary, tail)
	if _, err := tx.Exec(ctx, statement); err != nil || t.options.Mode == Upsert {
		return err
	}
	// For Scan.
	_, err := tx.Exec(ctx, fmt.Sprintf("CREATE INDEX ON %s (service, entity, version DESC)", t.name.Sanitize()))
	return err
}

// mismatches lists, each in a few words, the mismatches of the table.
func (t *table) mismatches(ctx context.Context, tx pgx.Tx) ([]string, error) {
	oid, err := t.lookUp(ctx, tx, "")
	if err != nil {
		return nil, err
	}
	var kind, partition string
	err = tx.QueryRow(ctx, "SELECT relkind::text, coalesce(pg_get_partkeydef(oid), '') FROM pg_class WHERE oid = $1", oid).Scan(&kind, &partition)
	if err != nil {
		return nil, err
	}
	if kind != "r" && kind != "p" {
		return []string{"it is no table"}, nil
	}
	var wrong []string
	if t.options.Retention > 0 && partition != "RANGE (changed_at)" {
		wrong = append(wrong, fmt.Sprintf("a retention needs PARTITION BY RANGE (changed_at), it has %q", partition))
	}

	expected := slices.Concat(baseColumns, t.content())
	known := map[string]bool{}
	t.converters, t.types = nil, nil
	for i, c := range expected {
		known[c.Name] = true
		base := i < len(baseColumns)
		problem, err := checkColumn(ctx, tx, oid, c, base)
		if err != nil {
			return nil, err
		}
		if problem == "" && !base {
			if problem, err = t.addConverter(ctx, tx, oid, c); err != nil {
				return nil, err
			}
		}
		if problem != "" {
			wrong = append(wrong, fmt.Sprintf("column %s: %s", quote(c.Name), problem))
		}
	}
	rows, err := tx.Query(ctx, `SELECT attname FROM pg_attribute
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef AND attidentity = ''`, oid)
	if err != nil {
		return nil, err
	}
	required, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, name := range required {
		if !known[name] {
			wrong = append(wrong, fmt.Sprintf("column %s: NOT NULL without a default, and nothing is written to it", quote(name)))
		}
	}

	key := []string{"service", "entity"}
	if t.options.Mode == Append {
		key = []string{"key", "changed_at"}
	}
	var unique bool
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = $1
	AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
	AND NOT EXISTS (SELECT FROM pg_collation c WHERE c.oid = ANY (i.indcollation) AND NOT c.collisdeterministic)
	AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
		WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
		= (SELECT array_agg(n ORDER BY n) FROM unnest($2::text[]) n))`, oid, key).Scan(&unique)
	if err != nil {
		return nil, err
	}
	if !unique {
		wrong = append(wrong, fmt.Sprintf("no primary key or unique index on (%s) that is not deferrable", strings.Join(key, ", ")))
	}
	return wrong, nil
}

// checkColumn returns a column's fault, or nothing. Types are compared
// without their modifiers: varchar(10) and varchar(20) both fit varchar(10).
func checkColumn(ctx context.Context, tx pgx.Tx, oid uint32, c config.Column, base bool) (string, error) {
	var wanted uint32
	var known string
	// An unknown type is no error here, but one that PostgreSQL cannot parse is.
	err := tx.QueryRow(ctx, "SELECT coalesce(to_regtype($1)::oid, 0), coalesce(format_type(to_regtype($1), NULL), '')", c.Type).Scan(&wanted, &known)
	if err != nil {
		return "", err
	}
	if wanted == 0 {
		return fmt.Sprintf("there is no type %s", c.Type), nil
	}
	var found uint32
	var name, generated, loose string
	var required bool
	err = tx.QueryRow(ctx, `SELECT atttypid, format_type(atttypid, atttypmod), attnotnull, attgenerated::text, coalesce(
	(SELECT collname FROM pg_collation WHERE oid = attcollation AND NOT collisdeterministic), '') FROM pg_attribute
WHERE attrelid = $1 AND attname = $2 AND attnum > 0 AND NOT attisdropped`, oid, c.Name).Scan(&found, &name, &required, &generated, &loose)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "missing, needs type " + c.Type, nil
	case err != nil:
		return "", err
	case generated != "":
		return "it is generated", nil
	case found != wanted:
		return fmt.Sprintf("has type %s, needs %s", name, known), nil
	case base && loose != "":
		return fmt.Sprintf("its collation %s takes different texts for equal, so one entity would replace another; needs COLLATE \"C\"", quote(loose)), nil
	case required && !base:
		return "it is NOT NULL, but a retraction has no value for it", nil
	}
	return "", nil
}

// addConverter adds the converter and the type of a column, as in the table: that may keep
// fewer digits than the configuration says.
func (t *table) addConverter(ctx context.Context, tx pgx.Tx, oid uint32, c config.Column) (problem string, err error) {
	var kind columnKind
	var spelled string
	err = tx.QueryRow(ctx, `WITH RECURSIVE base AS (
	SELECT t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory, t.typtypmod, a.atttypmod AS modifier, format_type(a.atttypid, a.atttypmod) AS spelled
	FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1 AND a.attname = $2
	UNION ALL
	SELECT t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory, t.typtypmod, b.typtypmod, b.spelled
	FROM base b JOIN pg_type t ON t.oid = CASE WHEN b.typtype = 'd' THEN b.typbasetype END)
SELECT CASE WHEN typcategory = 'A' THEN typelem ELSE oid END, modifier, typcategory = 'A', spelled FROM base WHERE typtype <> 'd'`,
		oid, c.Name).Scan(&kind.oid, &kind.modifier, &kind.array, &spelled)
	if err != nil {
		return "", err
	}
	convert, err := newConverter(kind, sqlsink.Unit(c.Unit))
	if err != nil {
		return err.Error(), nil //nolint:nilerr // it is the reason
	}
	t.converters, t.types = append(t.converters, convert), append(t.types, spelled)
	return "", nil
}

func (t *table) createView(ctx context.Context, tx pgx.Tx, columns []string) error {
	var list []string
	for _, name := range columns {
		list = append(list, quote(name))
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("CREATE VIEW %s AS SELECT %s FROM %s WHERE NOT is_deleted",
		t.sibling(sqlsink.SuffixCurrent), strings.Join(list, ", "), t.name.Sanitize()))
	return err
}

// missing returns which of the columns the view lacks.
func (t *table) missing(ctx context.Context, tx pgx.Tx, columns []string) ([]string, error) {
	oid, err := t.lookUp(ctx, tx, sqlsink.SuffixCurrent)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT n FROM unnest($2::text[]) n WHERE NOT EXISTS (
	SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE c.oid = $1 AND c.relkind IN ('v', 'm') AND a.attname = n AND NOT a.attisdropped)`, oid, columns)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
