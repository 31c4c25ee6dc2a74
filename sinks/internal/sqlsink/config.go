package sqlsink

import "github.com/seed-86dfc502/weir/config"

// TableConfig has the keys of all sinks that write tables.
type TableConfig struct {
	// URL is postgres:// or clickhouse://user:password@host:port/database, or http:// or
	// https:// for ClickHouse's HTTP protocol.
	URL config.Secret `yaml:"url" required:"true"`
	// Insecure allows a connection that is not encrypted, or whose server is not
	// verified, to another machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// Table is table, schema.table or database.table.
	Table string `yaml:"table" required:"true"`
	// Columns, if any, take the place of the column doc, by name.
	Columns config.Columns `yaml:"columns"`
	// Create makes the table if it is missing.
	Create bool `yaml:"create" default:"true"`
}

// ApplyDefaults implements config.SinkDefaults.
func (c *TableConfig) ApplyDefaults() { c.Columns.ApplyDefaults() }

// TargetOf returns the target of a sink of a kind; services of one mode may share it.
func (c *TableConfig) TargetOf(kind, mode string) config.Target {
	return config.Target{Key: "table", Name: config.TableTarget(kind, c.URL, c.Table), Shape: mode + " " + c.Columns.Shape()}
}
