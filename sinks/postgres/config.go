package postgres

import (
	"context"
	"regexp"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// Config writes to a PostgreSQL table.
type Config struct {
	sqlsink.TableConfig `yaml:",inline"`

	// Mode is the content of the table: the newest version of each entity, or
	// every change.
	Mode string `yaml:"mode" default:"upsert" enum:"upsert|append"`
	// Retention, in mode append only, is how long rows are kept. Defaults to
	// no limit.
	Retention config.Duration `yaml:"retention" range:"1d..3650d"`
}

// Kind implements config.Sink.
func (*Config) Kind() string { return "postgres" }

// DeliveryMode implements config.Sink.
func (c *Config) DeliveryMode() string {
	if Mode(c.Mode) == Append {
		return config.KindLog
	}
	return config.KindState
}

var tableName = regexp.MustCompile("^[^.\"'`\\x00]+(\\.[^.\"'`\\x00]+)?$")

// Check implements config.Sink.
func (c *Config) Check(check *config.Checker, d *config.Delivery) {
	check.Database("url", c.URL)
	check.Table("table", c.Table, tableName)
	check.Columns(c.Columns, append(config.CommonColumns(), "seq"))
	if check.Has("retention") && Mode(c.Mode) != Append {
		check.Fault("retention", "has no effect in mode "+c.Mode, "mode: append, or no retention")
	}
	if Mode(c.Mode) == Append && d.Kind == config.KindState {
		check.FaultBeside("kind", "would leave out changes from a table of every change", "log, or mode: upsert")
	}
	if !c.Insecure {
		check.PlainPostgres("url", c.URL)
	}
}

// Identity implements config.Sink.
func (c *Config) Identity(func(string) string) []any {
	return []any{config.Place(c.URL), c.Table, c.Mode, c.Columns.Identity(), c.Retention.D()}
}

// Target implements config.Sink.
func (c *Config) Target(*config.Cluster) config.Target {
	return c.TargetOf("postgres", c.Mode)
}

// Make implements kind.Sink.
func (c *Config) Make(e kind.Env) (sinks.Sink, error) {
	return New(Options{
		URL: c.URL.Reveal(), Table: c.Table, Service: e.Service, Mode: Mode(c.Mode), Columns: c.Columns,
		CreateTable: &c.Create, Retention: c.Retention.D(), Logger: e.Logger,
		Targets: e.Targets,
	})
}

// WithoutSecrets implements kind.Sink.
func (c *Config) WithoutSecrets() kind.Sink {
	copied := *c
	copied.URL = config.NewSecret("postgres://unset.invalid/unset")
	return &copied
}

// ToRead implements kind.Scannable.
func (c *Config) ToRead() (kind.Sink, bool) {
	copied := *c
	copied.Create, copied.Retention = false, 0
	return &copied, c.Retention > 0
}

// Ask implements reach.Target.
func (c *Config) Ask(ctx context.Context, _ func(config.Cluster) (transport.Config, error)) error {
	return reach.Postgres(ctx, c.URL.Reveal())
}
