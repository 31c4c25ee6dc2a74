package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// TableInfo describes a table that the user of a connection may read.
type TableInfo struct {
	Name    string   // schema.name
	Columns []string // in their order
	Key     []string // the primary key; empty without one
	Rows    float64  // an estimate
	parents []parent
}

// parent is a foreign key of a table.
type parent struct {
	table  string
	from   []string // the columns, in the order of to
	to     []string
	unique bool // at most one row per parent
}

// DatabaseName returns the name of the database that a URL leads to.
func DatabaseName(url string) (string, error) {
	cfg, err := connConfig(url, "weir init")
	if err != nil {
		return "", err
	}
	return cfg.Database, nil
}

// ListTables returns the tables that the user of url may read, by name, without those of the
// system. It opens a connection of its own and changes nothing.
func ListTables(ctx context.Context, url string) (all []TableInfo, err error) {
	cfg, err := connConfig(url, "weir init")
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	named := `(SELECT array_agg(a.attname ORDER BY k.at) FROM unnest(%s) WITH ORDINALITY k(num, at) JOIN pg_attribute a ON a.attrelid = %s AND a.attnum = k.num)`
	columns := func(numbers, table string) string {
		return strings.Replace(strings.Replace(named, "%s", numbers, 1), "%s", table, 1)
	}
	rows, err := conn.Query(ctx, `SELECT n.nspname || '.' || c.relname, greatest(c.reltuples, 0)::float8,
			(SELECT array_agg(attname ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
			coalesce((SELECT `+columns("i.indkey::int2[]", "c.oid")+` FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), '{}')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND has_table_privilege(c.oid, 'SELECT')
		ORDER BY 1`)
	if err != nil {
		return nil, classify(err)
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t TableInfo, err error) {
		return t, row.Scan(&t.Name, &t.Rows, &t.Columns, &t.Key)
	})
	if err != nil {
		return nil, classify(err)
	}
	rows, err = conn.Query(ctx, `SELECT n.nspname || '.' || c.relname, pn.nspname || '.' || p.relname,
			`+columns("f.conkey", "c.oid")+`, `+columns("f.confkey", "p.oid")+`,
			EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
				AND i.indkey::int2[] <@ f.conkey)
		FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			JOIN pg_class p ON p.oid = f.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
		WHERE f.contype = 'f' ORDER BY f.oid`)
	if err != nil {
		return nil, classify(err)
	}
	var table string
	var to parent
	_, err = pgx.ForEachRow(rows, []any{&table, &to.table, &to.from, &to.to, &to.unique}, func() error {
		if i := slices.IndexFunc(all, func(t TableInfo) bool { return t.Name == table }); i >= 0 {
			all[i].parents = append(all[i].parents, parent{to.table, slices.Clone(to.from), slices.Clone(to.to), to.unique})
		}
		return nil
	})
	return all, classify(err)
}

// Meets returns the columns of t that hold the id of a row of another table, by a foreign key
// to its primary key; one reports whether at most one row of t has the same id. Without such a
// foreign key it returns none.
func (t *TableInfo) Meets(other *TableInfo) (columns []string, one bool) {
	for _, p := range t.parents {
		if p.table != other.Name || len(p.to) != len(other.Key) {
			continue
		}
		columns = columns[:0]
		for _, key := range other.Key {
			if i := slices.Index(p.to, key); i >= 0 {
				columns = append(columns, p.from[i])
			}
		}
		if len(columns) == len(other.Key) {
			return columns, p.unique
		}
	}
	return nil, false
}
