package config

import (
	"cmp"
	"iter"
	"strings"
)

// Sources in the order of the file.
type Sources []Source

// JSONSchemaAlias says that a file has them as a mapping by name.
func (Sources) JSONSchemaAlias() any { return map[string]Source{} }

// MaxEventOf returns the most bytes of an event of a source, or 0 if there is none of that name.
func (s Sources) MaxEventOf(name string) int {
	if found := s.Find(name); found != nil {
		return int(found.MaxEvent)
	}
	return 0
}

// Names returns the sources' names, in the order of the file.
func (s Sources) Names() []string {
	names := make([]string, len(s))
	for i := range s {
		names[i] = s[i].Name
	}
	return names
}

// Find returns the source of that name, or nil.
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
	Patch   = "patch"   // the payload is a merge patch (RFC 7396)
)

// Source is a stream of JSON events about entities: exactly one kind of input is
// given.
type Source struct {
	Name string   `yaml:"-" key:"true"`
	Pos  Position `yaml:"-"`

	at, inputAt string // paths in the file of a part of a Divided

	// Input is where its events come from.
	Input SourceConfig `yaml:",kind"`

	// Format is the form of the values: the producer's document, or the change
	// events of Debezium or Maxwell, whose rows are then the documents.
	Format string `yaml:"format" default:"json" enum:"json|debezium|maxwell"`
	// Entity locates the entity's id: a gjson path, header:NAME, or key
	// for the record's key. Required, except for an outbox, which has it in a
	// column.
	Entity Locator `yaml:"entity"`
	// EventID locates the producer's id of the event. Without it the
	// gate lets everything through and the fence compares positions alone.
	EventID Locator `yaml:"event_id"`
	// Payload is the gjson path of the document in the event. Defaults to the
	// whole value.
	Payload Locator `yaml:"payload"`
	// Operation locates the event's operation. Without it every event is
	// an upsert, except a null value, which is a delete.
	Operation Locator `yaml:"operation"`
	// DeleteValues are the values of Operation that mean delete, compared without regard to case.
	// All others are an upsert.
	DeleteValues []string `yaml:"delete_values" default:"delete,deleted,d,remove,tombstone"`
	// Sequence locates the producer's order: an older one never
	// overwrites a newer one.
	Sequence Locator `yaml:"sequence"`
	// UnavailableValue is the connector's unavailable.value.placeholder: a column that has
	// it keeps the value of the stored document. Defaults to Debezium's with format debezium, else
	// to none.
	UnavailableValue string `yaml:"unavailable_value"`
	// UnchangedAsNull are columns of a table of PostgreSQL that the application never sets to
	// null: one that Debezium writes as null in an update keeps the value of the stored document.
	// A row that Debezium flattened is an update unless it says another operation in __op.
	UnchangedAsNull []string `yaml:"unchanged_as_null"`
	// RowImage full says that the database logs the whole row before a change (REPLICA IDENTITY
	// FULL in PostgreSQL). Without it an entity id outside the record's key is taken from a
	// deleted row only where the event shows that it is the row's own.
	RowImage string `yaml:"row_image" enum:"full"`
	// Strip lists patterns of paths that no service needs.
	Strip []string `yaml:"strip"`
	// Mode says whether a payload replaces the stored document or patches it.
	Mode string `yaml:"mode" default:"replace" enum:"replace|patch"`
	// Mount is the member of the merged document under which this source's
	// document appears. Defaults to the root.
	Mount string `yaml:"mount"`
	// Shared says that other tenants than this source's may write to sources at the
	// same place of the merged document, which say so as well.
	Shared bool `yaml:"shared" default:"false"`
	// MaxEvent is the largest event. A larger one becomes a dead letter. With mode patch it is
	// the largest document, too, that patches make.
	MaxEvent Size `yaml:"max_event" default:"8MiB" range:"1KiB..96MiB"`
}

// OfDebezium reports whether Debezium writes the source's events, whole or flattened.
func (s *Source) OfDebezium() bool {
	return s.Format == FormatDebezium || s.Format == FormatJSON && strings.HasSuffix("."+s.Operation.Path, ".__deleted")
}

// path is where the file has the source's keys.
func (s *Source) path() string { return cmp.Or(s.at, member("sources", s.Name)) }

// inputPath is where the file has the keys of its kind.
func (s *Source) inputPath() string {
	return cmp.Or(s.inputAt, member(s.path(), s.Input.Kind()))
}

// Locators are the places that a source names, by their keys in a file.
func (s *Source) Locators() iter.Seq2[string, Locator] {
	return func(yield func(string, Locator) bool) {
		_ = yield("entity", s.Entity) && yield("event_id", s.EventID) && yield("payload", s.Payload) &&
			yield("operation", s.Operation) && yield("sequence", s.Sequence)
	}
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

// Locator locates a value in an event. The zero Locator means
// a key that is not configured.
type Locator struct {
	Path   string // gjson path into the value
	Header string // name of a header
	Key    bool   // the record's key
}

// IsZero reports whether nothing is configured.
func (l Locator) IsZero() bool { return l == Locator{} }

// String formats the locator as in a file.
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
