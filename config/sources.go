package config

import "strings"

// Sources in the order of the file.
type Sources []Source

// JSONSchemaAlias says that a file has them as a mapping by name.
func (Sources) JSONSchemaAlias() any { return map[string]Source{} }

// MaxEventOf gives the most bytes of an event of a source; 0 if there is none of
// that name.
func (s Sources) MaxEventOf(name string) int {
	if found := s.Find(name); found != nil {
		return int(found.MaxEvent)
	}
	return 0
}

// Find gives the source of that name, nil if there is none.
func (s Sources) Find(name string) *Source {
	for i := range s {
		if s[i].Name == name {
			return &s[i]
		}
	}
	return nil
}

// Forms of a source's values.
const (
	FormatJSON     = "json"
	FormatDebezium = "debezium"
	FormatMaxwell  = "maxwell"
)

// How a source's event relates to its stored document.
const (
	Replace = "replace" // the payload is the whole document
	Patch   = "patch"   // the payload is a merge patch (RFC 7386)
)

// Source is a stream of JSON events about entities: exactly one of Kafka, HTTP,
// File and Outbox is given.
type Source struct {
	Name string   `yaml:"-" key:"true"`
	Pos  Position `yaml:"-"`

	// Kafka reads a topic.
	Kafka *KafkaSource `yaml:"kafka" oneof:"required"`
	// HTTP takes posted events.
	HTTP *HTTPSource `yaml:"http" oneof:"required"`
	// File reads a file of JSON lines and follows it.
	File *FileSource `yaml:"file" oneof:"required"`
	// Outbox reads a table of a PostgreSQL database in which an application
	// writes its events.
	Outbox *OutboxSource `yaml:"outbox" oneof:"required"`

	// Format is the form of the values: what the producer wrote, or the change
	// events of Debezium or Maxwell, whose rows are then the documents.
	Format string `yaml:"format" default:"json" enum:"json|debezium|maxwell"`
	// Entity is where the entity's id stands: a gjson path, header:NAME, or key
	// for the record's key. Required, except for an outbox, which has it in a
	// column.
	Entity Locator `yaml:"entity"`
	// EventID is where the producer's id of the event stands. Without it the
	// gate lets everything through and the fence goes by positions alone.
	EventID Locator `yaml:"event_id"`
	// Payload is the gjson path of the document in the event. Defaults to the
	// whole value.
	Payload Locator `yaml:"payload"`
	// Operation is where the event says what it does. Without it every event is
	// an upsert, except a null value, which is a delete.
	Operation Locator `yaml:"operation"`
	// DeleteValues are the values of Operation that mean delete, compared
	// without regard to case; all others are an upsert.
	DeleteValues []string `yaml:"delete_values" default:"delete,deleted,d,remove,tombstone"`
	// Sequence is where the producer's order stands: an older one never
	// overwrites a newer one.
	Sequence Locator `yaml:"sequence"`
	// Strip lists patterns of paths that matter to nobody.
	Strip []string `yaml:"strip"`
	// Mode says whether a payload replaces the stored document or patches it.
	Mode string `yaml:"mode" default:"replace" enum:"replace|patch"`
	// Mount is the member of the merged document under which this source's
	// document stands. Defaults to the root.
	Mount string `yaml:"mount"`
	// Shared says that other tenants than this source's may write to sources at the
	// same place of the merged document, which say so as well.
	Shared bool `yaml:"shared" default:"false"`
	// MaxEvent is the largest event; a larger one becomes a dead letter.
	MaxEvent Size `yaml:"max_event" default:"8MiB" range:"1KiB..96MiB"`
}

// IsDelete reports whether the value of Operation means delete.
func (s *Source) IsDelete(operation string) bool {
	for _, v := range s.DeleteValues {
		if strings.EqualFold(v, operation) {
			return true
		}
	}
	return false
}

// KafkaSource reads a topic, from its oldest record on.
type KafkaSource struct {
	// Cluster is where the topic is, if not in the cluster of the main kafka key.
	Cluster `yaml:",inline"`
	// Topic is the topic's name.
	Topic string `yaml:"topic" required:"true"`
	// Window is how many messages per partition are in work at a time.
	Window int `yaml:"window" default:"1000" range:"1..100000"`
	// Group is the consumer group. Defaults to <kafka.group>.source.<name>.
	Group string `yaml:"group"`
}

// HTTPSource takes events that are posted to the ingest listener.
type HTTPSource struct {
	// Path is the name in the URL, /v1/sources/<path>/events. Defaults to the
	// source's name.
	Path string `yaml:"path"`
	// MaxBody is the largest request.
	MaxBody Size `yaml:"max_body" default:"16MiB" range:"1KiB..1GiB"`
	// Token that requests must carry as a bearer token, at least 16 characters.
	// Required if the listener is reachable beyond loopback.
	Token Secret `yaml:"token"`
}

// FileSource reads a file with one JSON event per line.
type FileSource struct {
	// Path of the file. It need not exist yet.
	Path string `yaml:"path" path:"true" required:"true"`
}

// What becomes of a row of an outbox that was taken in.
const (
	AfterDelete = "delete"
	AfterMark   = "mark"
)

// OutboxSource reads a table of a PostgreSQL database, 13 or later. Several
// processes may read it side by side.
type OutboxSource struct {
	// URL of the database. It may hold a password.
	URL Secret `yaml:"url" required:"true"`
	// Insecure allows a connection that is not encrypted, or whose server is not
	// verified, to another machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// Table is the table's name, with its schema unless that is on the search_path.
	Table string `yaml:"table" required:"true"`
	// Columns are the names of its columns.
	Columns OutboxColumns `yaml:"columns"`
	// Poll is how often the table is looked at while it is empty.
	Poll Duration `yaml:"poll" default:"1s" range:"10ms..1h"`
	// Batch is the most rows of one transaction.
	Batch int `yaml:"batch" default:"500" range:"1..10000"`
	// After says what becomes of a row whose event is durable.
	After string `yaml:"after" default:"delete" enum:"delete|mark"`
	// Channel of NOTIFY that ends the wait of poll.
	Channel string `yaml:"channel"`
}

// OutboxColumns are the names of an outbox table's columns.
type OutboxColumns struct {
	// ID is unique, and orders the events of an entity.
	ID string `yaml:"id" default:"id"`
	// Entity is the entity's id.
	Entity string `yaml:"entity" default:"entity"`
	// Payload is the document: json, jsonb, text or bytea. Null is a delete.
	Payload string `yaml:"payload" default:"payload"`
	// EventID is the producer's id of the event. Defaults to a name of the row.
	EventID string `yaml:"event_id"`
	// Operation says what the event does. Without it every event is an upsert,
	// except a null payload, which is a delete.
	Operation string `yaml:"operation"`
	// Headers is a JSON object of what sequence: header:NAME reads.
	Headers string `yaml:"headers"`
	// Processed is the column that after: mark sets to the time. A row in which it
	// is set is not taken, with after: delete neither.
	Processed string `yaml:"processed" default:"processed_at"`
}

// Locator says where in an event a value stands. The zero Locator stands for
// a key that is not configured.
type Locator struct {
	Path   string // gjson path into the value
	Header string // name of a header
	Key    bool   // the record's key
}

// IsZero reports whether nothing is configured.
func (l Locator) IsZero() bool { return l == Locator{} }

// String gives the locator as it is written in a file.
func (l Locator) String() string {
	switch {
	case l.Key:
		return "key"
	case l.Header != "":
		return "header:" + l.Header
	}
	return l.Path
}

// MarshalText is String.
func (l Locator) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads "key", "header:NAME" or a gjson path. A member that is
// called key is written \key.
func (l *Locator) UnmarshalText(text []byte) error {
	s := string(text)
	name, isHeader := strings.CutPrefix(s, "header:")
	switch {
	case s == "key":
		*l = Locator{Key: true}
	case isHeader && strings.TrimSpace(name) == "":
		return &mistake{problem: "names no header", want: "header:NAME"}
	case isHeader:
		*l = Locator{Header: name}
	default:
		if m := checkGJSON(s); m != nil {
			return m
		}
		*l = Locator{Path: s}
	}
	return nil
}
