// Package change holds the records of both logs: the events and control records of the
// inbox, and the changes that follow from them, with versions, idempotency keys and
// wire forms.
//
// The inbox is keyed by entity: all events of an entity, from all sources, and all
// control records about it are in one partition, in one order. The value of an inbox
// [Record] is the stripped payload (nil for a delete), or the change that a control
// record carries. Everything else is compact JSON in one header: the payload keeps the
// bytes of ingest, and a change that fit into the changes log fits into the inbox.
//
// A change is a projected document, or a retraction, that passed the dam. Its
// version is the inbox position of the record that caused it, so it grows
// strictly per entity and needs no clock. Its key follows from service, entity,
// version and content: the same key always means the same bytes.
//
// Changes travel in frames. A [Frame] is one row of the changes log: all changes that one decision
// made in one inbox partition, service by service, each document and its hash once, compressed. Its header says which
// positions were decided and where the frame before it ended, so that a reader
// detects missing frames. [Change.AppendBinary] is the form of a single change, in
// dead letters and in the control records that send them once more.
package change

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Version is the position of a change: the generation of the inbox topic in
// the high 16 bits, the offset of the causing record in the low 48. Versions
// of one entity compare as numbers; versions of different entities say nothing
// about each other. The zero Version is older than every real one.
type Version uint64

const offsetBits = 48

// NewVersion packs an inbox position. Generation must be 1 to 32767 (the
// version also fits a signed 64-bit column) and offset 0 to 2^48-1; anything
// else is a programming error and panics.
func NewVersion(generation uint16, offset int64) Version {
	if generation == 0 || generation > 1<<15-1 || offset < 0 || offset >= 1<<offsetBits {
		panic(fmt.Sprintf("change: impossible inbox position: generation %d, offset %d", generation, offset))
	}
	return Version(generation)<<offsetBits | Version(offset)
}

// Generation is the generation of the inbox topic.
func (v Version) Generation() uint16 { return uint16(v >> offsetBits) }

// Offset is the offset of the record in its inbox partition.
func (v Version) Offset() int64 { return int64(v & (1<<offsetBits - 1)) }

// String shows a version as generation:offset.
func (v Version) String() string { return fmt.Sprintf("%d:%d", v.Generation(), v.Offset()) }

// Op is the operation of an event on its source document, or of a change on the
// customer's copy of the entity.
type Op string

const (
	// Upsert carries a document: the payload of an event, or the whole projected document.
	Upsert Op = "upsert"
	// Delete removes a source document.
	Delete Op = "delete"
	// Refused is an event that became a dead letter before it reached the inbox: the source
	// document of its entity is an older one.
	Refused Op = "refused"
	// Retract removes the entity from a projection.
	Retract Op = "retract"
)

// Content is the state of a dam row: a structural hash with the number of its
// scheme in front, or the mark of a retraction. A nil Content is the unknown
// state, which equals nothing: any next content passes.
// Contents are equal when their bytes are.
type Content []byte

const retractMark = 0xFF

// Hashed is the content of an upsert whose document has digest d.
func Hashed(scheme uint8, d canonicaltree.Digest) Content {
	c := make(Content, 1+len(d))
	c[0] = scheme
	copy(c[1:], d[:])
	return c
}

// Retracted is the content of a retraction.
func Retracted() Content { return Content{retractMark} }

// IsRetracted reports whether c is the mark of a retraction.
func (c Content) IsRetracted() bool { return len(c) == 1 && c[0] == retractMark }

// Scheme is the number of the hash scheme that c was made under, 0 for a retraction and for the
// unknown state.
func (c Content) Scheme() uint8 {
	if len(c) < 2 {
		return 0
	}
	return c[0]
}

// String formats a content for logs: "unknown", "retracted" or scheme:hex.
func (c Content) String() string {
	switch {
	case c == nil:
		return "unknown"
	case c.IsRetracted():
		return "retracted"
	case len(c) < 2:
		return "invalid"
	}
	return fmt.Sprintf("%d:%s", c[0], hex.EncodeToString(c[1:]))
}

// Change is one update for one service. It is immutable once made and may be
// read from any goroutine.
type Change struct {
	Service  string  // customer/projection@sink
	Entity   string  // the business object, never empty
	Op       Op      // Upsert or Retract
	Version  Version // position of the causing record
	Key      string  // idempotency key, see Key; decide leaves it to the reader of the frame
	Content  Content // what the dam row holds for this change
	Revision int64   // configuration revision that decided it
	// Time is the timestamp of the causing inbox record, in UTC with millisecond resolution. It
	// is shown and partitions tables by time. It is the same at every repetition, and implies no
	// order.
	Time time.Time
	Doc  []byte // the projected document as JSON; nil on Retract
	// At is when the event of a retraction, of an emptied view or of an update from a backlog
	// happened at its source, in milliseconds. Zero: unknown, or as it was ingested.
	At time.Time
	// Resent is the position of the control record that sent the change once more, after it was a
	// dead letter of a log sink, 0 for a change sent in order. A resent change may follow newer
	// ones of its entity.
	Resent Version
	// Partition is the number of the partition in the inbox and in the changes log. It is not
	// encoded: the reader sets it.
	Partition int32
	// Entered is when the entity first entered the service, by the source's time if it has one.
	// A change has it with At, or where At is unknown.
	Entered Entered
	// Effect is the change of the number of entities that the service has.
	Effect Effect
	// Planned says that an operator or a refresh requested it: no event caused it.
	Planned bool
	// Mends says that the content before it is refused: the target need not have that.
	Mends bool
	// Forced says that a request made the change, or that the row did not know the target's content:
	// it is written although the target may have it.
	Forced bool
	// Trace is the context of the work that made the change, nil for most.
	Trace *Trace
}

// Effect says whether an entity enters a service or leaves it.
type Effect int8

// The effects.
const (
	Keeps  Effect = 0
	Enters Effect = 1
	Leaves Effect = -1
)

// Entered is a time in units of two minutes since 2000, rounded down, as it is stored in three
// bytes. 0 means unknown.
type Entered uint32

const (
	enteredUnit  = 2 * time.Minute
	enteredEpoch = 946_684_800 // 2000, in Unix seconds
	// MaxEntered is the latest time, in 2063, and the form of all later ones.
	MaxEntered Entered = 1<<24 - 1
)

// EnteredAt returns the form of a time. All before 2000 are the same.
func EnteredAt(at time.Time) Entered {
	return Entered(max(1, min((at.Unix()-enteredEpoch)/int64(enteredUnit/time.Second), int64(MaxEntered))))
}

// Young reports whether the service had the entity for at most window, and up to two minutes more,
// when the change happened. It is false where that is not known.
func (c *Change) Young(window time.Duration) bool {
	at := c.At
	if at.IsZero() {
		at = c.Time
	}
	had := at.Sub(time.Unix(enteredEpoch, 0).Add(time.Duration(c.Entered) * enteredUnit))
	return c.Entered != 0 && had >= 0 && had <= window+enteredUnit
}

// Empty reports whether the change has a document without members.
func (c *Change) Empty() bool { return string(c.Doc) == "{}" }

// Key is the idempotency key of a change: 32 hex digits from SHA-256 over
// service, entity, version and content, each length-prefixed.
func Key(service, entity string, v Version, c Content) string {
	return string(AppendKey(nil, service, entity, v, c))
}

// KeySize is how many bytes a key has.
const KeySize = 32

// AppendKey appends [Key] to dst.
func AppendKey(dst []byte, service, entity string, v Version, c Content) []byte {
	var scratch [256]byte
	b := scratch[:0]
	b = binary.AppendUvarint(b, uint64(len(service)))
	b = append(b, service...)
	b = binary.AppendUvarint(b, uint64(len(entity)))
	b = append(b, entity...)
	b = binary.BigEndian.AppendUint64(b, uint64(v))
	b = append(b, c...)
	sum := sha256.Sum256(b)
	return hex.AppendEncode(dst, sum[:KeySize/2])
}

// Mark is 96 bits of SHA-256.
type Mark [12]byte

// EventMark identifies an event by its id and its content: an id that a producer uses again
// for other content is another event.
func EventMark(id string, content []byte) Mark {
	h := sha256.New()
	h.Write(binary.AppendUvarint(nil, uint64(len(content))))
	h.Write(content)
	h.Write([]byte(id))
	var sum [sha256.Size]byte
	return Mark(h.Sum(sum[:0]))
}
