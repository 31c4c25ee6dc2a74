package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Config is the part of a configuration that the model knows.
type Config struct {
	Sources    []Source // the strongest first
	Required   []string
	Strip      map[string][]string // source to patterns: names, *, **
	Projection []Projection
	// MaxText bounds a string of a projected document: a change with a longer one is
	// too large. 0: none is.
	MaxText int
}

// Source says how events of a source are read: a path of names joined by dots,
// header:NAME, or key.
type Source struct {
	Name, Entity, EventID, Payload, Operation, Sequence string
	Patch                                               bool
	Mount                                               string
}

// Projection is the view of some services.
type Projection struct {
	Services []string
	When     func(doc any) bool // nil: every document
	Fields   []Field
}

// Field shows the value at From as To, or a constant, or what Compute returns; false is no
// value. From may be a list's members: list.#.name.
type Field struct {
	To, From       string
	Const, Default any
	Compute        func(doc any) (any, bool)
	Carried        bool          // sent and not compared
	Same           func(any) any // what is compared in place of the value
}

// Event is one record of the inbox with the event as its source wrote it.
type Event struct {
	Source    string
	Stream    string // identity of the source's stream; empty when it has no positions
	Partition int32
	Offset    int64
	Index     int64  // among events of one offset
	Version   uint64 // of the inbox record
	Key       string // of a Kafka record
	Headers   map[string]string
	Value     []byte // nil: a null value
}

// Change is an update that a service must receive.
type Change struct {
	Version uint64
	Op      string // upsert or retract
	Doc     any
	seen    any // Doc as it is compared
	refused bool
}

// Expected is every change in order, by service and entity.
type Expected map[string]map[string][]Change

// Model is the state that events build, one after the other.
type Model struct {
	Expected Expected
	// TooLarge are the changes that no service may see, and whether each must be a dead
	// letter: one that repeats the view before it need not be.
	TooLarge map[ID]bool
	entities map[string]*entity
}

// ID names a change.
type ID struct {
	Service, Entity string
	Version         uint64
}

type entity struct {
	docs    map[string]any
	version uint64 // of the last event that changed docs
	fence   map[string]*seen
	last    map[string]*Change // by service
	views   map[string]Change  // by service: the last change, also one that was not sent
	unknown map[string]bool    // services whose last change was lost and is now too large
}

type seen struct {
	offsets  map[string][2]int64
	ids      []string
	sequence string
}

// remembered event ids per source and entity.
const remembered = 8

// NewModel returns a model without events.
func NewModel() *Model {
	return &Model{Expected: Expected{}, TooLarge: map[ID]bool{}, entities: map[string]*entity{}}
}

// Run applies events in order. An error means that the model cannot read an event:
// tests have no broken ones.
func Run(c Config, events []Event) (Expected, error) {
	m := NewModel()
	for _, e := range events {
		if err := m.Apply(c, e); err != nil {
			return nil, err
		}
	}
	return m.Expected, nil
}

// Apply decides one event under a configuration.
func (m *Model) Apply(c Config, e Event) error {
	s := c.source(e.Source)
	if s == nil {
		return fmt.Errorf("version %d: unknown source %q", e.Version, e.Source)
	}
	id, payload, eventID, sequence, err := c.read(s, e)
	if err != nil {
		return fmt.Errorf("version %d: %w", e.Version, err)
	}
	en := m.entities[id]
	if en == nil {
		en = &entity{docs: map[string]any{}, fence: map[string]*seen{}, last: map[string]*Change{},
			views: map[string]Change{}, unknown: map[string]bool{}}
		m.entities[id] = en
	}
	if !en.admit(e, eventID, Text(payload), sequence) {
		return nil
	}
	old, had := en.docs[s.Name]
	switch {
	case payload == nil:
		delete(en.docs, s.Name)
	case s.Patch:
		en.docs[s.Name] = patched(old, payload.value)
	default:
		en.docs[s.Name] = payload.value
	}
	if had != (payload != nil) || !Equal(old, en.docs[s.Name]) {
		en.version = e.Version
	}
	c.each(en, e.Version, func(service string, next Change) {
		last, view, known := en.last[service], en.views[service], en.unknown[service]
		en.views[service] = next
		if !known && (last == nil && next.Op == "retract" || last != nil && last.Same(next)) {
			return
		}
		m.send(c, en, ID{service, id, e.Version}, next, !view.Same(next) && (view.Op != "" || next.Op != "retract"))
	})
	return nil
}

// Redecide sends what services have now once more where their last change is not above
// upTo.
func (m *Model) Redecide(c Config, id string, version, upTo uint64, services []string) {
	en := m.entities[id]
	if en == nil {
		return
	}
	c.each(en, version, func(service string, next Change) {
		if last := en.last[service]; last != nil && last.Version <= upTo && slices.Contains(services, service) {
			en.unknown[service] = !m.send(c, en, ID{service, id, version}, next, true)
		}
	})
}

// Refuse notes that a change of services was refused: its content is not refreshed.
func (m *Model) Refuse(id string, version uint64, services []string) {
	en := m.entities[id]
	for _, service := range services {
		if en != nil && en.last[service] != nil && en.last[service].Version == version {
			en.last[service].refused = true
		}
	}
}

// Refresh sends the last change of services once more if it is the one of version of, and returns
// the services that get it.
func (m *Model) Refresh(c Config, id string, version, of uint64, services []string) (sent []string, err error) {
	en := m.entities[id]
	if en == nil {
		return nil, nil
	}
	c.each(en, version, func(service string, next Change) {
		last := en.last[service]
		switch {
		case last == nil || last.Version > of || !slices.Contains(services, service) || last.refused && last.Same(next):
		case last.Version < of:
			err = fmt.Errorf("%s, entity %s: a refresh names version %d, the last change is %d", service, id, of, last.Version)
		case last.Op == "retract":
			err = fmt.Errorf("%s, entity %s: a retraction, version %d, is refreshed", service, id, last.Version)
		case m.send(c, en, ID{service, id, version}, next, true):
			sent = append(sent, service)
		}
	})
	return sent, err
}

// Purge drops a deleted entity whose changes are all below a version, and reports
// whether it did.
func (m *Model) Purge(id string, below uint64) bool {
	en := m.entities[id]
	if en == nil || len(en.docs) > 0 || en.version == 0 || en.version >= below {
		return false
	}
	for _, last := range en.last {
		if last.Version >= below {
			return false
		}
	}
	delete(m.entities, id)
	return true
}

// Unknown reports whether the newest change of a service was lost and is too large to be
// sent again.
func (m *Model) Unknown(service, id string) bool {
	en := m.entities[id]
	return en != nil && en.unknown[service]
}

// Document returns the stored document of a source.
func (m *Model) Document(id, source string) (doc any, there bool) {
	if en := m.entities[id]; en != nil {
		doc, there = en.docs[source]
	}
	return doc, there
}

// each calls f with the current view of every service.
func (c Config) each(en *entity, version uint64, f func(service string, next Change)) {
	doc, present := c.merged(en.docs)
	for _, p := range c.Projection {
		next := Change{Version: version, Op: "retract"}
		if present && (p.When == nil || p.When(doc)) {
			next.Op, next.Doc, next.seen = "upsert", p.project(doc, false), p.project(doc, true)
		}
		for _, service := range p.Services {
			f(service, next)
		}
	}
}

// send adds a change, unless it is too large, and reports whether it did.
func (m *Model) send(c Config, en *entity, id ID, next Change, differs bool) bool {
	if c.MaxText > 0 && longest(next.Doc) >= c.MaxText {
		m.TooLarge[id] = m.TooLarge[id] || differs
		return false
	}
	en.last[id.Service], en.unknown[id.Service] = &next, false
	if m.Expected[id.Service] == nil {
		m.Expected[id.Service] = map[string][]Change{}
	}
	m.Expected[id.Service][id.Entity] = append(m.Expected[id.Service][id.Entity], next)
	return true
}

// Same reports whether a service sees no difference between two changes.
func (c Change) Same(o Change) bool { return c.Op == o.Op && Equal(c.seen, o.seen) }

// longest returns the length of the longest string of a document.
func longest(v any) (n int) {
	if text, ok := v.(string); ok {
		return len(text)
	}
	for _, below := range children(v) {
		n = max(n, longest(below))
	}
	return n
}

func (c Config) source(name string) *Source {
	for i := range c.Sources {
		if c.Sources[i].Name == name {
			return &c.Sources[i]
		}
	}
	return nil
}

// present wraps a document, so that JSON null is not the absence of one.
type present struct{ value any }

func (c Config) read(s *Source, e Event) (id string, payload *present, eventID, sequence string, err error) {
	var value any
	if e.Value != nil {
		if value, err = Decode(e.Value); err != nil {
			return "", nil, "", "", err
		}
	}
	text := func(path string) string {
		if path == "key" {
			return e.Key
		}
		if name, ok := strings.CutPrefix(path, "header:"); ok {
			return e.Headers[name]
		}
		if v, ok := at(value, path); ok && v != nil && path != "" {
			return fmt.Sprint(v)
		}
		return ""
	}
	id, eventID, sequence = text(s.Entity), text(s.EventID), text(s.Sequence)
	if e.Value == nil {
		return e.Key, nil, eventID, sequence, nil
	}
	if op := strings.ToLower(text(s.Operation)); op == "delete" {
		return id, nil, eventID, sequence, nil
	}
	doc := value
	if s.Payload != "" {
		doc, _ = at(value, s.Payload)
	}
	if doc == nil {
		return id, nil, eventID, sequence, nil
	}
	for _, pattern := range c.Strip[s.Name] {
		strip(doc, strings.Split(pattern, "."))
	}
	return id, &present{doc}, eventID, sequence, nil
}

// admit reports whether an event is newer than the entity's last one of its
// source, and remembers it.
func (en *entity) admit(e Event, id, content, sequence string) bool {
	s := en.fence[e.Source]
	if s == nil {
		s = &seen{offsets: map[string][2]int64{}}
		en.fence[e.Source] = s
	}
	place := fmt.Sprintf("%s/%d", e.Stream, e.Partition)
	mark := id + "\x00" + content
	offset, known := s.offsets[place]
	switch {
	case e.Stream != "" && known && (e.Offset < offset[0] || e.Offset == offset[0] && e.Index <= offset[1]),
		id != "" && slices.Contains(s.ids, mark),
		sequence != "" && s.sequence != "" && older(sequence, s.sequence):
		return false
	}
	if e.Stream != "" {
		s.offsets[place] = [2]int64{e.Offset, e.Index}
	}
	if id != "" {
		s.ids = append(s.ids, mark)
		s.ids = s.ids[max(0, len(s.ids)-remembered):]
	}
	if sequence != "" {
		s.sequence = sequence
	}
	return true
}

// older compares whole numbers by value and anything else by its bytes.
func older(a, b string) bool {
	if strings.Trim(a, "0123456789") == "" && strings.Trim(b, "0123456789") == "" {
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		if len(a) != len(b) {
			return len(a) < len(b)
		}
	}
	return a < b
}

// strip removes what pattern matches from v, in place.
func strip(v any, pattern []string) {
	name, rest := pattern[0], pattern[1:]
	if name == "**" {
		strip(v, rest)
		for _, below := range children(v) {
			strip(below, pattern)
		}
		return
	}
	if len(rest) == 0 {
		if m, ok := v.(map[string]any); ok {
			if name == "*" {
				clear(m)
			}
			delete(m, name)
		}
		return
	}
	if m, ok := v.(map[string]any); ok && name != "*" {
		if below, ok := m[name]; ok {
			strip(below, rest)
		}
		return
	}
	if name == "*" {
		for _, below := range children(v) {
			strip(below, rest)
		}
	}
}

func children(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case map[string]any:
		var all []any
		for _, below := range v {
			all = append(all, below)
		}
		return all
	}
	return nil
}

// patched is RFC 7386. Nothing of target is changed in place.
func patched(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if t, ok := target.(map[string]any); ok {
		for name, v := range t {
			out[name] = v
		}
	}
	for name, v := range p {
		if v == nil {
			delete(out, name)
		} else {
			out[name] = patched(out[name], v)
		}
	}
	return out
}

// merged lays the documents over one another, the strongest on top.
func (c Config) merged(docs map[string]any) (doc any, complete bool) {
	for _, name := range c.Required {
		if _, ok := docs[name]; !ok {
			return nil, false
		}
	}
	for _, s := range c.Sources {
		d, ok := docs[s.Name]
		if !ok {
			continue
		}
		if s.Mount != "" {
			steps := strings.Split(s.Mount, ".")
			for _, step := range slices.Backward(steps) {
				d = map[string]any{step: d}
			}
		}
		if !complete {
			doc, complete = d, true
		} else {
			doc = over(doc, d)
		}
	}
	return doc, complete
}

func over(strong, weak any) any {
	s, ok1 := strong.(map[string]any)
	w, ok2 := weak.(map[string]any)
	if !ok1 || !ok2 {
		return strong
	}
	out := map[string]any{}
	for name, v := range w {
		out[name] = v
	}
	for name, v := range s {
		if below, ok := w[name]; ok {
			out[name] = over(v, below)
		} else {
			out[name] = v
		}
	}
	return out
}

// project returns the output for a document, or its compared part.
func (p Projection) project(doc any, compared bool) any {
	out := map[string]any{}
	for _, f := range p.Fields {
		if compared && f.Carried {
			continue
		}
		v, ok := f.Const, f.Const != nil
		switch {
		case f.Compute != nil:
			v, ok = f.Compute(doc)
		case !ok:
			v, ok = at(doc, f.From)
		}
		if (!ok || v == nil) && f.Default != nil {
			v, ok = f.Default, true
		}
		if !ok {
			continue
		}
		if compared && f.Same != nil {
			v = f.Same(v)
		}
		steps := strings.Split(f.To, ".")
		m := out
		for _, step := range steps[:len(steps)-1] {
			if m[step] == nil {
				m[step] = map[string]any{}
			}
			m = m[step].(map[string]any)
		}
		m[steps[len(steps)-1]] = v
	}
	return out
}

// at finds a value; list.#.name returns the names of a list's members.
func at(v any, path string) (any, bool) {
	if list, name, ok := strings.Cut(path, ".#."); ok {
		v, _ := at(v, list)
		members, ok := v.([]any)
		if !ok {
			return nil, false
		}
		found := []any{}
		for _, m := range members {
			if x, ok := at(m, name); ok {
				found = append(found, x)
			}
		}
		return found, true
	}
	for _, step := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[step]; !ok {
			return nil, false
		}
	}
	return v, true
}

// At is the value at a path, nil when there is none: for filters.
func At(doc any, path string) any {
	v, _ := at(doc, path)
	return v
}

// Decode reads JSON and keeps numbers as they are written.
func Decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// Text is one text for equal documents.
func Text(v any) string {
	if p, ok := v.(*present); ok {
		if p == nil {
			return ""
		}
		v = p.value
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only decoded JSON comes here
	}
	return string(b)
}

// Equal compares by structure, numbers as they are written.
func Equal(a, b any) bool { return Text(a) == Text(b) }
