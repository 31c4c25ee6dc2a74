package clickhouse

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// Options configure a sink. URL, Table and Service are required.
type Options struct {
	// URL is clickhouse://user:password@host:9000/database for the native
	// protocol, or http(s)://… for HTTP. Its parameters are those of clickhouse-go;
	// unknown ones are settings of every statement.
	URL string
	// Table is "table", in the URL's database, or "database.table".
	Table string
	// Service is the one service whose changes come here.
	Service string
	// Columns, if any, take the place of the column doc: of types that newConverter
	// knows. One without Nullable refuses changes whose value is null or absent.
	Columns config.Columns
	// CreateTable lets Open create the table and its view where they are
	// missing. Defaults to true. Nothing that exists is ever altered.
	CreateTable *bool
	// PartitionBy is the partition key of a table that Open creates, like
	// "cityHash64(entity) % 8". It may depend on service and entity only.
	// Defaults to none.
	PartitionBy string
	// MaxBatch is the most changes per Write. Defaults to 10,000.
	MaxBatch int
	// Linger is how long to wait for a batch to fill; ClickHouse wants few large
	// inserts. Defaults to none.
	Linger time.Duration
	// Targets hold the clients of this process: sinks of the same URL and
	// MaxConnections in one of them share a pool. Defaults to a pool of its own.
	Targets *sinks.Targets
	// MaxConnections bounds the connections of all sinks that share the pool.
	// Defaults to 8.
	MaxConnections int
}

const (
	defaultMaxBatch       = 10_000
	defaultMaxConnections = 8

	maxBytes       = 32 << 20 // of documents in one Write
	connectTimeout = 10 * time.Second
	writeTimeout   = time.Minute // of one insert
)

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// names are the identifiers of an expression, with what follows them.
	names = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)(\s*\()?`)
	// literals are texts in an expression, which hold no identifiers.
	literals = regexp.MustCompile(`'(?:[^'\\]|\\.|'')*'`)
)

// baseColumns are in every table; changed_at's type depends on the server.
var baseColumns = []string{"service", "entity", "version", "is_deleted", "key", "changed_at", "synced_at"}

// parseURL reads a connection string. Of https the driver wants to hear that it is
// secure; where something is said twice, the first counts.
func parseURL(text string) (*clickhouse.Options, error) {
	if strings.HasPrefix(text, "https://") {
		if !strings.Contains(text, "?") {
			text += "?"
		}
		text += "&secure=true"
	}
	return clickhouse.ParseDSN(text)
}

// complete fills in defaults, then checks everything; the error names all that is wrong.
func (o *Options) complete() (*clickhouse.Options, error) {
	o.CreateTable = cmp.Or(o.CreateTable, new(true))
	o.MaxBatch = cmp.Or(o.MaxBatch, defaultMaxBatch)
	o.MaxConnections = cmp.Or(o.MaxConnections, defaultMaxConnections)

	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	client, err := parseURL(o.URL)
	if err != nil {
		// The library's text may quote what holds a password.
		bad("url: not a ClickHouse connection string")
		client = &clickhouse.Options{}
	}
	client.DialTimeout, client.ReadTimeout = connectTimeout, writeTimeout
	client.MaxOpenConns, client.MaxIdleConns = o.MaxConnections, o.MaxConnections
	client.ClientInfo.Products = append(client.ClientInfo.Products, struct{ Name, Version string }{"weir", "1"})

	database, table, dotted := strings.Cut(o.Table, ".")
	if !dotted {
		database, table = client.Auth.Database, o.Table
		if database == "" {
			database = "default"
		}
	}
	if !identifier.MatchString(database) || !identifier.MatchString(table) {
		bad("table: %q is neither table nor database.table in letters, digits and underscores", o.Table)
	}
	o.Table = database + "." + table

	if o.Service == "" {
		bad("service: missing")
	}
	if o.MaxBatch < 1 || o.MaxConnections < 1 || o.Linger < 0 {
		bad("max_batch, max_connections and linger: a value is below its least")
	}
	if foreign := beyondKey(o.PartitionBy); len(foreign) > 0 {
		bad("partition_by: %q depends on %s; rows are replaced inside one partition only, so it may depend on service and entity alone",
			o.PartitionBy, strings.Join(foreign, ", "))
	}
	seen := map[string]bool{}
	for _, name := range baseColumns {
		seen[name] = true
	}
	for i := range o.Columns {
		c := &o.Columns[i]
		c.Path = cmp.Or(c.Path, c.Name)
		switch {
		case !identifier.MatchString(c.Name):
			bad("columns[%d].name: %q is not made of letters, digits and underscores", i, c.Name)
		case seen[c.Name]:
			bad("columns[%d].name: %q is taken", i, c.Name)
		}
		seen[c.Name] = true
		if _, err := newConverter(c.Type, sqlsink.Unit(c.Unit)); err != nil {
			bad("columns[%d].type: %w", i, err)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("clickhouse sink: %w", errors.Join(errs...))
	}
	return client, nil
}

// beyondKey returns the columns in an expression that are not in the sorting key.
func beyondKey(expression string) (foreign []string) {
	for _, match := range names.FindAllStringSubmatch(literals.ReplaceAllString(expression, "''"), -1) {
		if match[2] == "" && match[1] != "service" && match[1] != "entity" {
			foreign = append(foreign, match[1])
		}
	}
	return foreign
}
