package store

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// Pause keeps the deliveries of a service waiting until an operator ends it.
type Pause struct {
	Service string
	Since   time.Time // microseconds
	Actor   string
	Reason  string
	// Hold is set where the guard paused the service, not an operator.
	Hold *Hold
}

// Hold is the limit that a service would have exceeded.
type Hold struct {
	Kind     GuardKind     `json:"kind"`
	Counted  int64         `json:"counted"` // entities changed within Window before the hold
	Limit    int64         `json:"limit"`
	Entities int64         `json:"entities"` // of the service when the window began
	Window   time.Duration `json:"window"`
}

// GuardKind is a kind of changes that the guard counts.
type GuardKind string

// The kinds. An entity that enters a service is never counted.
const (
	GuardRetract GuardKind = "retract"
	GuardUpdate  GuardKind = "update"
)

// Admission asks the guard for changes of one kind, in the order of their writes.
type Admission struct {
	Service string
	Kind    GuardKind
	// At most Share of the service's entities, and at least Min, change within Window.
	Share  float64
	Min    int64
	Window time.Duration
	// Entities is the number that the service has, by its positions.
	Entities int64
	Now      time.Time
	Changes  []GuardedChange
}

// GuardedChange is one of its changes.
type GuardedChange struct {
	Entity    string
	Partition int32
	Position  change.Version
	// At is when it happened at the source. Zero means now.
	At time.Time
	// Young: the service had the entity for less than the window by then.
	Young bool
}

// guardSlots is how many slots a window has: times are counted by slot.
const guardSlots = 12

// slot returns the slot of a time in the windows of an admission.
func (a *Admission) slot(at time.Time) time.Time {
	if at.IsZero() || at.After(a.Now) {
		at = a.Now
	}
	return at.UTC().Truncate(a.Window / guardSlots)
}

// Slot returns the slot in which a change counts.
func (a *Admission) Slot(c *GuardedChange) time.Time { return a.slot(c.At) }

// GuardCounts are the counts of a guard.
type GuardCounts struct {
	Known map[string]time.Time // entities of the changes that are counted, with their slots
	Slots map[time.Time]int64  // entities of the kind, by slot
	// Retracted is how many retractions were admitted within the window until now.
	Retracted int64
}

// densest returns how many entities the fullest window has that a slot belongs to.
func (n *GuardCounts) densest(at time.Time, slot time.Duration) (most int64) {
	var window int64
	for i := 1 - guardSlots; i < guardSlots; i++ {
		window += n.Slots[at.Add(time.Duration(i)*slot)]
		if i > 0 {
			window -= n.Slots[at.Add(time.Duration(i-guardSlots)*slot)]
		}
		if i >= 0 {
			most = max(most, window)
		}
	}
	return most
}

// Admitted is the answer of the guard for one change.
type Admitted int8

// The answers.
const (
	Counted   Admitted = iota // write it
	Held                      // wait: the service is held, or paused
	Released                  // an operator released it: write it if it is the newest
	Discarded                 // an operator discarded it: pass it without a write
	Uncounted                 // write it: it is young
)

// Passes are positions per partition. An operator decided about the changes below them.
type Passes map[int32]change.Version

func (p Passes) pass(c *GuardedChange) bool { return c.Position < p[c.Partition] }

// GuardPasses has what operators decided about held changes, by kind.
type GuardPasses struct {
	Release map[GuardKind]Passes `json:"release,omitempty"`
	Discard map[GuardKind]Passes `json:"discard,omitempty"`
}

// GuardExtra is what an operator allowed on top of a limit.
type GuardExtra struct {
	Entities int64     `json:"entities"`
	Till     time.Time `json:"till"`
}

// HoldEnd ends a hold: exactly one of the fields is set.
type HoldEnd struct {
	Release, Discard Passes
	// Extend allows the limit once more within the window that begins now.
	Extend bool
}

// Guards keeps pauses, and counts the entities that services change. The count is exact over
// processes and crashes: an entity counts once per window, whichever process asks and however
// often, and the transaction that finds the limit exceeded pauses the service.
type Guards interface {
	// Pauses returns all pauses, by service.
	Pauses(ctx context.Context) ([]Pause, error)
	// PutPause pauses a service that is not paused, and adds the audit row in any case.
	PutPause(ctx context.Context, p Pause, audit Audit) error
	// EndPause removes an operator's pause, if there is one, and adds the audit row.
	EndPause(ctx context.Context, service string, audit Audit) error
	// Admit counts the entities of changes up to the limit, and answers for each change. When
	// the limit does not suffice, the service is paused by the guard. Answers are in the order
	// of the changes; behind one that is Held, none is Counted.
	Admit(ctx context.Context, a Admission) ([]Admitted, *Pause, error)
	// EndHold ends the guard's pause of a service and adds the audit row; ErrNotFound without
	// such a pause.
	EndHold(ctx context.Context, service string, end HoldEnd, now time.Time, audit Audit) error
}

// GuardState is the state of the guard of one service, which the stores keep as JSON.
type GuardState struct {
	Base   int64                    `json:"base"` // entities when the window began
	BaseAt time.Time                `json:"base_at"`
	Extra  map[GuardKind]GuardExtra `json:"extra,omitempty"`
	Passes GuardPasses              `json:"passes"`
	Pause  *Pause                   `json:"pause,omitempty"`
}

// Judge answers for changes, and adds those that it counts to n. A change counts at the time of its
// source, in each window of that time, so that a backlog is as dense as its history was. One of an entity that came and left
// within a window is no accident, and does not count. It moves the
// base, and returns the limit with how many entities the window of the last counted or held change has.
func (g *GuardState) Judge(a *Admission, n *GuardCounts) (answers []Admitted, counted, limit int64) {
	if a.Now.Sub(g.BaseAt) >= a.Window {
		g.Base, g.BaseAt = a.Entities+n.Retracted, a.Now
	} else {
		g.Base = max(g.Base, a.Entities)
	}
	limit = max(a.Min, int64(a.Share*float64(g.Base)))
	if extra := g.Extra[a.Kind]; a.Now.Before(extra.Till) {
		limit += extra.Entities
	}
	paused := g.Pause != nil
	answers = make([]Admitted, len(a.Changes))
	for i := range a.Changes {
		c := &a.Changes[i]
		at := a.Slot(c)
		was, known := n.Known[c.Entity]
		switch {
		case g.Passes.Discard[a.Kind].pass(c):
			answers[i] = Discarded
		case g.Passes.Release[a.Kind].pass(c):
			answers[i] = Released
		case paused:
			answers[i] = Held
		case c.Young:
			answers[i] = Uncounted
		case known && at.Sub(was).Abs() < a.Window:
			answers[i] = Counted
		default:
			if counted = n.densest(at, a.Window/guardSlots); counted >= limit {
				answers[i], paused = Held, true
				break
			}
			counted++
			n.Slots[at]++
			n.Known[c.Entity] = at
			answers[i] = Counted
		}
	}
	return answers, counted, limit
}

// GuardActor is the actor of a pause by the guard.
const GuardActor = "guard"

// Hold returns the pause of a service whose changes exceed the limit.
func (g *GuardState) Hold(a *Admission, counted, limit int64) *Pause {
	what := map[GuardKind]string{GuardRetract: "retracted", GuardUpdate: "updated"}[a.Kind]
	return &Pause{
		Service: a.Service, Since: a.Now, Actor: GuardActor,
		Reason: fmt.Sprintf("more than %d of %d entities would be %s within %s", limit, g.Base, what, a.Window),
		Hold:   &Hold{Kind: a.Kind, Counted: counted, Limit: limit, Entities: g.Base, Window: a.Window},
	}
}

// End applies an operator's decision about a hold, which concerns the changes of its kind alone.
// After a release and a discard a new window begins.
func (g *GuardState) End(h *Hold, end HoldEnd, now time.Time) {
	if !end.Extend {
		g.BaseAt = time.Time{}
	}
	switch {
	case end.Extend:
		g.Extra = with(g.Extra, h.Kind, GuardExtra{h.Limit, now.Add(h.Window)})
	case end.Discard != nil:
		g.Passes.Discard = with(g.Passes.Discard, h.Kind, end.Discard)
	default:
		g.Passes.Release = with(g.Passes.Release, h.Kind, end.Release)
	}
}

// with sets the value of a kind, and returns the map.
func with[V any](of map[GuardKind]V, kind GuardKind, v V) map[GuardKind]V {
	if of == nil {
		of = map[GuardKind]V{}
	}
	of[kind] = v
	return of
}
