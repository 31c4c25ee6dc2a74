package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// Mode is the content of the table.
type Mode string

const (
	// Upsert keeps the newest version of each entity.
	Upsert Mode = "upsert"
	// Append keeps every change.
	Append Mode = "append"
)

// Options configure a sink. URL, Table and Service are required.
type Options struct {
	// URL is a connection string, postgres://user:password@host:port/database?…
	// or key=value pairs; pgx's pool_* parameters are understood, but for
	// pool_max_conns. TLS settings (sslmode, sslrootcert, …) are part of it.
	URL string
	// Table is "table" or "schema.table"; each part is taken as it is written,
	// also in upper and lower case. Without a schema the search path decides.
	Table string
	// Service is the one service whose changes come here.
	Service string
	// Mode defaults to Upsert.
	Mode Mode
	// Columns, if any, take the place of the column doc.
	Columns config.Columns
	// CreateTable lets Open create missing objects: table, view, partitions.
	// Defaults to true. Nothing that exists is ever altered.
	CreateTable *bool
	// Retention, in Append mode only, is how long rows are kept, counted from
	// changed_at, to the month's end. 0 keeps all, without partitions.
	Retention time.Duration
	// Targets hold the clients of this process: sinks of the same URL and
	// MaxConnections in one of them share a pool. Defaults to a pool of its own.
	Targets *sinks.Targets
	// MaxConnections bounds the connections of all sinks that share the pool.
	// Defaults to 8.
	MaxConnections int
	// Logger hears of expired partitions, dropped or not. Defaults to none.
	Logger *slog.Logger
}

const (
	maxBatch              = 5000
	maxBytes              = 16 << 20
	linger                = 20 * time.Millisecond
	connectTimeout        = 10 * time.Second
	writeTimeout          = 30 * time.Second // of one statement
	defaultMaxConnections = 8

	// docType is that of the column doc.
	docType = "jsonb"
	// maxIdentifier is PostgreSQL's NAMEDATALEN - 1.
	maxIdentifier = 63
)

// baseColumns are in every table, with their types.
var baseColumns = config.Columns{
	{Name: "service", Type: "text"},
	{Name: "entity", Type: "text"},
	{Name: "version", Type: "bigint"},
	{Name: "is_deleted", Type: "boolean"},
	{Name: "key", Type: "text"},
	{Name: "changed_at", Type: "timestamptz"},
	{Name: "synced_at", Type: "timestamptz"},
}

// typeName admits names of types and nothing that could end one,
// since types cannot be parameters of a statement.
var typeName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*([. ][A-Za-z_][A-Za-z0-9_]*)*( ?\(\d+( ?, ?-?\d+)?\))?( [A-Za-z ]+)?(\[\])*$`)

// complete fills in defaults, then checks everything; the error names all that is wrong.
func (o *Options) complete() (*pgxpool.Config, pgx.Identifier, error) {
	o.Mode = cmp.Or(o.Mode, Upsert)
	o.CreateTable = cmp.Or(o.CreateTable, new(true))
	o.MaxConnections = cmp.Or(o.MaxConnections, defaultMaxConnections)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))

	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	table := pgx.Identifier(strings.Split(o.Table, "."))
	if o.Table == "" || len(table) > 2 || table[0] == "" || table[len(table)-1] == "" {
		bad("table: %q is neither table nor schema.table", o.Table)
	}
	longest := suffixCurrent // of the names made from it
	if o.Retention > 0 {
		longest = month(0).suffix()
	}
	if room := maxIdentifier - len(longest); len(table[len(table)-1]) > room {
		bad("table: %q is too long, PostgreSQL has room for %d bytes", o.Table, room)
	}
	if o.Service == "" {
		bad("service: missing")
	}
	if o.Mode != Upsert && o.Mode != Append {
		bad("mode: %q is neither %q nor %q", o.Mode, Upsert, Append)
	}
	if o.Retention < 0 || o.Retention > 0 && o.Mode != Append {
		bad("retention: %s; it is for mode %q and positive", o.Retention, Append)
	}
	if o.MaxConnections < 1 || o.MaxConnections > math.MaxInt16 {
		bad("max_connections: %d is out of its range", o.MaxConnections)
	}

	seen := map[string]bool{"seq": true, "doc": false}
	for _, c := range baseColumns {
		seen[c.Name] = true
	}
	for i := range o.Columns {
		c := &o.Columns[i]
		c.Path = cmp.Or(c.Path, c.Name)
		switch {
		case c.Name == "" || len(c.Name) > maxIdentifier:
			bad("columns[%d].name: %q has no usable length", i, c.Name)
		case seen[c.Name]:
			bad("columns[%d].name: %q is taken", i, c.Name)
		case !typeName.MatchString(c.Type):
			bad("columns[%d].type: %q is not the name of a type", i, c.Type)
		case !sqlsink.Unit(c.Unit).Known():
			bad("columns[%d].unit: %q is not a unit", i, c.Unit)
		}
		seen[c.Name] = true
	}

	client, err := pgxpool.ParseConfig(o.URL)
	switch {
	case o.URL == "":
		bad("url: missing")
	case err != nil:
		// pgx masks the password, but quotes the rest of a string that may hold one.
		bad("url: not a PostgreSQL connection string")
	default:
		client.ConnConfig.ConnectTimeout = connectTimeout
		client.MaxConns = int32(o.MaxConnections) // #nosec G115 -- checked above
		// A pooler in transaction mode runs each transaction in another session: no prepared
		// statements. Every parameter of a statement has its type in the text.
		if client.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
			client.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		client.ConnConfig.StatementCacheCapacity, client.ConnConfig.DescriptionCacheCapacity = 0, 0
		if client.ConnConfig.RuntimeParams["application_name"] == "" {
			client.ConnConfig.RuntimeParams["application_name"] = "weir"
		}
	}
	if len(errs) > 0 {
		return nil, nil, fmt.Errorf("postgres sink: %w", errors.Join(errs...))
	}
	return client, table, nil
}
