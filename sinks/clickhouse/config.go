package clickhouse

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	driver "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// Config inserts into a ReplacingMergeTree(version, is_deleted) table.
type Config struct {
	sqlsink.TableConfig `yaml:",inline"`

	// PartitionBy is the PARTITION BY expression of a table that is created, like
	// "cityHash64(entity) % 8". It may depend on service and entity only.
	PartitionBy string `yaml:"partition_by"`
	// MaxBatch is the most rows of one insert.
	MaxBatch int `yaml:"max_batch" default:"10000" range:"1..1000000"`
	// Linger is how long to wait for a batch to fill.
	Linger config.Duration `yaml:"linger" default:"200ms" range:"0s..1m"`
}

// Kind implements config.Sink.
func (*Config) Kind() string { return "clickhouse" }

// DeliveryMode implements config.Sink.
func (*Config) DeliveryMode() string { return config.KindState }

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// Check implements config.Sink.
func (c *Config) Check(check *config.Checker, _ *config.Delivery) {
	check.URL("url", c.URL, "clickhouse://user:password@host:port/database, or http:// or https://", "clickhouse", "http", "https")
	check.Table("table", c.Table, tableName)
	check.Columns(c.Columns, config.CommonColumns())
	for _, column := range c.Columns {
		if !tableName.MatchString(column.Name) || strings.Contains(column.Name, ".") {
			check.FaultKey(config.Key("columns", column.Name), "is not a name that ClickHouse takes", "letters, digits and _, the first no digit")
		}
	}
	if check.Has("partition_by") && !c.Create {
		check.FaultKey("partition_by", "has no effect without create", "create: true, or no partition_by")
	}
	if !c.Insecure {
		c.checkPlaintext(check)
	}
}

// checkPlaintext refuses a server on another machine that is reached without TLS or
// not verified.
func (c *Config) checkPlaintext(check *config.Checker) {
	o, err := parseURL(c.URL.Reveal())
	switch {
	case err != nil || !slices.ContainsFunc(o.Addr, config.AddressBeyond):
	case o.TLS == nil:
		check.Plain("url", "is reached without TLS beyond this machine", "https://, or secure=true in it, or insecure: true beside it where no third party can read the traffic")
	case o.TLS.InsecureSkipVerify:
		check.Plain("url", "does not verify the server beyond this machine", "no skip_verify, or insecure: true beside it where no third party can read the traffic")
	}
}

// Identity implements config.Sink.
func (c *Config) Identity(func(string) string) []any {
	return []any{config.Place(c.URL), c.Table, c.Columns.Identity()}
}

// Target implements config.Sink.
func (c *Config) Target(*config.Cluster) config.Target {
	return c.TargetOf("clickhouse", "table")
}

// Make implements kind.Sink.
func (c *Config) Make(e kind.Env) (sinks.Sink, error) {
	return New(Options{
		URL: c.URL.Reveal(), Table: c.Table, Service: e.Service, CreateTable: &c.Create, Columns: c.Columns,
		PartitionBy: c.PartitionBy, MaxBatch: c.MaxBatch, Linger: c.Linger.D(),
		Targets: e.Targets,
	})
}

// WithoutSecrets implements kind.Sink.
func (c *Config) WithoutSecrets() kind.Sink {
	copied := *c
	copied.URL = config.NewSecret("clickhouse://unset.invalid:9000/default")
	return &copied
}

// ToRead implements kind.Scannable.
func (c *Config) ToRead() (kind.Sink, bool) {
	copied := *c
	copied.Create = false
	return &copied, false
}

// Ask implements reach.Target.
func (c *Config) Ask(ctx context.Context, _ func(config.Cluster) (transport.Config, error)) error {
	options, err := parseURL(c.URL.Reveal())
	if err != nil {
		return errors.New("the URL cannot be read") // its error may hold the password
	}
	conn, err := driver.Open(options)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close())
}
