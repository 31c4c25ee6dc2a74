package change

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
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

// Event is one event about one entity. Its entity is the record's key and its
// payload the record's value.
type Event struct {
	Origin
	EventID  string `json:"i,omitempty"` // the producer's id; empty when it has none
	Sequence string `json:"q,omitempty"` // the producer's order, see CompareSequence; empty when it has none
	Op       Op     `json:"op"`
	// Claim is the id of the ledger's claim under which the event came in, the
	// text form of its UUID: of all events of one claim decide applies the first.
	// Empty for one without.
	Claim string `json:"c,omitempty"`
	// Use is the use of the key that the claim was made for; nil without one.
	Use *Use `json:"u,omitempty"`
	// Replay is set on an event that was a dead letter: it is older than its
	// inbox offset says.
	Replay *Replay `json:"r,omitempty"`
	// Unchanged names the members of the payload whose values the producer left out because they
	// did not change: the stored document has them. The payload holds a placeholder there.
	Unchanged []string `json:"n,omitempty"`
	Entity    string   `json:"-"`
	Payload   []byte   `json:"-"` // stripped JSON; nil on Delete
}

// Use is a use of an idempotency key: what decide knows a key by when the ledger
// does not, because it was restored and another claim was made for the key.
type Use struct {
	Key     []byte `json:"k"` // store.KeyDigest
	Content []byte `json:"f"` // the first 8 bytes of the request's fingerprint
	// Keep is for how long the key is known, in ms: claims that were made so far
	// apart, or more, are two uses of it.
	Keep int64 `json:"d"`
}

// Replay says which dead letter an event was, and when it died. What came from
// its source since then is newer.
type Replay struct {
	Letter    int64   `json:"l"`           // id of the dead letter
	Version   Version `json:"v,omitempty"` // where it stood in the inbox; 0 when it never got there
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
	// Purge removes the entity with all its dam rows, if it is deleted and all of its
	// versions are below Version: what housekeeping asks for when its retention is over.
	Purge Action = "purge"
)

// Control is an operator's or deliver's request about one entity, decided by
// the entity's owner in the order of the inbox.
type Control struct {
	ID       string   `json:"id"`                 // unique per request
	Action   Action   `json:"action"`             //
	Services []string `json:"services,omitempty"` // empty: all
	Version  Version  `json:"version,omitempty"`  // Refuse: only rows that have this version; Purge: only an entity that is below it; Redecide: none that has a newer one, 0 with no Letter: all
	Outdated bool     `json:"outdated,omitempty"` // Redecide: only services that are new since the entity was evaluated
	Force    bool     `json:"force,omitempty"`    // Redecide: pass the dam even when equal
	Actor    string   `json:"actor,omitempty"`    // who asked
	Reason   string   `json:"reason,omitempty"`   // why
	// Operation is the id of the operator's request that this record is a part
	// of, empty without one. The request has an audit row of its own.
	Operation string `json:"operation,omitempty"`
	// Letter is the dead letter that is replayed by this, 0 for none.
	Letter int64  `json:"letter,omitempty"`
	Change []byte `json:"-"` // Resend: the change in its binary form
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

// Kinds in the header.
const (
	kindEvent   = "e"
	kindControl = "c"
)

type header struct {
	Kind    string   `json:"k"`
	Control *Control `json:"ctl,omitempty"`
	*Event
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
	case e.Op != Upsert && e.Op != Delete:
		return malformed(fmt.Sprintf("operation %q", e.Op))
	case (e.Op == Delete) != (e.Payload == nil):
		return malformed("a delete has no payload, an upsert has one")
	case len(e.EventID) > MaxID || len(e.Sequence) > MaxID || !isText(e.Source, e.Topic, e.EventID, e.Sequence, e.Claim):
		return malformed("a text of an event is too long, not valid UTF-8 or holds a NUL")
	case e.Replay != nil && !isText(e.Replay.Operation, e.Replay.Actor, e.Replay.Reason):
		return malformed("a text of a replay is not valid UTF-8 or holds a NUL")
	}
	return nil
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
	h := header{Kind: kindControl, Control: r.Control}
	if r.Event != nil {
		h, value = header{Kind: kindEvent, Event: r.Event}, r.Event.Payload
	} else {
		value = r.Control.Change
	}
	if head, err = json.Marshal(h); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return []byte(r.Entity), head, value, nil
}

// DecodeRecord reads what EncodeRecord wrote, and refuses a record that it would refuse. The
// payload is value itself, not a copy. The error wraps ErrMalformed.
func DecodeRecord(key, head, value []byte) (Record, error) {
	if len(head) == 0 {
		return Record{}, fmt.Errorf("%w: no %q header", ErrMalformed, InboxHeader)
	}
	var h header
	if err := json.Unmarshal(head, &h); err != nil {
		return Record{}, fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	r := Record{Entity: string(key)}
	switch h.Kind {
	case kindEvent:
		if r.Event = h.Event; r.Event != nil {
			if r.Event.Entity = r.Entity; r.Event.Op == Upsert {
				r.Event.Payload = value
			}
		}
	case kindControl:
		if r.Control = h.Control; r.Control != nil && len(value) > 0 {
			r.Control.Change = value
		}
	default:
		return Record{}, fmt.Errorf("%w: kind %q", ErrMalformed, h.Kind)
	}
	return r, r.check()
}
