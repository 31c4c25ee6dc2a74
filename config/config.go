package config

import "github.com/seed-86dfc502/weir/projections"

// Config is the whole configuration, defaults filled in. It is read-only after
// Load, so any number of goroutines may use it.
type Config struct {
	// DataDir is the folder of everything that is kept without servers: the
	// SQLite file. Relative to the main file.
	DataDir string `yaml:"data_dir" default:"data" path:"true"`
	// Store holds what Weir must remember. Defaults to state.db in the data folder.
	Store Store `yaml:"store"`
	// Gate recognises events that were taken in before. Defaults to memory.
	Gate Gate `yaml:"gate"`
	// Kafka carries the inbox and the changes. Defaults to tables of
	// the SQLite file.
	Kafka Kafka `yaml:"kafka"`
	// Sources are the streams of events, by name.
	Sources Sources `yaml:"sources" required:"true"`
	// Merge says how the documents of several sources become one.
	Merge Merge `yaml:"merge"`
	// CustomerFiles are patterns of the customers' files, relative to the main
	// file. Each pattern must match a file.
	CustomerFiles []string `yaml:"customers" required:"true"`
	// CustomersEnv lists the environment variables that customers' files may refer to,
	// in secrets of their sinks: names, or prefixes followed by *. Defaults to none.
	CustomersEnv []string `yaml:"customers_env"`
	// CustomersSecrets lists the folders, relative to the main file, whose files
	// customers' files may refer to, in secrets of their sinks. Defaults to none.
	CustomersSecrets []string `yaml:"customers_secrets"`
	// API is the listener for producers and callers. It opens if there is an http source or a
	// check, or this key, also as {}.
	API API `yaml:"api"`
	// Limits bound what one event may cost.
	Limits Limits `yaml:"limits"`
	// Retention says how long records of the past are kept.
	Retention Retention `yaml:"retention"`
	// History bounds the kept attempts to deliver, per service.
	History History `yaml:"history"`
	// Admin is the listener for operators: health, metrics, the page.
	Admin Admin `yaml:"admin"`
	// Shutdown says how a process ends.
	Shutdown Shutdown `yaml:"shutdown"`
	// Log configures logging, to standard error.
	Log Log `yaml:"log"`
	// Tracing, if given, sends OpenTelemetry traces. Defaults to none.
	Tracing *Tracing `yaml:"tracing"`

	// File is the main file's path as it was given to Load.
	File string `yaml:"-"`
	// Customers are the customers' names in the order of their files.
	Customers []string `yaml:"-"`
	// Projections of all customers, in the order of the files.
	Projections []Projection `yaml:"-"`
	// Checks of all customers, in the order of the files.
	Checks []Check `yaml:"-"`

	fingerprint [32]byte                  `yaml:"-"` // by Load, like the others
	prints      Prints                    `yaml:"-"`
	compiled    []*projections.Projection `yaml:"-"` // of Projections
}

// Store is where the state lives. Without PostgreSQL it is a SQLite file, for a single process.
type Store struct {
	Postgres *PostgresStore `yaml:"postgres"`
	// File is the SQLite file, state.db in the data folder, or empty with PostgreSQL.
	File string `yaml:"-"`
}

// PostgresStore is a PostgreSQL database, version 15 or later.
type PostgresStore struct {
	// URL is a connection string, postgres://user:password@host:port/database;
	// TLS settings (sslmode, sslrootcert, …) are part of it.
	URL Secret `yaml:"url" required:"true"`
	// Insecure allows a connection that is not encrypted, or whose server is not
	// verified, to another machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// MaxConnections bounds the connections of one process.
	MaxConnections int `yaml:"max_connections" default:"8" range:"2..1000"`
	// Pooled says that the server is reached through a pooler in transaction mode (PgBouncer).
	Pooled bool `yaml:"pooled" default:"false"`
}

// Gate is the memory of event ids: at most one of Valkey and Memory is given.
type Gate struct {
	Valkey *Valkey     `yaml:"valkey" oneof:"optional"`
	Memory *MemoryGate `yaml:"memory" oneof:"optional"`
	// TTL is how long an event id is remembered at least. In Valkey at most twice as long.
	TTL Duration `yaml:"ttl" default:"24h" range:"1s..30d"`
}

// Valkey is a Valkey or Redis server, or a cluster.
type Valkey struct {
	// Address is host:port, or a list of some nodes of a cluster.
	Address []string `yaml:"address,single" required:"true"`
	// Username for ACL authentication.
	Username string `yaml:"username"`
	// Password for authentication.
	Password Secret `yaml:"password"`
	// DB is the number of the database. A cluster has only 0.
	DB int `yaml:"db" default:"0" range:"0..15"`
	// TLS, if given (also as {}), encrypts the connection.
	TLS *TLS `yaml:"tls"`
	// Insecure allows a connection that is not encrypted to another
	// machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// Prefix of every key.
	Prefix string `yaml:"prefix" default:"weir:"`
	// Timeout of one request. After it events are let through.
	Timeout Duration `yaml:"timeout" default:"500ms" range:"1ms..1m"`
}

// MemoryGate remembers inside the process, so it forgets at a restart.
type MemoryGate struct {
	// MaxEntries bounds the memory. The oldest are forgotten first.
	MaxEntries int `yaml:"max_entries" default:"1000000" range:"1..100000000"`
}

// Merge says how the source documents of an entity become one document.
type Merge struct {
	// Precedence lists sources, the strongest first: where two have the same
	// path, the first one's value wins. Defaults to the order of the sources in
	// the file; sources that are not listed come after those that are.
	Precedence []string `yaml:"precedence"`
	// Required lists sources without whose document an entity is not yet
	// complete and makes no changes.
	Required []string `yaml:"required"`
}

// Limits bound what one event may cost.
type Limits struct {
	// Change is the largest change, its document included. A larger one becomes
	// a dead letter.
	Change Size `yaml:"change" default:"8MiB" range:"1KiB..96MiB"`
	// Memory is what pending events, frames and changes may hold together, in one
	// process. The runtime collects garbage rather than use much more. Defaults to a
	// quarter of the memory of the machine or control group, from 128MiB to 512MiB.
	Memory Size `yaml:"memory" range:"64MiB..256GiB"`
	// EntityID is the longest entity id.
	EntityID Size `yaml:"entity_id" default:"512B" range:"1B..2KiB"`
}

// Retention says how long records of the past are kept.
type Retention struct {
	// Changes that were decided: it bounds how long a customer's target may be away.
	Changes Duration `yaml:"changes" default:"3d" range:"1h..3650d"`
	// ChangesSize bounds the changes log by its size, too: the oldest changes go first.
	ChangesSize Size `yaml:"changes_size" range:"64MiB..65536GiB"`
	// Tombstones of deleted entities. After it an old event can bring one back.
	Tombstones Duration `yaml:"tombstones" default:"30d" range:"1h..3650d"`
	// DeadLetters without an operator's action.
	DeadLetters Duration `yaml:"dead_letters" default:"90d" range:"1h..3650d"`
	// Audit of operators' actions.
	Audit Duration `yaml:"audit" default:"365d" range:"1d..3650d"`
}

// History bounds the kept attempts of a service: when, which version,
// how it ended, and the first bytes of the answer.
type History struct {
	// Keep is for how long. 0s keeps none.
	Keep Duration `yaml:"keep" default:"7d" range:"0s..366d"`
}

// Admin is the listener for operators.
type Admin struct {
	// Listen is host:port; "off" or "" closes it. Beyond loopback a token is
	// required.
	Listen string `yaml:"listen" default:"127.0.0.1:9600"`
	// Token that requests must carry as a bearer token, at least 16 characters. With it Go's
	// profiles are at /debug/pprof/.
	Token Secret `yaml:"token"`
	// MetricsToken lets /metrics be read and nothing else, at least 16 characters.
	MetricsToken Secret `yaml:"metrics_token"`
	// TLS, if given, serves HTTPS; cert and key are required then.
	TLS *ServerTLS `yaml:"tls"`
	// Insecure allows a listener without TLS that other machines can reach, as
	// behind a proxy.
	Insecure bool `yaml:"insecure" default:"false"`
}

// Off reports whether the listener is closed.
func (a Admin) Off() bool { return a.Listen == "" || a.Listen == "off" }

// ServerTLS is a listener's certificate.
type ServerTLS struct {
	// Cert is a PEM file with the certificate chain.
	Cert string `yaml:"cert" path:"true" required:"true"`
	// Key is a PEM file with the private key.
	Key string `yaml:"key" path:"true" required:"true"`
}

// Shutdown says how a process ends.
type Shutdown struct {
	// Timeout is the longest that a shutdown may take: work in flight finishes within
	// it, and what servers keep from finishing is redelivered at the next start.
	Timeout Duration `yaml:"timeout" default:"20s" range:"1s..10m"`
}

// Log configures logging.
type Log struct {
	// Level is the least severe level that is logged.
	Level string `yaml:"level" default:"info" enum:"debug|info|warn|error"`
	// Format of a line.
	Format string `yaml:"format" default:"text" enum:"text|json"`
}
