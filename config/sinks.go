package config

// FileSink appends one JSON object per change to a file.
type FileSink struct {
	// Path of the file. Folders are created.
	Path string `yaml:"path" path:"true" required:"true"`
}

// KafkaSink appends one record per change to a topic, keyed by entity.
type KafkaSink struct {
	// Cluster is where the topic is, if not in the cluster of the main kafka key.
	Cluster `yaml:",inline"`
	// Topic is the topic's name.
	Topic string `yaml:"topic" required:"true"`
	// Tombstones sends a retraction as a null value, as compacted topics want it.
	Tombstones bool `yaml:"tombstones" default:"false"`
}

// WebhookSink posts each change, signed by Standard Webhooks.
type WebhookSink struct {
	// URL to post to.
	URL Secret `yaml:"url" required:"true"`
	// Secret signs: whsec_ and the base64 form of 24 to 64 bytes. A list signs
	// with each of them, for the time of a rotation.
	Secret []Secret `yaml:"secret,single" required:"true"`
	// Headers are sent with every request.
	Headers map[string]Secret `yaml:"headers"`
	// Timeout of one request, from connecting to the end of the answer.
	Timeout Duration `yaml:"timeout" default:"15s" range:"10ms..5m"`
	// Concurrency is how many entities are in flight at a time.
	Concurrency int `yaml:"concurrency" default:"8" range:"1..1024"`
	// MaxConnections bounds the connections, and the requests at a time, of one
	// process to the host, for all webhooks of the same host, user, headers,
	// insecure and tls. Defaults to 32, or the largest concurrency among them.
	MaxConnections int `yaml:"max_connections" default:"32" range:"2..1000"`
	// Mode says whether the customer needs the newest document only, or every
	// change.
	Mode string `yaml:"mode" default:"state" enum:"state|log"`
	// Insecure allows http to another machine, and addresses that are not public.
	Insecure bool `yaml:"insecure" default:"false"`
	// DenyPrivate refuses to connect to addresses that are not public, also where
	// a name leads to one: without Insecure, and unless URL names this machine.
	DenyPrivate bool `yaml:"-"`
	// TLS, if given, replaces the system's certificate authorities.
	TLS *TLS `yaml:"tls"`
}

// ClickHouseSink inserts into a ReplacingMergeTree(version, is_deleted) table.
type ClickHouseSink struct {
	// URL is clickhouse://user:password@host:port/database, or http:// or
	// https:// for the HTTP protocol.
	URL Secret `yaml:"url" required:"true"`
	// Insecure allows a connection that is not encrypted, or whose server is not
	// verified, to another machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// Table is table or database.table.
	Table string `yaml:"table" required:"true"`
	// Columns, if any, take the place of the column doc, by name.
	Columns Columns `yaml:"columns"`
	// Create makes the table if it is missing.
	Create bool `yaml:"create" default:"true"`
	// PartitionBy is the PARTITION BY expression of a table that is created, like
	// "cityHash64(entity) % 8". It may depend on service and entity only.
	PartitionBy string `yaml:"partition_by"`
	// MaxBatch is the most rows of one insert.
	MaxBatch int `yaml:"max_batch" default:"10000" range:"1..1000000"`
	// Linger is how long to wait for a batch to fill.
	Linger Duration `yaml:"linger" default:"200ms" range:"0s..1m"`
	// MaxConnections bounds the connections of one process to the server, for all
	// sinks of this URL.
	MaxConnections int `yaml:"max_connections" default:"8" range:"2..1000"`
}

// What a PostgreSQL sink keeps.
const (
	Upsert = "upsert" // the newest version of each entity
	Append = "append" // every change
)

// PostgresSink writes to a PostgreSQL table.
type PostgresSink struct {
	// URL is a connection string, postgres://user:password@host:port/database;
	// TLS settings (sslmode, sslrootcert, …) are part of it.
	URL Secret `yaml:"url" required:"true"`
	// Insecure allows a connection that is not encrypted, or whose server is not
	// verified, to another machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// Table is table or schema.table.
	Table string `yaml:"table" required:"true"`
	// Mode says what the table keeps: the newest version of each entity, or
	// every change.
	Mode string `yaml:"mode" default:"upsert" enum:"upsert|append"`
	// Columns, if any, take the place of the column doc, by name.
	Columns Columns `yaml:"columns"`
	// Create makes the table if it is missing.
	Create bool `yaml:"create" default:"true"`
	// Retention, in mode append only, is how long rows are kept. Defaults to
	// for ever.
	Retention Duration `yaml:"retention" range:"1d..3650d"`
	// MaxConnections bounds the connections of one process to the server, for all
	// sinks of this URL.
	MaxConnections int `yaml:"max_connections" default:"8" range:"2..1000"`
}

// Columns in the order of the file.
type Columns []Column

// JSONSchemaAlias says that a file has them as a mapping by name.
func (Columns) JSONSchemaAlias() any { return map[string]Column{} }

// Column is a typed column of a table. In a file it is a type, or a mapping.
type Column struct {
	Name string   `yaml:"-" key:"true"`
	Pos  Position `yaml:"-"`

	// Type is the database's name of the type.
	Type string `yaml:"type" required:"true"`
	// Path is where the value stands in the projected document. Defaults to the
	// column's name.
	Path string `yaml:"path"`
}
