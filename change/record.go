package change

import (
	"encoding/json"
	"fmt"
	"strings"
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
	// Use is what the claim was made for, nil without one, and in a record of a
	// version that did not say it.
	Use *Use `json:"u,omitempty"`
	// Replay is set on an event that was a dead letter: it is older than its
	// inbox offset says.
	Replay  *Replay `json:"r,omitempty"`
	Entity  string  `json:"-"`
	Payload []byte  `json:"-"` // stripped JSON; nil on Delete
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

// Deliver is the actor of what the pipeline asks of itself: that a row is refused,
// and what repairs deliveries or tries them again.
const Deliver = "deliver"

// Housekeeping is the actor of what the pipeline asks of itself when a retention is
// over.
const Housekeeping = "housekeeping"

// Action is what a control record asks the owner of an entity to do.
type Action string

const (
	// Refuse sets the dam rows of Services that still have Version to refused, after
	// a delivery became a dead letter: the content that they hold is held back, any
	// other passes.
	Refuse Action = "refuse"
	// Reset sets the dam rows of Services to unknown: the next content passes.
	Reset Action = "reset"
	// Redecide evaluates all Services again from the current merged document. With a
	// Letter it passes what is refused.
	Redecide Action = "redecide"
	// Resend publishes Change once more as it is, with its own version and key: a
	// log sink's dead letter, which arrives late. No dam row is touched.
	Resend Action = "resend"
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
	Force    bool     `json:"force,omitempty"`    // Redecide: pass the dam even when equal
	Actor    string   `json:"actor,omitempty"`    // who asked
	Reason   string   `json:"reason,omitempty"`   // why
	// Operation is the id of the operator's request that this record is a part
	// of, empty for one that stands alone. The request has an audit row of its own.
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

// EncodeRecord returns key, header value and value of r. It fails only for a record
// that breaks the rules above.
func EncodeRecord(r Record) (key, head, value []byte, err error) {
	if r.Entity == "" || strings.ContainsRune(r.Entity, 0) {
		return nil, nil, nil, fmt.Errorf("%w: entity id is empty or holds a NUL", ErrMalformed)
	}
	switch {
	case r.Event != nil && r.Control == nil:
		if (r.Event.Op == Delete) != (r.Event.Payload == nil) {
			return nil, nil, nil, fmt.Errorf("%w: a delete has no payload, an upsert has one", ErrMalformed)
		}
		head, err = json.Marshal(header{Kind: kindEvent, Event: r.Event})
		value = r.Event.Payload
	case r.Control != nil && r.Event == nil:
		head, err = json.Marshal(header{Kind: kindControl, Control: r.Control})
		value = r.Control.Change
	default:
		err = fmt.Errorf("%w: neither event nor control", ErrMalformed)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return []byte(r.Entity), head, value, nil
}

// DecodeRecord reads what EncodeRecord wrote. The payload is value itself, not a copy.
// Its error wraps ErrMalformed.
func DecodeRecord(key, head, value []byte) (Record, error) {
	if len(key) == 0 {
		return Record{}, fmt.Errorf("%w: no key", ErrMalformed)
	}
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
		e := h.Event
		if e == nil {
			return Record{}, fmt.Errorf("%w: an event record without one", ErrMalformed)
		}
		e.Entity = r.Entity
		if e.Op != Upsert && e.Op != Delete {
			return Record{}, fmt.Errorf("%w: operation %q", ErrMalformed, e.Op)
		}
		if e.Op == Upsert {
			if value == nil {
				return Record{}, fmt.Errorf("%w: an upsert without payload", ErrMalformed)
			}
			e.Payload = value
		}
		r.Event = e
	case kindControl:
		if h.Control == nil {
			return Record{}, fmt.Errorf("%w: a control record without one", ErrMalformed)
		}
		if r.Control = h.Control; len(value) > 0 {
			r.Control.Change = value
		}
	default:
		return Record{}, fmt.Errorf("%w: kind %q", ErrMalformed, h.Kind)
	}
	return r, nil
}

// CompareSequence orders two sequences of one source: -1, 0 or 1. Two strings
// of digits compare as whole numbers of any length, others by their bytes; so
// numbers, ISO 8601 times in one zone, and zero-padded log positions order as
// their producers mean them. Digits come before everything else: it is one order,
// whatever a source mixes.
func CompareSequence(a, b string) int {
	number, other := digits(a), digits(b)
	switch {
	case number && !other:
		return -1
	case other && !number:
		return 1
	case number:
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		if len(a) != len(b) {
			if len(a) < len(b) {
				return -1
			}
			return 1
		}
	}
	return strings.Compare(a, b)
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
