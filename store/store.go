package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// Store is the whole of it; stages ask for the part they use. Every method may
// be called from any number of goroutines. Errors are sorted by ClassOf. Entity
// ids must be valid UTF-8 without NUL, else the error is of class Poison. Times
// keep microseconds. A byte slice that is empty may come back as nil.
type Store interface {
	Configurations
	Decisions
	Deliveries
	DeadLetters
	SourcePositions
	SourceLogs
	Reader
	Guards

	// Migrate creates or upgrades the tables; a no-op when they are current.
	// Several processes may call it at the same time.
	Migrate(ctx context.Context) error
	// CheckSchema fails with ErrSchema when the tables have another schema than this build's.
	CheckSchema(ctx context.Context) error
	// Ping reports whether the store answers.
	Ping(ctx context.Context) error
	Close() error
}

// Revision is one activated configuration.
type Revision struct {
	Number      int64
	Fingerprint []byte // that it was activated with
	Activated   time.Time
}

// Same reports whether both are one activation.
func (r Revision) Same(o Revision) bool {
	return r.Number == o.Number && r.Activated.Equal(o.Activated) && bytes.Equal(r.Fingerprint, o.Fingerprint)
}

// Inbox is one generation of the inbox topic.
type Inbox struct {
	Generation uint16
	Topic      string
	TopicID    string
	Partitions int32
}

// History has the numbers of a store that are compared with a journal, which no restore of the
// store takes back.
type History struct {
	Generation uint16 // the newest one, 0 without any
	Active     int64  // the active revision, 0 without one
	// Journal and Void are as noted with the newest generation: no revision up to Void that is
	// not in Revisions takes effect any more.
	Journal   string
	Void      int64
	Revisions []int64 // those above Void, and the active one
	// Doubt, given to the Note of Activate alone: decisions under the active revision may have been
	// lost, and are not all made again.
	Doubt bool
}

// Noted are the numbers of an activation and of a generation in a journal, before the store has them.
type Noted struct {
	Revision   int64  // above the numbers of the History
	Generation uint16 // to be opened, above the numbers of the History; 0: none
	Journal    string // History.Journal of this generation
	Void       int64  // History.Void of this generation
}

// Note is called in the transaction that activates or opens, before its commit, one at a time. Its
// numbers are durable in the journal. It must not call the store. Its error ends the transaction.
// A nil Note counts on from the History.
type Note func(h History) (Noted, error)

// Configurations hold which configuration and which inbox are the current ones.
type Configurations interface {
	// Activate makes the configuration with this fingerprint the active one and
	// returns its revision. When it already is, nothing is written. When it was
	// active once and a later one replaced it, the answer is ErrSuperseded
	// unless force (a roll-back is an operator's decision, not a restart's).
	// A Generation of note is opened as by RenewInbox.
	// ErrFenced when note returns numbers that are taken or void.
	Activate(ctx context.Context, fingerprint []byte, force bool, inbox Inbox, note Note) (Revision, error)
	// Active returns the active revision; ErrNotFound before the first Activate.
	Active(ctx context.Context) (Revision, error)
	// Revisions returns the latest ones, the active one first.
	Revisions(ctx context.Context, limit int) ([]Revision, error)
	// KnownInbox returns the newest generation of the inbox topic with this identity,
	// ErrNotFound when ResolveInbox was never called for it.
	KnownInbox(ctx context.Context, topic, topicID string) (Inbox, error)
	// History returns the numbers that are compared with a journal.
	History(ctx context.Context) (History, error)
	// Inboxes returns all generations of the inbox, in their order.
	Inboxes(ctx context.Context) ([]Inbox, error)
	// ResolveInbox returns the newest generation of the inbox topic with this identity.
	// An identity that is not known opens the generation that note returns. Undecided records of the inbox before
	// it may be lost: claims of the ledger that were begun before and not
	// decided lose their responses, so that their requests, sent again, are taken in
	// again, under the same claims. That costs nothing here: each is found out when
	// its key is begun again. A known identity with another number of partitions is
	// ErrRepartitioned.
	ResolveInbox(ctx context.Context, topic, topicID string, partitions int32, note Note) (Inbox, error)
	// RenewInbox opens the generation that note returns, if any, of the topic that inbox is
	// of: its partitions go on at their watermarks, those in from at these offsets, and
	// their owners are fenced. When inbox is not the newest of its identity, nothing is
	// written and the newest is returned.
	RenewInbox(ctx context.Context, inbox Inbox, from map[int32]int64, note Note) (Inbox, error)
	// EndDoubt notes of partitions that TakeOver found in doubt where their doubt ends: the
	// offset behind the newest record, read after the takeover. Token must be the one of it;
	// other partitions stay as they are.
	EndDoubt(ctx context.Context, token Token, ends map[Partition]int64) error
	// Services returns the numbers of service names, registering new ones. A
	// number never changes and is never used again.
	Services(ctx context.Context, names []string) (map[string]int32, error)
}

// Partition is one partition of one generation of the inbox.
type Partition struct {
	Generation uint16
	Number     int32
}

// Token marks an owner's claim on partitions: unique per takeover.
type Token [16]byte

// NewToken returns a random token.
func NewToken() (t Token) {
	rand.Read(t[:])
	return t
}

// Frame is a row of the changes log.
type Frame struct {
	Partition Partition
	To        change.Version // where it ends
	Body      []byte         // a change.Frame
}

// TakenOver is the state of a partition at its takeover.
type TakenOver struct {
	Partition  Partition
	NextOffset int64 // the watermark: the first offset to decide; 0 for a new partition
	// LastTo is where the partition's newest frame ends, of this generation or an
	// older one: the next frame names it as its predecessor. 0 before the first.
	LastTo change.Version
	// Floors are the partition's floors, by the name of their log; see FloorsOf.
	Floors []Floor
	// Doubt: decisions may have been lost, up to an offset that is not known, see EndDoubt. A
	// takeover in a new session of the server, which a restore begins, finds it, unless the
	// generation was opened in that session.
	Doubt bool
}

// WatermarkStep is the watermark step of one partition in one decision.
type WatermarkStep struct {
	Partition Partition
	From, To  int64
	Token     Token
}

// Entity is the stored state of one business object.
type Entity struct {
	ID string
	// Docs is a JSON object: source name to source document, as stored text.
	// A source without document (never seen, or deleted) has no member. It comes
	// back byte for byte; nil is stored as {}. Invalid UTF-8 is Poison; the store does not parse it.
	Docs []byte
	// Fence is what stale events are recognized by, opaque to the store.
	Fence []byte
	// Version of the last record that changed Docs.
	Version change.Version
	// Fingerprint of the configuration that the services were last evaluated
	// under; nil forces the next event to evaluate all.
	Fingerprint []byte
	// Deleted is when the last source document went away, zero otherwise.
	Deleted time.Time
	// States are the dam states of its services. On writing, the pages in which a
	// state was set are written, the others stay.
	States States
	// Writes counts how often the entity was written, 0 for one that is not stored.
	// On writing it is the count that the decision read: with another count stored, or
	// no row, the write is ErrFenced.
	Writes int64
	// Found is false for an entity that is not stored (on reading).
	Found bool
}

// Key names one dam row.
type Key struct {
	Service int32
	Entity  string
}

// Row is the dam's state of one (service, entity).
type Row struct {
	Key
	Found   bool
	Content change.Content // nil is unknown
	// Refused says that the target refused Content, or that its delivery was given
	// up: whether the target holds it is not known. Never set without Content.
	Refused bool
	Version change.Version // of the last change or operator action
	Entered change.Entered // when the row was made
}

// Decision is the input of a decision transaction.
type Decision struct {
	// Revision must be the active one, else ErrSuperseded and nothing is written.
	Revision int64
	// Moves must all match their watermarks, else ErrFenced and nothing is written.
	Moves []WatermarkStep
	// Entities are loaded, with their dam states, in this order; no id twice. What an
	// owner knows under its token need not be.
	Entities []string
	// Claims are looked up, and who has which of Keys; without Claims both cost
	// nothing. Either may hold one more than once.
	Claims []ClaimID
	Keys   []KeyDigest
}

// Loaded is the state that a decision transaction read.
type Loaded struct {
	Entities []Entity // in the order of Decision.Entities
	// Decided are the members of Decision.Claims that had their effect before; nil when
	// there is none. A claim that the ledger no longer keeps is not in it.
	Decided map[ClaimID]change.Version
	// Uses are the claims that have Decision.Keys, by key; nil when there is none.
	Uses map[KeyDigest]Decided
}

// Outcome is the writes of a decision transaction.
type Outcome struct {
	// Purged are entities to remove with all their dam states and attempts, before anything else is
	// written: one of them may be in Entities again, as one that is not stored.
	Purged []string
	// Entities are inserted or replaced, with the dam states that were set; no id
	// twice. One that is not stored as it was found makes the whole ErrFenced.
	Entities []Entity
	// Frames are the changes, of the partitions of Moves alone. The frames of a partition ascend.
	Frames  []Frame
	Letters []DeadLetter
	Audit   []Audit
	// Settled says what became of dead letters that were replayed. Letters that
	// were settled before stay as they are; ids that are not there are passed over.
	Settled []LetterResolution
	// Claims that have their effect by this decision. A claim or a key twice is Fatal.
	// A claim with a key takes it from the claim in Loaded.Uses that had it, which is
	// then known by its id. ErrFenced when another decision was first. They are
	// known for as long as claims are that are made now.
	Claims []Decided
	// Floors replace those of their partitions, which are of Moves alone: all floors of each.
	Floors []Floor
	// Barriers are sessions whose numbers were decided. A log whose row has a lower number, or the
	// same with another name, is one of a restored store: its row gets this session, and is torn.
	Barriers []change.Session
}

// LetterResolution is what became of a replayed dead letter, or, without an ID, of the open
// letters of a stage for an entity of a service below Version.
type LetterResolution struct {
	ID              int64
	Stage           Stage  // without an ID
	Service, Entity string // without an ID
	State           LetterState
	// Version, if given with an ID, is the one with which it was replayed: a letter that has
	// a newer one died again since and stays as it is.
	Version change.Version
}

// Decisions is the store's side of decide.
type Decisions interface {
	// Watermarks are the watermarks of all partitions and generations.
	Watermarks(ctx context.Context) (map[Partition]int64, error)
	// TakeOver writes token into the watermarks of partitions, creating them at
	// 0, and reads them: an earlier owner's transaction is either seen whole or can no
	// longer commit. It waits for a decision under way. The first takeover in a generation ends all older ones,
	// of all partitions, for an entity may be in another one since: their
	// owners are fenced, and taking them over is ErrFenced.
	// Answers in the order of partitions; no number twice.
	TakeOver(ctx context.Context, partitions []Partition, token Token) ([]TakenOver, error)

	// Decide runs one decision transaction: check revision and watermarks, load
	// entities and decided claims, call decide, at most once, write its outcome,
	// commit durably. An error of decide ends the transaction and is returned as it is.
	//
	// Where nothing is to be loaded (neither Entities nor Claims) decide is called before
	// anything was checked or locked: revision and watermarks are compared in the
	// transaction that writes the outcome, and nothing is written unless they match
	// then. So the holder of the token at that offset may decide from memory.
	//
	// Otherwise decide runs while the watermarks are locked, so it should take well under
	// a minute. It must not call the store: one with a single writer would wait for
	// itself. A frame of a partition that is not in Moves, or an entity that is written
	// twice, is Fatal.
	//
	// After an error of class Unknown the transaction may have been committed.
	//
	// Entities and dam rows are written by nothing else, but for ForgetStates.
	Decide(ctx context.Context, d Decision, decide func(loaded Loaded) (Outcome, error)) error
}

// Tombstone is a deleted entity.
type Tombstone struct {
	Entity  string
	Version change.Version // of the record that deleted it
	Deleted time.Time
}

// Stage names where a record died.
type Stage string

// The stages.
const (
	StageIngest  Stage = "ingest"
	StageDecide  Stage = "decide"
	StageDeliver Stage = "deliver"
)

// Stages are all of them, in the order of the flow.
var Stages = []Stage{StageIngest, StageDecide, StageDeliver}

// LetterState is what became of a dead letter.
type LetterState string

// The states of a dead letter.
const (
	// LetterRetrying: the change failed and is tried again at NextTry. Only SwapProgress
	// writes such a row, under the token of its partition; it ends by removal or as an open
	// letter. Settling, discarding and pruning leave it alone, and no count of open letters
	// includes it.
	LetterRetrying  LetterState = "retrying"
	LetterOpen      LetterState = "open"
	LetterReplayed  LetterState = "replayed"
	LetterDiscarded LetterState = "discarded"
	// LetterObsolete: something newer replaced it. It was replayed too late, or its target
	// keeps the newest state only and a newer change was decided.
	LetterObsolete LetterState = "obsolete"
)

// DeadLetter is a record that could not be ingested, decided or delivered.
type DeadLetter struct {
	ID      int64     // given by the store
	Created time.Time // given by the store, but for a retrying row: when its entity failed first
	// Last is when it died last and Count how often; given by the store.
	Last     time.Time
	Count    int64
	Stage    Stage
	Code     string // short word for the reason: bad_json, oversized, refused, …
	Reason   string // one sentence, no payload
	Source   string // ingest, decide
	Service  string // deliver
	Entity   string // empty when it is not known
	EventID  string
	Version  change.Version // decide, deliver
	Topic    string         // identity of the stream that the record came from
	Offset   int64
	Part     int32
	Payload  []byte // the bytes as they came
	Headers  []byte // JSON object of the record's headers, may be nil
	State    LetterState
	Original []byte // payload before an edit, nil when never edited
	// DedupKey makes a repeated write of the same dead letter a no-op: stage,
	// service or source, topic, partition and offset, or event id; of a delivery
	// service, entity and content. Never empty.
	DedupKey string
	// Position is where the delivery stood that failed, 0 for other letters: a letter
	// that is written again with a higher one died again, see AddLetters.
	Position change.Version
	// Later is how long after its first death it is due, see DueLetters; with each
	// further one the wait doubles, up to LaterMax. 0: never. Written only.
	Later time.Duration
	// Attempts of a retrying row are those that count, also across newer versions of its
	// entity, and NextTry is the earliest time of the next one. An open letter keeps Attempts.
	Attempts int
	NextTry  time.Time
	// Size is the length of Payload in bytes, also where Payload is not read; given by the store.
	Size int64
}

// LaterMax is the longest wait until a dead letter is due.
const LaterMax = 24 * time.Hour

// LetterFilter selects dead letters; zero fields select all.
type LetterFilter struct {
	Stage   Stage
	Source  string
	Service string
	Entity  string
	Code    string
	State   LetterState
	// NewestFirst lists in descending id, for people. Otherwise pages have the letters in
	// the order of their addition, also of those added meanwhile.
	NewestFirst bool
	AfterID     int64 // page on: only those behind this id, in the order of the list
	Limit       int   // 0: 100
	ByEntity    bool  // of GroupLetters: the letters of each entity are a group
}

// CountedLetters bounds what CountLetters counts of a stage: it is asked every few
// seconds, however many there are.
const CountedLetters = 10_000

// LetterGroup is how many dead letters there are of one cause.
type LetterGroup struct {
	Stage   Stage     `json:"stage"`
	Source  string    `json:"source,omitempty"`
	Service string    `json:"service,omitempty"`
	Code    string    `json:"code"`
	Entity  string    `json:"entity,omitempty"` // only by entity
	Reason  string    `json:"reason"`           // of one of them
	Letters int64     `json:"letters"`
	First   time.Time `json:"first"` // the earliest Created
	Last    time.Time `json:"last"`  // the latest Last
}

// GroupedLetters bounds what GroupLetters looks at.
const GroupedLetters = 200_000

// DeadLetters keeps them until an operator is done with them.
type DeadLetters interface {
	// AddLetters adds those whose DedupKey is not there yet, all or none. One that
	// is there with a lower Position died again: Count and Last grow, it has the new
	// letter's code, reason, version, payload and headers, and is open again. A
	// letter is never refused for its content: in its texts, characters that a database
	// cannot hold become U+FFFD; Payload, Headers and DedupKey stay as they are.
	AddLetters(ctx context.Context, letters []DeadLetter) error
	// ListLetters returns one page by id, without Payload and Original.
	ListLetters(ctx context.Context, f LetterFilter) ([]DeadLetter, error)
	// GroupLetters counts those that a filter leaves by stage, source, service, code
	// and, with ByEntity, entity, the most first, and returns at most limit groups. It looks at
	// GroupedLetters of them at most; order and page of the filter do not matter.
	GroupLetters(ctx context.Context, f LetterFilter, limit int) ([]LetterGroup, error)
	// DueLetters returns a page of the open letters of services that are due and not
	// offered since they died last, in ascending id from after on, without Payload and
	// Original. It reads no others.
	DueLetters(ctx context.Context, services []string, after int64, limit int) ([]DeadLetter, error)
	// Offered notes that a new decision was requested about letters: DueLetters leaves them
	// out until they die again.
	Offered(ctx context.Context, ids []int64) error
	// Letter returns one, complete; ErrNotFound.
	Letter(ctx context.Context, id int64) (DeadLetter, error)
	// CountLetters counts the open ones of each stage, up to CountedLetters + 1, which
	// means more than CountedLetters; a stage without any has no entry.
	CountLetters(ctx context.Context) (map[Stage]int64, error)
	// Prune removes dead letters that died last, and audit rows that were written,
	// before the given times, and returns how many of both. An open letter whose content
	// the dam still has as refused stays: it explains the refusal.
	Prune(ctx context.Context, letters, audit time.Time) (int, error)
}

// Audit is one operator action.
type Audit struct {
	ID      int64
	Time    time.Time // given by the store
	Actor   string
	Action  string
	Reason  string
	Entity  string
	Service string
	Detail  []byte // JSON object
}

// AuditFilter selects audit rows; an empty text selects all.
type AuditFilter struct {
	Actor, Action, Entity, Service string
	// NewestFirst lists in descending id, for people.
	NewestFirst bool
	AfterID     int64 // page on: only those behind this id, in the order of the list
	Limit       int   // 0: 100
}

// Floor is the session of a log that a partition of the inbox hears, and how far it has heard.
type Floor struct {
	Partition Partition
	change.Session
	// Sequence and Offset are the highest place of an event that was heard, of this session or an
	// earlier one; empty and 0 before the first. Sequences compare by their bytes.
	Sequence string
	Offset   int64
}

// FloorsOf returns the floors of a partition, by the name of their log. A log without a row of
// its own begins with the newest session and the highest place of all inboxes before: an entity
// may have been in any partition of them.
func FloorsOf(p Partition, all []Floor) (floors []Floor) {
	for _, f := range all {
		if f.Partition.Generation > p.Generation || f.Partition.Generation == p.Generation && f.Partition.Number != p.Number {
			continue
		}
		i := slices.IndexFunc(floors, func(known Floor) bool { return known.Log == f.Log })
		switch own := f.Partition == p; {
		case i < 0:
			floors = append(floors, f)
		case own:
			floors[i] = f
		case floors[i].Partition != p:
			known := &floors[i]
			if f.Number > known.Number {
				known.Session = f.Session
			}
			known.Hear(f.Sequence, f.Offset)
		}
	}
	for i := range floors {
		floors[i].Partition = p
	}
	slices.SortFunc(floors, func(a, b Floor) int { return strings.Compare(a.Log, b.Log) })
	return floors
}

// Hear notes the place of an event, and reports whether it is higher than those before.
func (f *Floor) Hear(sequence string, offset int64) bool {
	if order := strings.Compare(sequence, f.Sequence); order < 0 || order == 0 && offset <= f.Offset {
		return false
	}
	f.Sequence, f.Offset = sequence, offset
	return true
}

// SourceLog is the state of a log that one session at a time reads.
type SourceLog struct {
	change.Session       // the newest one
	Version        int64 // grows with each write; 0: there is no row
	// Torn says that a restored store had lost the number of a session: events of the log
	// may have been dropped.
	Torn  bool
	State []byte // opaque to the store, may be nil
}

// SourceLogs keeps the rows of source logs, with the floors of the inbox.
type SourceLogs interface {
	// SourceLog returns ErrNotFound for a log without a row.
	SourceLog(ctx context.Context, log string) (SourceLog, error)
	// SwapSourceLog replaces old, which only needs session and version, by next, and writes
	// positions as SetPosition does. It returns the version of next. ErrFenced, and nothing is
	// written, if the row is another one.
	SwapSourceLog(ctx context.Context, old, next SourceLog, positions ...SourcePosition) (version int64, err error)
	// Floors returns the floors of a log, or of all logs if it is empty, of all partitions of all inboxes.
	Floors(ctx context.Context, log string) ([]Floor, error)
}

// SourcePosition is how far a resumable source that is not Kafka was taken in.
type SourcePosition struct {
	Source   string
	Identity string
	Offset   int64  // the first position not yet taken in
	State    []byte // opaque to the store, may be nil
}

// SourcePositions keeps them.
type SourcePositions interface {
	Position(ctx context.Context, source, identity string) (SourcePosition, error) // ErrNotFound
	SetPosition(ctx context.Context, p SourcePosition) error                       // never backwards
}

// Reader answers questions of commands and pages; nothing that decides uses it.
type Reader interface {
	// Entity returns one with its dam states; ErrNotFound.
	Entity(ctx context.Context, id string) (Entity, error)
	// Tombstones returns up to limit entities that were deleted before the given time and
	// come after the given one (zero: from the start), the earliest deletion first, and by
	// id where these are equal. It leaves out entities with a retrying row or an open dead
	// letter of deliver: both need the tombstone's version. The cost of a page does not depend
	// on the number of younger tombstones.
	Tombstones(ctx context.Context, before time.Time, after Tombstone, limit int) ([]Tombstone, error)
	// Audits returns one page of operators' actions by id.
	Audits(ctx context.Context, f AuditFilter) ([]Audit, error)
	// Entities pages through them in ascending byte order of their ids: those after the
	// given one, with their dam states.
	Entities(ctx context.Context, after string, limit int) ([]Entity, error)
	// CountEntities counts them all; it reads an index or the whole table.
	CountEntities(ctx context.Context) (int64, error)
	// KnownServices returns the numbers of all service names that were ever
	// registered; unlike Services it registers nothing.
	KnownServices(ctx context.Context) (map[string]int32, error)
}
