package ingest

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/bom"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/tidwall/gjson"
)

// Locator is the place of a value in an event: a gjson path in the JSON value, a header, or
// the record's key. The zero Locator finds nothing.
type Locator struct {
	Path   string
	Header string
	Key    bool
}

func (l Locator) isZero() bool { return l == Locator{} }

// header returns the value of the header that l names, or empty if it names none.
func (l Locator) header(ev *transport.Received) string {
	if l.Header == "" {
		return ""
	}
	return ev.Header(l.Header)
}

// Extractor extracts the events of a source.
type Extractor struct {
	Source    string
	Noun      string // what an event is, in reasons; "event" if empty
	Entity    Locator
	EventID   Locator
	Operation Locator
	Sequence  Locator
	Payload   string // gjson path; empty is the whole value
	// Format is the form of the values. With another one than JSON, Entity is
	// looked for in the row and EventID and Sequence in the envelope; Operation
	// and Payload count for nothing, the envelope says both.
	Format Format
	// Session is where an event has the session that read it (see change.Session.Header), of a
	// source with sessions; Unchanged where it has the names of the members that an update left
	// out, one a line. Both are headers, or nowhere.
	Session   Locator
	Unchanged Locator
	// Unavailable recognises columns without their value. Nil means that there are no such
	// columns.
	Unavailable *Unavailable
	// WholeRows says that every row before a change is whole: the database logs it.
	WholeRows bool
	// UnchangedAsNull are columns that the application never sets to null: null in an update
	// without the row before means unchanged, as Debezium writes large values of some types. A
	// flattened row is an update unless it says otherwise, see flattened.
	UnchangedAsNull []string
	IsDelete        func(operation string) bool
	Strip           *stripper.Rules
	// ByUUID says that the UUID of an event's message stays the same when it is
	// redelivered, and its position does not.
	ByUUID    bool
	MaxEvent  int // bytes of the value
	MaxEntity int // bytes of the entity id
}

// values is how many values an event may have: a million, or more where larger
// events are allowed. A shorter event cannot have more.
func (s *Extractor) values() int { return max(1<<20, s.MaxEvent/8) }

func (s *Extractor) noun() string { return cmp.Or(s.Noun, "event") }

// maxID bounds event ids and sequences, in bytes.
const maxID = 1024

// extracted is one extracted event: records for the inbox, a dead letter, or nothing.
type extracted struct {
	record change.Record
	// moved is the delete of the entity that the row had before, which comes first.
	moved  *change.Record
	gate   gate.Entry // EventID is empty for an event without id; filterSeen adds the source
	letter *store.DeadLetter
	// refused is a record that marks the place of a dead letter of a known entity. It is nil if
	// no later event builds on its document.
	refused *change.Record
	skipped bool // it is about no entity, see Format
	notice  notice
	span    *tracing.Span

	at   int // its index in the frame
	left int // records that are not appended
}

// Refusal is the reason why an event cannot be ingested. Its text holds no payload.
type Refusal struct {
	Code   string // bounded: bad_json, no_entity, …
	Reason string
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Reason }

func refuse(code, format string, args ...any) error {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

// Codes of an event that cannot be read, and of one that is too large.
const (
	BadJSON   = "bad_json"
	Oversized = "oversized"

	tooManyValues = "too_many_values"
)

// rows are where an event of a format has its row.
var rows = map[Format][]string{
	Debezium: {"after.", "payload.after."},
	Maxwell:  {"data."},
}

// unparsedEntity returns the entity of an event that is too large to be parsed, or whose source
// refused it, or empty if it is not found. It serves only to look for the event at its source.
func (s *Extractor) unparsedEntity(ev *transport.Received) string {
	id := ""
	switch {
	case s.Entity.Key:
		id = string(ev.Key)
	case s.Entity.Header != "":
		id = ev.Header(s.Entity.Header)
	case s.Entity.Path != "":
		places := rows[s.Format]
		if places == nil {
			places = []string{""}
		}
		for _, row := range places {
			v := gjson.GetBytes(ev.Value, row+s.Entity.Path)
			switch {
			case id != "":
			case v.Type == gjson.String:
				id = v.Str
			case v.Type == gjson.Number:
				id = v.Raw
			}
		}
	}
	if len(id) > s.MaxEntity || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return ""
	}
	return id
}

// RefusalOf returns the reason of an error of this package. An error without one is a document
// that cannot be read.
func RefusalOf(err error) *Refusal {
	var r *Refusal
	if !errors.As(err, &r) {
		r = &Refusal{BadJSON, err.Error()}
	}
	return r
}

// extract extracts the event at i of a frame, under a trace if it has one.
func (s *Extractor) extract(f *transport.Frame, i int, t *change.Trace) extracted {
	ev := &f.Records[i]
	x, err := s.parse(ev, nil)
	if err == nil {
		if f.TopicID != "" {
			for _, r := range x.records() {
				o := &r.Event.Origin
				o.Topic, o.Partition, o.Offset, o.Index = f.TopicID, f.Partition, ev.Offset, ev.Index
				r.Event.At = atSource(ev.Time)
			}
		}
		return x
	}
	r := RefusalOf(err)
	l := &store.DeadLetter{
		Stage: store.StageIngest, Code: r.Code, Reason: r.Reason, State: store.LetterOpen,
		Source: s.Source, Topic: f.TopicID, Part: f.Partition, Offset: ev.Offset, Payload: ev.Value,
		DedupKey: fmt.Sprintf("ingest/%s/%s/%d/%d", s.Source, f.TopicID, f.Partition, ev.Offset),
		Headers:  s.headers(ev, t),
	}
	if r.Code == Oversized || r.Code == tooManyValues || ev.Header(transport.RefusalHeader) != "" {
		l.Entity = s.unparsedEntity(ev)
	}
	if f.TopicID == "" || s.ByUUID {
		// A push source has no positions, so each of its refusals is a dead letter of its own.
		// With ByUUID the position changes when a message is redelivered.
		l.DedupKey = "ingest/" + s.Source + "/" + f.UUID(i)
	}
	return extracted{letter: l, refused: s.refused(f, i, x.record.Entity, r.Code)}
}

// refused returns the record of a refused event: without it a later event that leaves columns out would be
// filled from an older document, and a deletion of entities without a row would hit it.
func (s *Extractor) refused(f *transport.Frame, i int, entity, code string) *change.Record {
	if s.Unavailable == nil && len(s.UnchangedAsNull) == 0 && s.Unchanged.isZero() && s.Session.isZero() {
		return nil
	}
	ev := &f.Records[i]
	if entity == "" {
		entity = s.Entity.header(ev)
	}
	if entity == "" {
		entity, _, _ = (&opening{Extractor: s, ev: ev}).entityInKey("") // without it nothing can be noted
	}
	e := &change.Event{Origin: change.Origin{Source: s.Source}, Op: change.Refused, Refusal: code, Entity: entity}
	if f.TopicID != "" {
		e.Topic, e.Partition, e.Offset, e.Index = f.TopicID, f.Partition, ev.Offset, ev.Index
	}
	e.Sequence = s.Sequence.header(ev)
	var err error
	if e.Session, err = change.ParseSession(s.Session.header(ev)); err != nil || entity == "" || s.checkEntity(entity) != nil {
		return nil
	}
	r := &change.Record{Entity: entity, Event: e}
	if _, _, _, err := change.EncodeRecord(*r); err != nil {
		return nil
	}
	return r
}

// atSource returns the time of an event for its record in the inbox.
func atSource(at time.Time) int64 {
	switch ms := at.UnixMilli(); {
	case time.Since(at).Abs() < time.Second:
		return change.AtIngest
	case !at.IsZero() && ms > 0:
		return ms
	}
	return 0
}

// parse extracts an event without its place in a stream. It writes the digest of the whole
// value to sum, if that is not nil.
func (s *Extractor) parse(ev *transport.Received, sum *canonicaltree.Digest) (extracted, error) {
	if trimmed := bom.Trim(ev.Value); len(trimmed) != len(ev.Value) {
		without := *ev
		without.Value = trimmed
		ev = &without
	}
	value := ev.Value
	e := &change.Event{Origin: change.Origin{Source: s.Source}, Op: change.Upsert}
	null := value == nil
	var root canonicaltree.Node
	if null {
		e.Op = change.Delete
	} else {
		if len(value) > s.MaxEvent {
			return extracted{}, refuse(Oversized, "the %s is larger than the limit of %d bytes", s.noun(), s.MaxEvent)
		}
		if most := s.values(); len(value) > most {
			if n, _ := canonicaltree.Values(value); n > most {
				return extracted{}, refuse(tooManyValues, "the %s has more values than the limit of %d", s.noun(), most)
			}
		}
		tree, err := canonicaltree.Parse(value)
		switch {
		case err != nil && bom.UTF16(value):
			return extracted{}, refuse(BadJSON, "the event is UTF-16: JSON is UTF-8")
		case err != nil:
			return extracted{}, err
		}
		defer tree.Release()
		root = tree.Root()
		if sum != nil {
			*sum = root.Sum(canonicaltree.Literal)
		}
	}
	c := opening{Extractor: s, ev: ev, root: root}
	err := c.open()
	defer c.release()
	known := extracted{record: change.Record{Entity: c.entity}} // of a refusal
	if err != nil {
		return known, err
	}
	if c.skip {
		return extracted{record: change.Record{Event: e}, skipped: true}, nil
	}
	e.Entity, e.Op, root = c.entity, c.op, c.payload
	if e.EventID, err = locate("event id", s.EventID, ev, c.meta); err != nil {
		return known, err
	}
	if e.Sequence, err = locate("sequence", s.Sequence, ev, c.meta); err != nil {
		return known, err
	}
	if c.read && s.byTime() {
		// The rows of a snapshot are those of its beginning, and later changes are older than their
		// reading. Without a sequence they have their place in the topic.
		e.Sequence = ""
	}
	if len(e.EventID) > maxID || len(e.Sequence) > maxID || !utf8.ValidString(e.EventID) || !utf8.ValidString(e.Sequence) ||
		strings.ContainsRune(e.EventID, 0) || strings.ContainsRune(e.Sequence, 0) {
		return known, refuse("bad_event_id", "event id or sequence is longer than %d bytes, not valid UTF-8 or holds a NUL", maxID)
	}
	if e.Session, err = change.ParseSession(s.Session.header(ev)); err != nil {
		return known, err
	}
	x := extracted{record: change.Record{Entity: e.Entity, Event: e}, gate: gate.Entry{EventID: e.EventID}, notice: c.notice}
	if c.moved != "" {
		gone := *e
		gone.Entity, gone.Op = c.moved, change.Delete
		gone.SetMark(canonicaltree.Digest{})
		x.moved = &change.Record{Entity: c.moved, Event: &gone}
	}
	if e.Op == change.Delete {
		x.gate.Hash = contentOf(e, canonicaltree.Digest{})
		e.SetMark(canonicaltree.Digest{})
		return x, nil
	}
	stripped, err := s.Strip.Strip(root)
	if err != nil {
		return known, fmt.Errorf("after stripping: %w", err)
	}
	if stripped != nil {
		defer stripped.Release()
		root = stripped.Root()
	}
	e.Unchanged = s.Unavailable.in(root)
	if c.sparse {
		e.Unchanged = append(e.Unchanged, nulls(root, s.UnchangedAsNull)...)
	}
	if names := s.Unchanged.header(ev); names != "" {
		for name := range strings.SplitSeq(names, "\n") {
			if root.Get(name).Exists() { // it was not stripped
				e.Unchanged = append(e.Unchanged, name)
			}
		}
	}
	if len(e.Unchanged) > 0 && c.moved != "" {
		return known, refuse("unavailable", "column %.64q was left unchanged by the update and is not in the database's log, "+
			"and the row has another entity now: ALTER TABLE … REPLICA IDENTITY FULL, or strip the column", e.Unchanged[0])
	}
	e.Payload = root.Raw()
	if e.EventID != "" {
		content := root.Sum(canonicaltree.Literal)
		x.gate.Hash = contentOf(e, content)
		e.SetMark(content)
	}
	return x, nil
}

// contentOf returns the hash that the gate compares beside the event id: entity and operation
// belong to the content, since producers use one id (of a transaction, say) for
// events about several entities.
func contentOf(e *change.Event, payload canonicaltree.Digest) gate.Hash {
	h := sha256.New()
	h.Write(payload[:])
	h.Write([]byte(e.Op))
	h.Write([]byte{0}) // no operation holds one
	h.Write([]byte(e.Entity))
	return gate.Hash(h.Sum(nil))
}

func (l Locator) String() string {
	switch {
	case l.Key:
		return "the record's key"
	case l.Header != "":
		return "header " + l.Header
	}
	return "path " + l.Path
}

// locate finds a value and returns it as text: strings unescaped, numbers by
// their literal. An absent or null value is empty; so is every path in an absent one.
func locate(what string, l Locator, ev *transport.Received, value canonicaltree.Node) (string, error) {
	switch {
	case l.isZero():
		return "", nil
	case l.Key:
		return string(ev.Key), nil
	case l.Header != "":
		return ev.Header(l.Header), nil
	case !value.Exists():
		return "", nil
	}
	if v, ok := member(value, l.Path); ok {
		switch v.Kind() {
		case canonicaltree.String:
			text, _ := v.Text()
			return text, nil
		case canonicaltree.Number:
			return string(v.Raw()), nil
		case canonicaltree.Null, canonicaltree.Invalid:
			return "", nil
		case canonicaltree.True, canonicaltree.False:
			if what == "operation" {
				return string(v.Raw()), nil
			}
		case canonicaltree.Array, canonicaltree.Object:
		}
	} else {
		switch r := gjson.GetBytes(value.Raw(), l.Path); r.Type {
		case gjson.String:
			return r.Str, nil
		case gjson.Number:
			return r.Raw, nil
		case gjson.Null:
			return "", nil
		case gjson.True, gjson.False:
			if what == "operation" {
				return r.Raw, nil
			}
		case gjson.JSON:
		}
	}
	code := "bad_" + strings.ReplaceAll(what, " ", "_")
	if what == "entity id" {
		code = "bad_entity"
	}
	return "", refuse(code, "the %s at path %s is neither a string nor a number", what, l.Path)
}

// member returns the value at a path of names, absent if there is none; ok is false if the path,
// or a value in it, needs gjson.
func member(v canonicaltree.Node, path string) (_ canonicaltree.Node, ok bool) {
	for i := range len(path) {
		if c := path[i]; c != '_' && c != '-' && c != '.' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return v, false
		}
	}
	for more := true; more; {
		var name string
		name, path, more = strings.Cut(path, ".")
		if name == "" || v.Kind() == canonicaltree.Array {
			return v, false
		}
		v = v.Get(name)
	}
	return v, true
}

// checkEntity refuses an entity id that the inbox or the store cannot hold; An empty id passes.
func (s *Extractor) checkEntity(id string) error {
	switch {
	case len(id) > s.MaxEntity:
		return refuse("bad_entity", "the entity id is %d bytes long, the limit is %d", len(id), s.MaxEntity)
	case strings.ContainsRune(id, 0) || !utf8.ValidString(id):
		return refuse("bad_entity", "the entity id holds a NUL or is not valid UTF-8")
	}
	return nil
}

// records returns the records to append for the event, in their order.
func (x *extracted) records() []change.Record {
	switch {
	case x.refused != nil:
		return []change.Record{*x.refused}
	case x.skipped || x.letter != nil:
		return nil
	case x.moved != nil:
		return []change.Record{*x.moved, x.record}
	}
	return []change.Record{x.record}
}

// Extract extracts the event at i of a frame without gate or inbox: the records that
// would be appended, none if the source's format skips it, or the dead letter. For tests
// of configurations and dry runs.
func (s *Extractor) Extract(f *transport.Frame, i int) ([]change.Record, *store.DeadLetter) {
	x := s.extract(f, i, nil)
	if x.letter != nil {
		return nil, x.letter
	}
	return x.records(), nil
}
