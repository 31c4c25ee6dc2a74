package explain

import (
	"encoding/json"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
)

// Explanation is the report on one entity; its JSON form is the output of the command with
// --json. Versions are positions in the inbox, as
// generation:offset.
type Explanation struct {
	Entity string `json:"entity"`
	// Found is false when no source has such an entity. Only Letters, Looked and Checks are set
	// then.
	Found bool `json:"found"`
	// Looked says where it was looked for, when it was not found.
	Looked []string `json:"looked,omitempty"`

	Version string     `json:"version,omitempty"` // of the last record that changed a source document
	Deleted *time.Time `json:"deleted,omitempty"` // when the last source document went away
	// Complete reports whether every required source has a document. Missing are the others.
	Complete bool     `json:"complete"`
	Missing  []string `json:"missing,omitempty"`
	// Current: last evaluated under this configuration.
	Current bool `json:"current"`
	// Partition of the inbox that the entity's records are in, absent when the inbox is not
	// reachable.
	Partition *int32 `json:"partition,omitempty"`

	Events   []Event   `json:"events"`  // the last ones, the oldest first
	Sources  []Source  `json:"sources"` // by precedence
	Merged   *Document `json:"merged,omitempty"`
	Services []Service `json:"services"` // in the order of the configuration
	// Checks are the check services that were asked about it, in the order of the
	// configuration.
	Checks []Check `json:"checks,omitempty"`
	// Letters are the open dead letters about it, without payloads.
	Letters []operate.Letter `json:"dead_letters,omitempty"`
	// Deliveries are the newest attempts to deliver that are kept, the oldest of
	// them first.
	Deliveries []operate.Delivery `json:"deliveries,omitempty"`
	// Notes say which parts are missing from the report, and why.
	Notes []string `json:"notes,omitempty"`
}

// Event is one record that was decided for the entity.
type Event struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`             // of its inbox record
	Source  string    `json:"source,omitempty"` // of an event
	Action  string    `json:"action,omitempty"` // of a control record
	EventID string    `json:"event_id,omitempty"`
	// Outcome is noise, merged, incomplete, control, dead letter, or stale with its reason.
	Outcome string `json:"outcome"`
	// InRow is the number of stale events in a row up to this one, which follows the first of
	// them here; beyond 8 a lower bound.
	InRow int `json:"in_row,omitempty"`
	// Record is its record in the inbox. Gone says why it is absent.
	Record *Record `json:"record,omitempty"`
	Gone   string  `json:"gone,omitempty"`

	version uint64
	entry   int // of the history
}

// Record is a record of the inbox.
type Record struct {
	Operation string `json:"operation,omitempty"` // upsert or delete
	Stream    string `json:"stream,omitempty"`    // identity of the topic or file it came from
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	// Position is partition and offset as the source names them: an LSN of a PostgreSQL source.
	Position string `json:"position,omitempty"`
	Sequence string `json:"sequence,omitempty"`
	Size     int    `json:"size"` // of the payload, in bytes
	Actor    string `json:"actor,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Services are the services that a control record is about. Empty means all.
	Services []string `json:"services,omitempty"`
	// Payload is set on request.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Source is the stored document of one source.
type Source struct {
	Source   string          `json:"source"`
	Mode     string          `json:"mode"`
	Mount    string          `json:"mount,omitempty"`
	Required bool            `json:"required,omitempty"`
	Document json.RawMessage `json:"document,omitempty"` // absent when it has none
	Seen     *decide.Seen    `json:"seen,omitempty"`     // what stale events are recognized by
	// Position is the newest of Seen, as the source names it.
	Position string `json:"position,omitempty"`
	// Unknown: the configuration does not have this source.
	Unknown bool `json:"unknown,omitempty"`
}

// Document is the merged document.
type Document struct {
	Document json.RawMessage `json:"document"`
	// Parts say where each value comes from: the largest values that come from
	// one source alone. More is how many were left out.
	Parts []Part `json:"parts"`
	More  int    `json:"more,omitempty"`
}

// Part is a value of the merged document.
type Part struct {
	Path   string          `json:"path"`
	Value  json.RawMessage `json:"value"`
	Source string          `json:"source"`
	Over   []string        `json:"over,omitempty"` // sources that lose there
}

// Verdict is the state of a service in a word.
type Verdict string

// The verdicts.
const (
	Sent        Verdict = "sent"         // the last event changed it, and it is delivered
	Queued      Verdict = "queued"       // decided, and not delivered yet
	HeldBack    Verdict = "held back"    // evaluated, and equal to the last document sent
	Pruned      Verdict = "pruned"       // not evaluated: the event cannot show in this view
	Paced       Verdict = "paced"        // decided, and waits for the pace of the service
	Noise       Verdict = "noise"        // the last event changed nothing that matters to anybody
	Stale       Verdict = "stale"        // the last event was older than the entity's state
	Refused     Verdict = "refused"      // the newest change is a dead letter, or was one
	Unknown     Verdict = "unknown"      // set to unknown: the next content passes
	NeverSent   Verdict = "never sent"   // nothing was sent, and nothing is to be
	NotYet      Verdict = "not yet sent" // it would be sent, and was not decided yet
	UpToDate    Verdict = "up to date"   // delivered; the outcome of the last event is not kept
	Undecidable Verdict = "undecidable"  // its documents do not merge
)

// Service is the entity as one service sees it.
type Service struct {
	Service string `json:"service"`
	Renamed string `json:"renamed,omitempty"` // its name in the configuration, after a rename
	// Events has an entry for each of Explanation.Events: pruned, filtered, incomplete,
	// held back, sent, delivered (sent, and the newest), refused, dead letter, noise,
	// stale, - where it was about other services, or ? where it is not kept.
	Events []string `json:"events"`
	Filter string   `json:"filter,omitempty"` // empty: all documents
	// Match: the filter lets the document through.
	Match bool `json:"match"`
	// View is the projected document now, Hash its content; Fault says why it
	// cannot be projected.
	View  json.RawMessage `json:"view,omitempty"`
	Hash  string          `json:"hash,omitempty"`
	Fault string          `json:"fault,omitempty"`
	// Last is the last decision that was sent on, absent when nothing ever was.
	Last *LastSent `json:"last_sent,omitempty"`
	// Queued: sent on, and not delivered yet.
	Queued bool `json:"queued"`
	// Paused is the pause of the service, by an operator or the guard.
	Paused string `json:"paused,omitempty"`
	// Waits is why its queued change is not delivered yet, where that is known.
	Waits string `json:"waits,omitempty"`
	// Position is the service's position in the entity's partition: every change below it was
	// delivered, is a dead letter, or was replaced by a newer one. Behind is an upper bound of
	// its queued changes there. Both are absent when nothing was ever sent, and Behind when
	// nothing is queued.
	Position string `json:"position,omitempty"`
	Behind   int64  `json:"behind,omitempty"`
	// WouldSend: decided now, something would be sent.
	WouldSend bool    `json:"would_send"`
	Letters   []int64 `json:"dead_letters,omitempty"` // open ones
	Verdict   Verdict `json:"verdict"`
	Why       string  `json:"why"` // one sentence
}

// LastSent is the dam row of a service.
type LastSent struct {
	State     string `json:"state"` // upsert, retracted, refused or unknown
	Hash      string `json:"hash,omitempty"`
	Version   string `json:"version"`
	Delivered bool   `json:"delivered"` // it took effect at the sink
}

// Standing is the state of a check row in a word.
type Standing string

// The standings.
const (
	CheckConfirmed Standing = "confirmed" // what passed last is confirmed
	CheckOpen      Standing = "open"      // it passed, and is not confirmed
	CheckRefused   Standing = "refused"   // it was refused, so the version confirmed before is current again
	CheckUnknown   Standing = "unknown"   // given back or reset: the next content passes
)

// Check is the row of a check service. Versions are its own, not positions of
// the inbox.
type Check struct {
	Service  string   `json:"service"`
	Standing Standing `json:"standing"`
	Version  uint64   `json:"version"` // of the last pass
	// Confirmed is the highest confirmed version, absent without one.
	Confirmed uint64 `json:"confirmed_version,omitempty"`
	// Hash of the present content, absent when it is unknown. Given: made from
	// a hash that the caller computed.
	Hash     string `json:"hash,omitempty"`
	Given    bool   `json:"given,omitempty"`
	Sequence string `json:"sequence,omitempty"` // the highest seen
	Events   int    `json:"events_remembered"`
	Why      string `json:"why"` // the answer that the same content would get, in one sentence
}
