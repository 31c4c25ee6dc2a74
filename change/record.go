package change

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/wire"
)

// InboxHeader is the name of the one header of an inbox record, and of the message
// metadata entry.
const InboxHeader = "weir"

// Origin is where an event came from.
type Origin struct {
	// Source is the configured name.
	Source string `json:"s"`
	// Topic is the identity of the stream, not its name: a topic that is
	// deleted and created again, or a file that is replaced, has a new one.
	// Empty for a push source, which has no positions.
	Topic string `json:"t,omitempty"`
	// Partition and Offset grow with the stream; meaningless without Topic.
	Partition int32 `json:"p,omitempty"`
	Offset    int64 `json:"o,omitempty"`
	// Index orders the events of one Offset: the changes of a transaction.
	Index int64 `json:"x,omitempty"`
}

// Session identifies a session of a log that one process at a time reads, such as a replication
// slot. Decide accepts events of the newest session only. The zero Session is of a source without
// sessions.
type Session struct {
	// Log is the name of the log, the same for all of its sources.
	Log string `json:"l"`
	// Number is higher than the number of every earlier session. Two sessions to which a restored
	// store gave the same number differ in their names.
	Number int64  `json:"n"`
	Name   string `json:"m"`
}

// Header returns the session as the value of a header: its number, name and log.
func (s Session) Header() string {
	return strconv.FormatInt(s.Number, 10) + " " + s.Name + " " + s.Log
}

// ParseSession reads what Session.Header wrote. An empty text is the zero Session. Its error
// wraps ErrMalformed.
func ParseSession(text string) (s Session, err error) {
	if text == "" {
		return s, nil
	}
	number, rest, _ := strings.Cut(text, " ")
	s.Name, s.Log, _ = strings.Cut(rest, " ")
	if s.Number, err = strconv.ParseInt(number, 10, 64); err != nil || s.Log == "" || s.Number < 1 {
		return Session{}, fmt.Errorf("%w: session %.64q", ErrMalformed, text)
	}
	return s, nil
}

// Event is one event about one entity. Its entity is the record's key and its
// payload the record's value.
type Event struct {
	Origin
	EventID  string `json:"i,omitempty"` // the producer's id, empty if the event has no id
	Sequence string `json:"q,omitempty"` // the producer's order, see CompareSequence; empty if unordered
	Op       Op     `json:"op"`
	// Claim is the id of the ledger's claim under which the event came in, the
	// text form of its UUID: of all events of one claim decide applies the first.
	// Empty for one without.
	Claim string `json:"c,omitempty"`
	// Use is the use of the key that the claim was made for, nil without one.
	Use *Use `json:"u,omitempty"`
	// Replay is set on an event that was a dead letter: it is older than its
	// inbox offset says.
	Replay *Replay `json:"r,omitempty"`
	// Unchanged names the members whose values the producer left out because they did not change:
	// the stored document has them. The values of the payload there count for nothing.
	Unchanged []string `json:"n,omitempty"`
	// Refusal is why ingest refused the event, a short word. Only a Refused event has it.
	Refusal string `json:"f,omitempty"`
	// Session is the session that read the event. It is zero for a source without sessions.
	Session Session `json:"z,omitzero"`
	// At is when the event happened at its source, Unix time in milliseconds. AtIngest means
	// within a second of the record's own time. 0 means unknown or before 1970.
	At int64 `json:"-"`
	// Mark is the EventMark of an event with an id, empty when it is not known.
	Mark    string `json:"-"`
	Entity  string `json:"-"`
	Payload []byte `json:"-"` // stripped JSON; nil on Delete
}

// Use is a use of an idempotency key. It identifies the key to decide after the ledger was
// restored and another claim was made for the key.
type Use struct {
	Key     []byte `json:"k"` // store.KeyDigest
	Content []byte `json:"f"` // the first 8 bytes of the request's fingerprint
	// Keep is for how long the key is known, in ms: claims that were made so far
	// apart, or more, are two uses of it.
	Keep int64 `json:"d"`
}

// Replay says which dead letter an event was, and when it died. Events of its source since then
// are newer.
type Replay struct {
	Letter    int64   `json:"l"`           // id of the dead letter
	Version   Version `json:"v,omitempty"` // its position in the inbox, 0 if it was never appended
	Died      int64   `json:"t,omitempty"` // Unix time in ms of the letter
	Operation string  `json:"x,omitempty"` // id of the operator's request
	Actor     string  `json:"a,omitempty"` // who asked
	Reason    string  `json:"w,omitempty"` // why
	// Trace is the context of the work that made the letter, nil unless traced.
	Trace *Trace `json:"tc,omitempty"`
}

// Deliver is the actor of the pipeline's own requests: to refuse a row, and to repair or
// repeat deliveries.
const Deliver = "deliver"

// Refresh is the actor of requests to send unchanged content again: content that is refused
// stays held back.
const Refresh = "refresh"

// Housekeeping is the actor of the pipeline's own requests when a retention is over.
const Housekeeping = "housekeeping"

// Action is the request of a control record to the owner of an entity.
type Action string

const (
	// Refuse sets the dam rows of Services that still have Version to refused, after
	// a delivery became a dead letter: the content that they hold is held back, any
	// other passes.
	Refuse Action = "refuse"
	// Reset sets the dam rows of Services to unknown: the next content passes.
	Reset Action = "reset"
	// Redecide evaluates all Services again from the current merged document. With a
	// Letter it sends refused content, too.
	Redecide Action = "redecide"
	// Resend publishes Change once more as it is, with its own version and key: a
	// log sink's dead letter, which arrives late. No dam row is touched.
	Resend Action = "resend"
	// ResetOrder drops the sequences that the entity remembers of its sources: the next one
	// is in order with any value. Positions and event ids stay.
	ResetOrder Action = "reset_order"
	// Barrier makes Session the only accepted session of its log from this record of the
	// partition on. It is about no entity.
	Barrier Action = "barrier"
	// Purge removes the entity with all its dam rows, if it is deleted and all of its versions
	// are below Version: retention requests it when the tombstone expires.
	Purge Action = "purge"
)

// Control is an operator's or deliver's request about one entity, decided by
// the entity's owner in the order of the inbox.
type Control struct {
	ID       string   `json:"id"`                 // unique per request
	Action   Action   `json:"action"`             //
	Services []string `json:"services,omitempty"` // empty: all
	Version  Version  `json:"version,omitempty"`  // Refuse affects only rows of this version, Purge only an entity below it, Redecide no row with a newer one (0 without Letter: all rows)
	Outdated bool     `json:"outdated,omitempty"` // Redecide: only services that are new since the entity was evaluated
	Force    bool     `json:"force,omitempty"`    // Redecide: pass the dam even when equal
	Actor    string   `json:"actor,omitempty"`    // who asked
	Reason   string   `json:"reason,omitempty"`   // why
	// Operation is the id of the operator's request that this record is a part
	// of, empty without one. The request has an audit row of its own.
	Operation string `json:"operation,omitempty"`
	// Letter is the dead letter that is replayed by this, 0 for none.
	Letter   int64   `json:"letter,omitempty"`
	Change   []byte  `json:"-"`                  // Resend: the change in its binary form
	Session  Session `json:"session,omitzero"`   // Barrier: the one to hear
	Sequence string  `json:"sequence,omitempty"` // Barrier: of the epoch that the session reads
	// Trace is the context of the work that this repeats or repairs, nil unless
	// that is known and traced.
	Trace *Trace `json:"trace,omitempty"`
}

// Record is one record of the inbox: exactly one of Event and Control is set.
type Record struct {
	Entity  string
	Event   *Event
	Control *Control
}

// The first byte of a header. The rest of a control record is JSON.
const (
	kindEvent   = 'e'
	kindControl = 'c'
)

// AtIngest is the time of an event that came as it happened.
const AtIngest = -1

// Flags of an event.
const (
	flagDelete = 1 << iota
	flagMark
	flagSession
	flagMore // a rare part, in JSON
	flagAt
	flagAtIngest
	eventFlagsEnd
)

// rare are the parts that most events lack.
type rare struct {
	Claim     string   `json:"c,omitempty"`
	Use       *Use     `json:"u,omitempty"`
	Replay    *Replay  `json:"r,omitempty"`
	Unchanged []string `json:"n,omitempty"`
	Refusal   string   `json:"f,omitempty"`
}

// Bounds of a record's texts, in bytes.
const (
	MaxEntity = 2048 // ids of entities
	MaxID     = 1024 // event ids, sequences, ids and names of requests
)

// check reports the first rule that r breaks. Its texts go into keys and columns: they are
// valid UTF-8 without NUL, and bounded.
func (r *Record) check() error {
	malformed := func(what string) error { return fmt.Errorf("%w: %s", ErrMalformed, what) }
	switch {
	case r.Control != nil && r.Control.Action == Barrier && r.Event == nil:
		if c, s := r.Control, r.Control.Session; r.Entity != "" || s.Log == "" || s.Number <= 0 || !s.isValid() || len(c.Sequence) > MaxID || !isText(c.ID, c.Sequence) {
			return malformed("a barrier has an entity, no session, or one with a text that is too long, not valid UTF-8 or holds a NUL")
		}
		return nil
	case r.Entity == "" || len(r.Entity) > MaxEntity || !isText(r.Entity):
		return malformed("entity id is empty, too long, not valid UTF-8 or holds a NUL")
	case (r.Event == nil) == (r.Control == nil):
		return malformed("neither event nor control, or both")
	case r.Control != nil:
		c := r.Control
		if len(c.ID) > MaxID || len(c.Operation) > MaxID || !isText(c.ID, string(c.Action), c.Actor, c.Reason, c.Operation) || !isText(c.Services...) {
			return malformed("a text of a control record is too long, not valid UTF-8 or holds a NUL")
		}
		return nil
	}
	e := r.Event
	switch {
	case e.Op != Upsert && e.Op != Delete && e.Op != Refused:
		return malformed(fmt.Sprintf("operation %q", e.Op))
	case (e.Op == Upsert) != (e.Payload != nil):
		return malformed("an upsert has a payload, a delete or a refused event has none")
	case (e.Op == Refused) != (e.Refusal != "") || len(e.Refusal) > MaxID || !isText(e.Refusal):
		return malformed("a refused event has no reason, another event has one, or it is too long, not valid UTF-8 or holds a NUL")
	case len(e.EventID) > MaxID || len(e.Sequence) > MaxID || !isText(e.Source, e.Topic, e.EventID, e.Sequence, e.Claim):
		return malformed("a text of an event is too long, not valid UTF-8 or holds a NUL")
	case !e.Session.isValid():
		return malformed("a text of a session is too long, not valid UTF-8 or holds a NUL")
	case e.Replay != nil && !isText(e.Replay.Operation, e.Replay.Actor, e.Replay.Reason):
		return malformed("a text of a replay is not valid UTF-8 or holds a NUL")
	}
	return nil
}

func (s *Session) isValid() bool {
	return len(s.Log) <= MaxID && len(s.Name) <= MaxID && s.Number >= 0 && isText(s.Log, s.Name)
}

// isText reports whether the store can hold the texts.
func isText(texts ...string) bool {
	for _, s := range texts {
		if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
			return false
		}
	}
	return true
}

// EncodeRecord returns key, header value and value of r. The error wraps ErrMalformed: r
// breaks a rule.
func EncodeRecord(r Record) (key, head, value []byte, err error) {
	if err := r.check(); err != nil {
		return nil, nil, nil, err
	}
	if r.Event != nil {
		head, err = r.Event.appendHead(make([]byte, 0, 128))
		value = r.Event.Payload
	} else {
		head, err = json.Marshal(r.Control)
		head, value = append([]byte{kindControl}, head...), r.Control.Change
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return []byte(r.Entity), head, value, nil
}

// appendHead appends the header of an event.
func (e *Event) appendHead(dst []byte) (_ []byte, err error) {
	flags, more := byte(0), []byte(nil)
	if e.Op == Delete {
		flags |= flagDelete
	}
	if len(e.Mark) == len(Mark{}) {
		flags |= flagMark
	}
	if e.Session != (Session{}) {
		flags |= flagSession
	}
	if e.Claim != "" || e.Use != nil || e.Replay != nil || len(e.Unchanged) > 0 || e.Refusal != "" {
		flags |= flagMore
		if more, err = json.Marshal(rare{e.Claim, e.Use, e.Replay, e.Unchanged, e.Refusal}); err != nil {
			return nil, err
		}
	}
	switch {
	case e.At > 0:
		flags |= flagAt
	case e.At == AtIngest:
		flags |= flagAtIngest
	}
	dst = wire.Append(wire.Append(append(dst, kindEvent, flags), e.Source), e.Topic)
	dst = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, int64(e.Partition)), e.Offset), e.Index)
	dst = wire.Append(wire.Append(dst, e.EventID), e.Sequence)
	if flags&flagMark != 0 {
		dst = append(dst, e.Mark...)
	}
	if flags&flagAt != 0 {
		dst = binary.AppendVarint(dst, e.At)
	}
	if flags&flagSession != 0 {
		dst = wire.Append(binary.AppendUvarint(wire.Append(dst, e.Session.Log), uint64(e.Session.Number)), e.Session.Name)
	}
	return append(dst, more...), nil
}

// parseHead reads what appendHead wrote, or nil when it did not. The texts are parts of one.
func parseHead(head []byte) *Event {
	whole, r := string(head), wire.Reader{Rest: head[1:]}
	part := func(b []byte) string {
		end := len(whole) - len(r.Rest)
		return whole[end-len(b) : end]
	}
	e := &Event{Op: Upsert}
	flags := r.Byte()
	if flags&flagDelete != 0 {
		e.Op = Delete
	}
	e.Source = part(r.Bytes())
	e.Topic = part(r.Bytes())
	partition := r.Varint()
	e.Partition, e.Offset, e.Index = int32(partition), r.Varint(), r.Varint()
	e.EventID = part(r.Bytes())
	e.Sequence = part(r.Bytes())
	if flags&flagMark != 0 {
		e.Mark = part(r.Take(uint64(len(Mark{}))))
	}
	if flags&flagAtIngest != 0 {
		e.At = AtIngest
	}
	if flags&flagAt != 0 {
		e.At = r.Varint()
	}
	if flags&flagSession != 0 {
		e.Session.Log = part(r.Bytes())
		number := r.Uvarint()
		e.Session.Number, e.Session.Name = int64(number), part(r.Bytes())
		if e.Session == (Session{}) || number > math.MaxInt64 {
			return nil
		}
	}
	var more rare
	if flags&flagMore != 0 {
		if json.Unmarshal(r.Rest, &more) != nil {
			return nil
		}
		e.Claim, e.Use, e.Replay, e.Unchanged, e.Refusal, r.Rest = more.Claim, more.Use, more.Replay, more.Unchanged, more.Refusal, nil
		if e.Refusal != "" {
			if flags&flagDelete != 0 {
				return nil
			}
			e.Op = Refused
		}
	}
	if r.Failed || len(r.Rest) > 0 || int64(e.Partition) != partition || flags >= eventFlagsEnd || flags&flagAt != 0 && (e.At <= 0 || flags&flagAtIngest != 0) {
		return nil
	}
	return e
}

// DecodeRecord reads what EncodeRecord wrote, and refuses a record that it would refuse. The
// payload is value itself, not a copy. The error wraps ErrMalformed.
func DecodeRecord(key, head, value []byte) (Record, error) {
	if len(head) == 0 {
		return Record{}, fmt.Errorf("%w: no %q header", ErrMalformed, InboxHeader)
	}
	r := Record{Entity: string(key)}
	switch head[0] {
	case kindEvent:
		if r.Event = parseHead(head); r.Event != nil {
			if r.Event.Entity = r.Entity; r.Event.Op == Upsert {
				r.Event.Payload = value
			}
		}
	case kindControl:
		r.Control = new(Control)
		if err := json.Unmarshal(head[1:], r.Control); err != nil {
			return Record{}, fmt.Errorf("%w: header: %w", ErrMalformed, err)
		}
		if len(value) > 0 {
			r.Control.Change = value
		}
	default:
		return Record{}, fmt.Errorf("%w: kind %q", ErrMalformed, head[0])
	}
	return r, r.check()
}

// SetMark sets the mark of an event with an id. payload is the digest of the payload, zero
// for a delete.
func (e *Event) SetMark(payload canonicaltree.Digest) {
	if e.EventID != "" {
		mark := EventMark(e.EventID, payload[:])
		e.Mark = string(mark[:])
	}
}

// Text returns the event in JSON, for its dead letter, without entity, payload and mark.
func (e *Event) Text() string {
	text, _ := json.Marshal(e) // its texts and numbers always have a JSON form
	return string(text)
}

// EventOfText is the reverse of Text, for the entity's present payload.
func EventOfText(entity, text string, payload []byte) (*Event, error) {
	e := &Event{}
	if err := json.Unmarshal([]byte(text), e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if e.Entity = entity; e.Op == Upsert {
		e.Payload = payload
	}
	return e, (&Record{Entity: entity, Event: e}).check()
}
