package config

import (
	"iter"
	"slices"

	"github.com/seed-86dfc502/weir/projections"
)

// CustomerFile is the content of one customer's file.
type CustomerFile struct {
	// Customer is the customer's name.
	Customer string `yaml:"customer" required:"true"`
	// Was is the customer's first name, after a rename: its services keep their state.
	Was string `yaml:"was"`
	// Leaving retracts all entities of the customer: its projections show none.
	Leaving bool `yaml:"leaving" default:"false"`
	// Secrets are the keys of hmac in expressions, by name: at least 16 bytes each, without
	// line ends at their end.
	Secrets map[string]Secret `yaml:"secrets"`
	// Guard holds a service before too many of its entities change. Defaults to 5 % of
	// retractions within 10 minutes.
	Guard Guard `yaml:"guard"`
	// Pace limits how often and how early the changes of a service are sent. Defaults to
	// as fast as its target takes them.
	Pace Pace `yaml:"pace"`
	// Projections are the customer's views, by name.
	Projections Projections `yaml:"projections"`
	// Checks are services that the customer's own system projects and delivers,
	// by name.
	Checks Checks `yaml:"checks"`
}

// Projections in the order of the file.
type Projections []Projection

// deliveries yields each service with its projection. Both may be changed in place.
func (p Projections) deliveries() iter.Seq2[*Projection, *Delivery] {
	return func(yield func(*Projection, *Delivery) bool) {
		for i := range p {
			for j := range p[i].Deliver {
				if !yield(&p[i], &p[i].Deliver[j]) {
					return
				}
			}
		}
	}
}

// JSONSchemaAlias says that a file has them as a mapping by name.
func (Projections) JSONSchemaAlias() any { return map[string]Projection{} }

// How numbers compare in a projection.
const (
	Literal = "literal" // 1 is not 1.0
	Decimal = "decimal" // 1 equals 1.0
)

// Projection is a customer's view of the merged document, and where it goes.
type Projection struct {
	Customer string   `yaml:"-"`
	Name     string   `yaml:"-" key:"true"`
	Pos      Position `yaml:"-"`
	// origin is the customer's first name, leaving its file's key.
	origin  string `yaml:"-"`
	leaving bool   `yaml:"-"`
	// Secrets are the secrets of the customer's file.
	Secrets map[string]Secret `yaml:"-"`

	// Was is the first name of the projection, customer/projection, after a rename.
	Was string `yaml:"was"`
	// When is the filter over doc, the merged document. A document that does
	// not match is retracted. Defaults to all documents.
	When string `yaml:"when"`
	// Fields are the members of the projected document.
	Fields Fields `yaml:"fields" required:"true"`
	// Carry are members that are sent with an update and never cause one. They follow
	// the fields.
	Carry Fields `yaml:"carry"`
	// OmitEmpty leaves out members that have no value instead of sending null.
	OmitEmpty bool `yaml:"omit_empty" default:"false"`
	// Numbers says when two numbers are equal.
	Numbers string `yaml:"numbers" default:"literal" enum:"literal|decimal"`
	// Deliver are the sinks, by name.
	Deliver Deliveries `yaml:"deliver" required:"true"`
}

// Fields in the order of the file.
type Fields []Field

// JSONSchemaAlias says that a file has them as a mapping by output path.
func (Fields) JSONSchemaAlias() any { return map[string]Field{} }

// Field is one member of a projected document. In a file it is a path, or a
// mapping.
type Field struct {
	// Out is where the value goes: a name, or names joined by dots.
	Out string   `yaml:"-" key:"true"`
	Pos Position `yaml:"-"`

	// Path is the place of the value in the merged document, or with Each the
	// array.
	Path string `yaml:"path"`
	// Expr computes the value from doc, the merged document, and inside Each from item, the
	// element.
	Expr string `yaml:"expr"`
	// Const is a value that is always the same.
	Const JSON `yaml:"const"`
	// Default is the value where Path finds none, or Expr has none or fails.
	Default JSON `yaml:"default"`
	// Each makes an object of every element of the array at Path. Its paths are relative to the
	// element.
	Each Fields `yaml:"each"`
	// Same says which of its values are equal; in a file also the word set. Defaults to equal
	// texts, and numbers as the projection's numbers says.
	Same *Same `yaml:"same"`
}

// Same are rules of sameness: the normalised value is compared, the real one is sent.
type Same struct {
	// Round compares numbers rounded to so many decimal places, half away from zero.
	Round *int `yaml:"round" range:"-15..15"`
	// Elements compares the elements of an array as a set: without order and repetitions.
	Elements string `yaml:"elements" enum:"set"`
	// Fold compares texts without case.
	Fold string `yaml:"fold" enum:"case"`
	// Trim compares texts without space at both ends.
	Trim bool `yaml:"trim"`
}

// refuses names a rule that cannot be kept.
func (Same) refuses(key string) (*mistake, bool) {
	if key != "within" {
		return nil, false
	}
	return &mistake{problem: "is not transitive: 1 is within 1 of 2 and 2 of 3, so a value could move any distance by small steps, and no update would be sent",
		fix: "write round, which compares rounded values"}, true
}

// spec returns the rules in the form that package projections compiles.
func (s *Same) spec() *projections.Same {
	if s == nil {
		return nil
	}
	return &projections.Same{Round: s.Round, Set: s.Elements != "", Fold: s.Fold != "", Trim: s.Trim}
}

// Deliveries in the order of the file.
type Deliveries []Delivery

// JSONSchemaAlias says that a file has them as a mapping by name.
func (Deliveries) JSONSchemaAlias() any { return map[string]Delivery{} }

// Delivery modes of a sink.
const (
	KindState = "state" // the newest document of each entity
	KindLog   = "log"   // every change
)

// Delivery is a sink of a projection: exactly one kind of sink is given.
type Delivery struct {
	Name string   `yaml:"-" key:"true"`
	Pos  Position `yaml:"-"`

	// Was is the first name of the service, customer/projection@sink, after a rename.
	Was string `yaml:"was"`
	// Sink is where the changes go.
	Sink Sink `yaml:",kind"`

	// Retry says how often a change is tried that fails while others succeed.
	Retry Retry `yaml:"retry"`
	// Kind says whether changes that a newer one replaces may be left out
	// (state) or must all arrive (log). Defaults to the sink's own mode.
	Kind string `yaml:"kind" enum:"state|log"`
	// History, if given, bounds the kept attempts of this service, and turns them on
	// if its sink's target does not answer single changes. Defaults to the
	// main file's for webhooks, and to none for other sinks.
	History *OwnHistory `yaml:"history"`
	// Guard replaces the customer's guard for this service.
	Guard *Guard `yaml:"guard"`
	// Pace replaces the customer's pace for this service.
	Pace *Pace `yaml:"pace"`
	// Refresh is the period in which each entity is sent again although it is unchanged, for
	// targets that expire entities without an update. 0s: never.
	Refresh Duration `yaml:"refresh" default:"0s" range:"0s..366d"`
}

// OwnHistory is the History of one service. After Load it holds the effective values. A service
// without it keeps no attempts.
type OwnHistory struct {
	// Keep is for how long. 0s keeps none. Defaults to
	// history.keep of the main file.
	Keep Duration `yaml:"keep" range:"0s..366d"`
}

// DeliveryMode returns the delivery mode: Kind, or the sink's own.
func (d *Delivery) DeliveryMode() string {
	if d.Kind != "" {
		return d.Kind
	}
	return d.Sink.DeliveryMode()
}

// Retry says how long a change is tried before it becomes a dead letter. A
// target that is unreachable is tried for as long as it takes.
type Retry struct {
	// For is how long a change is tried after its first failure.
	For Duration `yaml:"for" default:"24h" range:"1s..30d"`
	// MinBackoff is the wait after the first failure. It doubles from there.
	MinBackoff Duration `yaml:"min_backoff" default:"200ms" range:"1ms..1h"`
	// MaxBackoff is the longest wait.
	MaxBackoff Duration `yaml:"max_backoff" default:"1m" range:"1ms..24h"`
	// RedriveAfter is when a change that was given up is offered again for the
	// first time. The wait doubles from there, up to a day. 0 switches that off.
	RedriveAfter Duration `yaml:"redrive_after" default:"1h" range:"0s..24h"`
}

// CustomerState is the state of a customer by the files.
type CustomerState struct {
	First, Current string // its names
	File           string
	Leaving        bool
}

// FindCustomer returns the customer that is, or was first, called name.
func (c *Config) FindCustomer(name string) (found CustomerState, ok bool) {
	for i := range c.Projections {
		if p := &c.Projections[i]; name == p.Customer || name == p.origin {
			return CustomerState{p.origin, p.Customer, p.Pos.File, p.leaving}, true
		}
	}
	for i := range c.Checks {
		if k := &c.Checks[i]; name == k.Customer || name == k.origin {
			return CustomerState{k.origin, k.Customer, k.Pos.File, false}, true
		}
	}
	return CustomerState{}, false
}

// RenamedCustomers returns the first names of customers that have another one now, by that.
func (c *Config) RenamedCustomers() map[string]string {
	renamed := map[string]string{}
	for i := range c.Projections {
		if p := &c.Projections[i]; p.origin != p.Customer {
			renamed[p.Customer] = p.origin
		}
	}
	for i := range c.Checks {
		if k := &c.Checks[i]; k.origin != k.Customer {
			renamed[k.Customer] = k.origin
		}
	}
	return renamed
}

// Leave returns a copy in which a customer, by its first name, is leaving.
func (c *Config) Leave(customer string) *Config {
	left := *c
	left.Projections = slices.Clone(c.Projections)
	for i := range left.Projections {
		if p := &left.Projections[i]; p.origin == customer {
			p.leaving = true
		}
	}
	left.identify()
	return &left
}
