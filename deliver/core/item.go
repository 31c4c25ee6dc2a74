package core

import (
	"cmp"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// Item is a change of the service that is not settled: in hand, or parked in a row of the
// store. The core owns it after Add or Restore; the caller may read it and clear Data.
type Item struct {
	Partition  int32
	Position   change.Version
	Version    change.Version
	Entity     string
	Bytes      int64      // of the row that it may need
	Resent     bool       // an older version that an operator sends again
	Assignment *Partition // of Partition; Drop ends its items
	Data       any        // the caller's; nil for a restored row
	Admitted   int        // for the caller: number of pauses after which the guard admitted it, 0 before that

	Arrived      time.Time // in hand
	OldestUnsent time.Time // time of the entity's oldest unsent change; zero means Arrived

	Row      bool         // the store has a row of it, or will have one with the position
	Attempts int          // for people, over all versions of a state sink's entity
	Next     time.Time    // no attempt before
	Since    time.Time    // of the first failure, over newer changes of a state sink
	Reason   string       // of the last one
	Err      *sinks.Error // the last one of this process
	// Stale says that time has passed since it was added: a newer change may be elsewhere.
	Stale bool

	state State
	// keepsPosition is a change before it of the entity, which keeps the position until it is settled.
	keepsPosition *Item
	lastAttempt   uint64 // number of the last attempt; see attempts
	failures      int    // attempts in hand
	failsAlone    bool   // it failed although another entity succeeded since its attempt before
}

// State is where an item is on its way. The transitions are the become methods.
type State int

// The states. An item keeps the position unless it is Parked or Settled, or is Refused or
// GivenUp and has a row.
const (
	Fresh   State = iota // in hand, to be written
	Resting              // in hand, until its entity is quiet: see Pace.Settle
	Held                 // in hand, it failed: there is no room for its row, or its sink does not park
	Parked               // in a row, to be tried again
	Refused              // by the target: waits for Concluded
	GivenUp              // failed for too long, or for the room that its queue takes: waits for Concluded
	Settled
)

// State returns where the item is.
func (i *Item) State() State { return i.state }

// concluding reports whether the item waits for Concluded.
func (i *Item) concluding() bool { return i.state == Refused || i.state == GivenUp }

// KeepsPosition returns, of a coalesced change, an earlier one of its entity and partition that keeps
// the position until the newer one is settled: i need not. Nil: none does.
func (i *Item) KeepsPosition() *Item { return i.keepsPosition }

// becomeHeld keeps a change that failed in hand.
func (i *Item) becomeHeld() { i.state = Held }

// becomeRefused and becomeGivenUp leave an item, in hand or in a row, to Concluded.
func (i *Item) becomeRefused() { i.state = Refused }

func (i *Item) becomeGivenUp() { i.state = GivenUp }

// giveWay lets the oldest of several changes in hand that a newer one replaces keep the position.
func (i *Item) giveWay(newer *Item) {
	if i.Assignment == newer.Assignment && i.Position < newer.Position {
		newer.keepsPosition = cmp.Or(i.keepsPosition, i)
	} else {
		i.keepsPosition = nil
	}
}

// Outcome is how an item was settled.
type Outcome int

// The outcomes.
const (
	Delivered Outcome = iota
	Skipped           // the target has it; or repeated: By, if given, is the same change or a newer one
	Coalesced         // By, a newer one of the entity, is delivered instead
	Overtaken         // a newer one was decided
	Redecided         // the present configuration decides again
	Discarded         // by an operator
	Dead              // a dead letter
	Abandoned         // the next owner of its partition delivers it
)

// Effect is a change of state that the caller writes or notes.
type Effect struct {
	Kind    EffectKind
	Item    *Item
	By      *Item
	Outcome Outcome
}

// EffectKind is the kind of an effect.
type EffectKind int

// Settle comes last for an item that had a row.
const (
	Settle EffectKind = iota // the item is done; nothing else of it follows
	Put                      // write the row of the item, with the position
	End                      // remove the row of the item, with the position
	Letter                   // the item becomes a dead letter, in the place of its row if it has one
)
