package clickhouse

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// version is a server's, major and minor.
type version [2]int

// What servers learnt when.
var (
	dateTime64          = version{20, 1}
	aggregationInOrder  = version{20, 8}
	asyncInserts        = version{21, 11}
	deduplicationTokens = version{22, 2}
	deletedInEngine     = version{23, 2}
)

func (v version) atLeast(other version) bool { return slices.Compare(v[:], other[:]) >= 0 }

func quoteAll(names []string) []string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = "`" + name + "`" // identifiers by New's check
	}
	return quoted
}

// name is the table, or the object beside it, quoted.
func (s *Sink) name(suffix string) string {
	return strings.Join(quoteAll([]string{s.database, s.table + suffix}), ".")
}

// prepareTable creates missing objects, if that is allowed, and checks all of them.
func (s *Sink) prepareTable(ctx context.Context, conn driver.Conn) (*session, error) {
	opened := &session{conn: conn}
	var text string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&text); err != nil {
		return nil, err
	}
	if _, err := fmt.Sscanf(text, "%d.%d", &opened.version[0], &opened.version[1]); err != nil {
		return nil, fmt.Errorf("the server calls itself version %q", text)
	}

	schema := sqlsink.Schema{
		Table: s.name(""), View: s.name(sqlsink.SuffixCurrent), MayCreate: *s.options.CreateTable,
		Exists: func(suffix string) (bool, error) { return s.exists(ctx, conn, suffix) },
		Create: func() error { return conn.Exec(ctx, s.createStatement(opened.version)) },
		Faults: func() (wrong []string, err error) {
			if opened.types, err = s.columnTypes(ctx, conn, ""); err != nil {
				return nil, err
			}
			return s.mismatches(ctx, opened)
		},
		// is_deleted is filtered also where the engine does it, for tables that
		// were created without it.
		CreateView: func(columns []string) error {
			return conn.Exec(ctx, fmt.Sprintf("CREATE VIEW IF NOT EXISTS %s AS SELECT %s FROM %s FINAL WHERE is_deleted = 0",
				s.name(sqlsink.SuffixCurrent), strings.Join(quoteAll(columns), ", "), s.name("")))
		},
		Missing: func(columns []string) ([]string, error) {
			types, err := s.columnTypes(ctx, conn, sqlsink.SuffixCurrent)
			return slices.DeleteFunc(columns, func(name string) bool { return types[name] != "" }), err
		},
	}
	return opened, schema.Prepare(s.content())
}

func (s *Sink) exists(ctx context.Context, conn driver.Conn, suffix string) (bool, error) {
	var n uint64
	err := conn.QueryRow(ctx, "SELECT count() FROM system.tables WHERE database = ? AND name = ?", s.database, s.table+suffix).Scan(&n)
	return n > 0, err
}

func (s *Sink) createStatement(v version) string {
	changed, now, engine, settings := "DateTime", "DateTime DEFAULT now()", "ReplacingMergeTree(version)", ""
	if v.atLeast(dateTime64) {
		changed, now = "DateTime64(3, 'UTC')", "DateTime64(3, 'UTC') DEFAULT now64(3)"
	}
	if v.atLeast(deletedInEngine) {
		engine = "ReplacingMergeTree(version, is_deleted)"
		// Without it a table that is not replicated ignores the token.
		settings = " SETTINGS non_replicated_deduplication_window = 100"
	}
	columns := []string{
		"service String", "entity String", "version UInt64", "is_deleted UInt8", "key String",
		"changed_at " + changed, "synced_at " + now,
	}
	for _, c := range s.content() {
		columns = append(columns, "`"+c.Name+"` "+c.Type)
	}
	partition := ""
	if s.options.PartitionBy != "" {
		partition = " PARTITION BY " + s.options.PartitionBy
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s) ENGINE = %s%s ORDER BY (service, entity)%s",
		s.name(""), strings.Join(columns, ", "), engine, partition, settings)
}

// columnTypes returns the columns that can be written, with their types.
func (s *Sink) columnTypes(ctx context.Context, conn driver.Conn, suffix string) (map[string]string, error) {
	rows, err := conn.Query(ctx, `SELECT name, type FROM system.columns
WHERE database = ? AND table = ? AND default_kind NOT IN ('MATERIALIZED', 'ALIAS')`, s.database, s.table+suffix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types := map[string]string{}
	for rows.Next() {
		var name, t string
		if err := rows.Scan(&name, &t); err != nil {
			return nil, err
		}
		types[name] = t
	}
	return types, rows.Err()
}

// engineArguments matches the arguments of a ReplacingMergeTree engine. A replicated one has a
// path and a replica before them.
var engineArguments = regexp.MustCompile(`^\w*ReplacingMergeTree\((.*?)\)`)

// mismatches lists, each in a few words, the mismatches of the table.
func (s *Sink) mismatches(ctx context.Context, opened *session) (wrong []string, err error) {
	var engine, sorting, partition string
	err = opened.conn.QueryRow(ctx, "SELECT engine_full, sorting_key, partition_key FROM system.tables WHERE database = ? AND name = ?",
		s.database, s.table).Scan(&engine, &sorting, &partition)
	if err != nil {
		return nil, err
	}
	bare := strings.NewReplacer("`", "", " ", "", "(", "", ")", "")
	kind, _, _ := strings.Cut(engine, " ")
	if match := engineArguments.FindStringSubmatch(engine); match == nil || !replacesByVersion(bare.Replace(match[1])) {
		wrong = append(wrong, fmt.Sprintf("engine %s, needs ReplacingMergeTree(version) or ReplacingMergeTree(version, is_deleted)", kind))
	}
	key := strings.Split(bare.Replace(sorting), ",")
	if slices.Sort(key); !slices.Equal(key, []string{"entity", "service"}) {
		wrong = append(wrong, fmt.Sprintf("sorting key (%s), needs (service, entity)", sorting))
	}
	if foreign := beyondKey(partition); len(foreign) > 0 {
		wrong = append(wrong, fmt.Sprintf("partition key %s depends on %s: rows are replaced inside one partition only, so it may depend on service and entity alone",
			partition, strings.Join(foreign, ", ")))
	}

	expect := func(name, wanted string, fits func(string) bool) {
		switch t, ok := opened.types[name]; {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("column %s: missing or computed, needs type %s", name, wanted))
		case !fits(t):
			wrong = append(wrong, fmt.Sprintf("column %s: has type %s, needs %s", name, t, wanted))
		}
	}
	exactly := func(types ...string) func(string) bool {
		return func(t string) bool { return slices.Contains(types, t) }
	}
	dateTime := func(t string) bool { return strings.HasPrefix(t, "DateTime") }
	expect("service", "String", exactly("String", "LowCardinality(String)"))
	expect("entity", "String", exactly("String"))
	expect("version", "UInt64", exactly("UInt64"))
	expect("is_deleted", "UInt8", exactly("UInt8"))
	expect("key", "String", exactly("String"))
	expect("changed_at", "DateTime64(3)", dateTime)
	expect("synced_at", "DateTime64(3) with a default", dateTime)
	for _, c := range s.content() {
		expect(c.Name, c.Type, func(t string) bool { return sameType(c.Type, t) })
	}
	return wrong, nil
}

// replacesByVersion reads an engine's arguments, without spaces and quotes.
func replacesByVersion(arguments string) bool {
	list := strings.Split(arguments, ",")
	if last := len(list) - 1; last > 0 && list[last] == "is_deleted" {
		list = list[:last]
	}
	return list[len(list)-1] == "version"
}
