package config

import "slices"

// Kafka carries the inbox. Without Brokers it is a table of the SQLite file.
type Kafka struct {
	Cluster `yaml:",inline"`
	// Prefix of the internal topics and the consumer groups: <prefix>.inbox,
	// <prefix>.journal. Processes with the same one share the work.
	Prefix string `yaml:"prefix" default:"weir"`
	// Inbox is the topic of all events.
	Inbox Inbox `yaml:"inbox"`
	// SessionTimeout is how long a silent process keeps its partitions.
	SessionTimeout Duration `yaml:"session_timeout" default:"10s" range:"1s..5m"`
	// FrameRecords is the most records of one frame: of a partition, one frame is in work.
	FrameRecords int `yaml:"frame_records" default:"1000" range:"1..100000"`
	// Replication factor of the internal topics; -1 is the servers' own default.
	Replication int `yaml:"replication" default:"-1" range:"-1..9"`
}

// Embedded reports whether the inbox is a table of the SQLite file, which one process at a
// time has then.
func (k *Kafka) Embedded() bool { return len(k.Brokers) == 0 }

// Journal is the topic of the journal. It is "" where the logs are in the state's file, which has a
// note beside it instead.
func (k *Kafka) Journal() string {
	if k.Embedded() {
		return ""
	}
	return k.Prefix + ".journal"
}

// Cluster says how a Kafka cluster is reached.
type Cluster struct {
	// Brokers are addresses, host:port, of some of the servers.
	Brokers []string `yaml:"brokers"`
	// TLS, if given (also as {}), encrypts the connections.
	TLS *TLS `yaml:"tls"`
	// SASL authenticates.
	SASL *SASL `yaml:"sasl"`
	// Insecure allows connections that are not encrypted to other machines.
	Insecure bool `yaml:"insecure" default:"false"`
}

// SortedBrokers returns the brokers in an order that does not depend on the file.
func (c *Cluster) SortedBrokers() []string {
	brokers := slices.Clone(c.Brokers)
	slices.Sort(brokers)
	return brokers
}

// Inbox is the internal topic of all events, keyed by entity.
type Inbox struct {
	// Topic is its name. Defaults to <prefix>.inbox.
	Topic string `yaml:"topic"`
	// Partitions, fixed at creation: the most processes that can decide at a time.
	Partitions int `yaml:"partitions" default:"8" range:"1..1024"`
	// Retention bounds how far back a restored store can be brought up to date.
	Retention Duration `yaml:"retention" default:"7d" range:"1h..3650d"`
}

// TLS secures a connection to a server. The server's certificate is always
// verified.
type TLS struct {
	// CA is a PEM file of certificate authorities. Defaults to the system's.
	CA string `yaml:"ca" path:"true"`
	// Cert is a PEM file with the client's certificate, together with Key.
	Cert string `yaml:"cert" path:"true"`
	// Key is a PEM file with the client's private key, together with Cert.
	Key string `yaml:"key" path:"true"`
}

// SASL authenticates at a Kafka cluster.
type SASL struct {
	// Mechanism of the exchange.
	Mechanism string `yaml:"mechanism" required:"true" enum:"plain|scram-sha-256|scram-sha-512"`
	// Username to authenticate as.
	Username string `yaml:"username" required:"true"`
	// Password of the user.
	Password Secret `yaml:"password" required:"true"`
}
