package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
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

// Options configure a sink as Config does, which checks them. URL, Table and
// Service are required. CreateTable defaults to true, Targets to a pool of its own.
type Options struct {
	URL, Table, Service string
	Mode                Mode // defaults to Upsert
	Columns             config.Columns
	CreateTable         *bool
	Retention           time.Duration // counted from changed_at, to the month's end
	Targets             *sinks.Targets
	Logger              *slog.Logger // defaults to none
}

const (
	maxBatch       = 5000
	maxBytes       = 16 << 20
	linger         = 20 * time.Millisecond
	connectTimeout = 10 * time.Second
	writeTimeout   = 30 * time.Second // of one statement
	maxConnections = 8                // of all sinks of one URL that has no pool_max_conns

	// docType is the type of the column doc.
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

// complete fills in defaults, then checks everything. The error names all that is wrong.
func (o *Options) complete() (*pgxpool.Config, pgx.Identifier, error) {
	o.Mode = cmp.Or(o.Mode, Upsert)
	o.CreateTable = cmp.Or(o.CreateTable, new(true))
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))

	table := pgx.Identifier(strings.Split(o.Table, "."))
	longest := sqlsink.SuffixCurrent // of the names made from it
	if o.Retention > 0 {
		longest = month(0).suffix()
	}
	var long error
	if room := maxIdentifier - len(longest); len(table[len(table)-1]) > room {
		long = fmt.Errorf("table: %q is too long, PostgreSQL has room for %d bytes", o.Table, room)
	}
	var faults error
	o.Columns, faults = sqlsink.Columns(o.Columns, func(c config.Column) error {
		switch {
		case len(c.Name) > maxIdentifier:
			return errors.New("the name is too long")
		case !typeName.MatchString(c.Type):
			return fmt.Errorf("%q is not the name of a type", c.Type)
		}
		return nil
	})
	client, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		// pgx masks the password, but quotes the rest of a string that may hold one.
		err = errors.New("url: not a PostgreSQL connection string")
	} else {
		client.ConnConfig.ConnectTimeout = connectTimeout
		if !strings.Contains(o.URL, "pool_max_conns") {
			client.MaxConns = maxConnections
		}
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
	if err := errors.Join(long, faults, err); err != nil {
		return nil, nil, fmt.Errorf("postgres sink: %w", err)
	}
	return client, table, nil
}
