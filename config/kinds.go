package config

import "reflect"

// Registry lists the kinds of sources and sinks that files may name: a value of each, for its
// type, in the order in which messages list them.
type Registry struct {
	Sources []SourceConfig
	Sinks   []Sink
}

// SourceConfig is the configuration of a source of one kind: a pointer to a struct
// whose tags the decoder reads.
type SourceConfig interface {
	// Kind is its key in a file.
	Kind() string
	// CheckLocators reports the places of s that events of this kind do not have.
	CheckLocators(c *Checker, s *Source)
	// Check reports further faults of the source and keys that contradict each other.
	Check(c *Checker, s *Source)
	// Reads names its input as sinks name their targets, empty for an input that no sink can
	// write. Main is the cluster of the main kafka key.
	Reads(main *Cluster) string
}

// Optional interfaces of a SourceConfig.
type (
	// SourceDefaults fills in defaults that depend on other values.
	SourceDefaults interface{ ApplyDefaults(s *Source, c *Config) }
	// HTTPSource is a SourceConfig whose events are posted to the API.
	HTTPSource interface{ Endpoint() Endpoint }
	// SelfDescribing is a SourceConfig that itself says entity, event id and operation of an
	// event, so that no file names places for them and no files are imported into it.
	SelfDescribing interface {
		// Envelope returns the places where its messages have them.
		Envelope() Envelope
		// Fingerprint lists what decisions depend on.
		Fingerprint() []any
	}
	// Divided is a SourceConfig that is several sources, as a database with several tables.
	Divided interface {
		// Divide returns the parts, after the defaults. No parts leave s as it is.
		Divide(s *Source) []Part
	}
	// TopicReader is a SourceConfig that reads a Kafka topic.
	TopicReader interface{ ReadsTopic() string }
)

// Endpoint is where events of a source are posted.
type Endpoint struct {
	Path    string
	MaxBody Size
	Token   Secret // zero for none of its own
}

// Part is a source of a Divided. Path is where its own keys are, from its kind on.
type Part struct {
	Source
	Path []string
}

// Envelope locates the parts of messages that describe themselves. UUID: the event id is unique
// among all sources. Session, Unchanged and Noun mean the same as in ingest.Extractor.
type Envelope struct {
	Entity, EventID, Operation, Sequence Locator
	Session, Unchanged                   Locator
	UUID                                 bool
	Noun                                 string
}

// Sink is the configuration of a sink of one kind: a pointer to a struct whose
// tags the decoder reads.
type Sink interface {
	// Kind is its key in a file.
	Kind() string
	// DeliveryMode is KindState or KindLog: the sink's own delivery mode.
	DeliveryMode() string
	// Check reports its faults, alone and together with the delivery's.
	Check(c *Checker, d *Delivery)
	// Identity lists the customer's side of it, see Config.Identity. A path
	// counts as portable returns it.
	Identity(portable func(path string) string) []any
	// Target names its target. Main is the cluster of the main kafka key.
	Target(main *Cluster) Target
}

// Target is the target of a sink.
type Target struct {
	Key  string // the key that names it
	Name string // identifies the target, empty where sinks cannot share one
	// Shape is empty for a target that takes one service only. Services of the same shape may
	// share a target: rows of a table are keyed by service.
	Shape string
}

// Optional interfaces of a Sink.
type (
	// SinkDefaults fills in defaults that depend on other values.
	SinkDefaults interface{ ApplyDefaults() }
	// Answering is a Sink whose target answers each change: the answers are worth
	// keeping, see History.
	Answering interface{ AnswersEach() }
	// FileWriter is a Sink that writes a file.
	FileWriter interface{ OutputFile() string }
)

// Secured is a SourceConfig or a Sink that connects as a TLS client. ClientTLS is nil without
// TLS.
type Secured interface{ ClientTLS() *TLS }

// Endpoint returns where events of the source are posted, or false for other sources.
func (s *Source) Endpoint() (Endpoint, bool) {
	if p, ok := s.Input.(HTTPSource); ok {
		return p.Endpoint(), true
	}
	return Endpoint{}, false
}

// TakesFiles reports whether files may be imported into the source. One that itself
// says entity and event id finds neither in a file.
func (s *Source) TakesFiles() bool {
	_, enveloped := s.Input.(SelfDescribing)
	return !enveloped
}

// kindMember is a kind as a member of the struct that has the field at index.
func kindMember(kind string, value any, index int) memberOf {
	return memberOf{name: kind, index: []int{index}, tag: `oneof:"required"`, typ: reflect.TypeOf(value)}
}

var (
	inputType = reflect.TypeFor[SourceConfig]()
	sinkType  = reflect.TypeFor[Sink]()
)

// members lists the kinds that a field of this type may hold.
func (k Registry) members(t reflect.Type, index int) (all []memberOf) {
	switch t {
	case inputType:
		for _, s := range k.Sources {
			all = append(all, kindMember(s.Kind(), s, index))
		}
	case sinkType:
		for _, s := range k.Sinks {
			all = append(all, kindMember(s.Kind(), s, index))
		}
	}
	return all
}
