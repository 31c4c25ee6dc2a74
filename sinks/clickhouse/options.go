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

// Options configure a sink as Config does, which checks them. URL, Table and
// Service are required. CreateTable defaults to true, Targets to a pool of its own.
type Options struct {
	URL, Table, Service string
	// Columns have types that newConverter knows. A column without Nullable refuses changes whose
	// value is null or absent.
	Columns     config.Columns
	CreateTable *bool
	PartitionBy string
	MaxBatch    int           // defaults to 10,000
	Linger      time.Duration // defaults to none
	Targets     *sinks.Targets
}

const (
	defaultMaxBatch = 10_000
	maxConnections  = 8 // of all sinks of one URL that has no max_open_conns

	maxBytes       = 32 << 20 // of documents in one Write
	connectTimeout = 10 * time.Second
	writeTimeout   = time.Minute // of one insert
)

var (
	// names matches the identifiers of an expression, with an opening bracket behind them.
	names = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)(\s*\()?`)
	// literals are texts in an expression, which hold no identifiers.
	literals = regexp.MustCompile(`'(?:[^'\\]|\\.|'')*'`)
)

// parseURL reads a connection string. For https the driver needs secure to be set too. Of
// repeated parameters the first counts.
func parseURL(text string) (*clickhouse.Options, error) {
	if strings.HasPrefix(text, "https://") {
		if !strings.Contains(text, "?") {
			text += "?"
		}
		text += "&secure=true"
	}
	return clickhouse.ParseDSN(text)
}

// complete fills in defaults, then checks everything. The error names all that is wrong.
func (o *Options) complete() (*clickhouse.Options, error) {
	o.CreateTable = cmp.Or(o.CreateTable, new(true))
	o.MaxBatch = cmp.Or(o.MaxBatch, defaultMaxBatch)

	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	client, err := parseURL(o.URL)
	if err != nil {
		// The library's text may quote a password.
		bad("url: not a ClickHouse connection string")
		client = &clickhouse.Options{}
	}
	client.DialTimeout, client.ReadTimeout = connectTimeout, writeTimeout
	client.MaxOpenConns = cmp.Or(client.MaxOpenConns, maxConnections)
	client.MaxIdleConns = client.MaxOpenConns
	client.ClientInfo.Products = append(client.ClientInfo.Products, struct{ Name, Version string }{"weir", "1"})

	database, table, dotted := strings.Cut(o.Table, ".")
	if !dotted {
		database, table = client.Auth.Database, o.Table
		if database == "" {
			database = "default"
		}
	}
	o.Table = database + "." + table

	if foreign := beyondKey(o.PartitionBy); len(foreign) > 0 {
		bad("partition_by: %q depends on %s; rows are replaced inside one partition only, so it may depend on service and entity alone",
			o.PartitionBy, strings.Join(foreign, ", "))
	}
	if o.Columns, err = sqlsink.Columns(o.Columns, func(c config.Column) error {
		_, err := newConverter(c.Type, sqlsink.Unit(c.Unit))
		return err
	}); err != nil {
		errs = append(errs, err)
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
