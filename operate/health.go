package operate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate/remedy"
)

// Level says how a process, a service or anything else is doing.
type Level string

// The levels, from the best to the worst.
const (
	LevelOK       Level = "ok"
	LevelUnknown  Level = "unknown"  // the server that knows is unreachable
	LevelDegraded Level = "degraded" // it works; for a process: a service does not
	LevelDown     Level = "down"     // it does not do its work
)

// Rank orders levels: 0 ok or unknown, 1 degraded, 2 down.
func (l Level) Rank() int {
	return max(0, slices.Index([]Level{LevelOK, LevelDegraded, LevelDown}, l))
}

// Item is one line of a status: a problem, or a queue that moves.
type Item struct {
	// What names the item: a service, source NAME, store, gate, kafka, topic NAME, inbox,
	// imports, dead letters of STAGE, or configuration.
	What  string `json:"what"`
	Level Level  `json:"level"`
	// Queued is how many records or changes are pending. With AtMost it is an upper bound.
	Queued int64 `json:"queued,omitempty"`
	AtMost bool  `json:"at_most,omitempty"`
	// Oldest is when the oldest of them was first seen, where that is known.
	Oldest time.Time `json:"oldest,omitzero"`
	// Since is when the problem began, as far as it is known.
	Since time.Time `json:"since,omitzero"`
	// NextTry is when the failing attempt is repeated.
	NextTry time.Time `json:"next_try,omitzero"`
	Why     string    `json:"why"` // in the words of the server or target
	Do      string    `json:"do,omitempty"`
	// Hold is the guard's, of a service that it holds.
	Hold *Held `json:"hold,omitempty"`
}

// compareItems orders the worst first; among equals the longest-lasting, then the longest queue.
func compareItems(a, b Item) int {
	return cmp.Or(
		cmp.Compare(b.Level.Rank(), a.Level.Rank()), cmp.Compare(b2i(b.Level == LevelUnknown), b2i(a.Level == LevelUnknown)),
		cmp.Compare(b2i(a.Since.IsZero()), b2i(b.Since.IsZero())), a.Since.Compare(b.Since), cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.What, b.What))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Health is how a process and its services are doing.
type Health struct {
	Level Level `json:"level"`
	// Reason is a stable word for the error that blocks the process, Error its text, Since when
	// it began, and Do the remedy. All are empty unless the level is down.
	Reason string    `json:"reason,omitempty"`
	Error  string    `json:"error,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// NextTry is when the process checks again.
	NextTry time.Time `json:"next_try,omitzero"`
	Do      string    `json:"do,omitempty"`
	// Configured is the number of all services.
	Configured int `json:"configured,omitempty"`
	// Services are the services with a problem, the worst first, then the longest-lasting.
	Services []ServiceHealth `json:"services,omitempty"`
	// Paced are services whose changes wait on purpose, for their pace.
	Paced []string `json:"paced,omitempty"`
	// Problems are all others: unreachable servers, blocked sources, failing topics.
	Problems []Item `json:"problems,omitempty"`
	// Pending is work for operators, of the whole pipeline: dead letters, retried changes, a
	// backfill that is due, which the level does not depend on; and the problems of other processes.
	Pending []Item `json:"pending,omitempty"`
}

// ServiceHealth is how the delivery of a service is doing.
type ServiceHealth struct {
	Service string        `json:"service"`
	Level   Level         `json:"level"`
	State   deliver.State `json:"state"`
	// Cause is why it is paused.
	Cause deliver.PauseCause `json:"cause,omitempty"`
	// Refused is how many changes the target refused since its last delivery.
	Refused int64 `json:"refused,omitempty"`
	// Parked is how many failed changes wait for their next attempt.
	Parked  int64     `json:"parked,omitempty"`
	Since   time.Time `json:"since"`
	NextTry time.Time `json:"next_try,omitzero"` // of the failed attempt
	Error   string    `json:"error"`             // in the target's own words
	Do      string    `json:"do"`
	Hold    *Held     `json:"hold,omitempty"` // without samples
}

// Waits reports whether an operator paused the service, or the guard: it waits for an operator.
func (s ServiceHealth) Waits() bool {
	return s.Cause == deliver.PausedByOperator || s.Cause == deliver.PausedByGuard
}

// Limits beyond which a degraded service is down.
const (
	manyRefused = 3               // changes in a row
	longAway    = 5 * time.Minute // unreachable
)

// Observed is the state of a process, from which HealthOf derives its health.
type Observed struct {
	// Blocked is the error that blocks the process since Since, or nil. Reason is a stable word
	// for it.
	Blocked error
	Reason  string
	Since   time.Time
	NextTry time.Time
	// Configured is the number of services of the configuration.
	Configured int
	// Conditions of the services that the process delivers.
	Conditions map[string]deliver.Condition
	Problems   []Item
	Pending    []Item
}

// HealthOf derives the health of a process.
func HealthOf(o Observed, now time.Time) Health {
	h := Health{Level: LevelOK, Configured: o.Configured, Problems: slices.Clone(o.Problems), Pending: o.Pending}
	for name, c := range o.Conditions {
		if s := serviceHealth(name, c, now); s.Level != LevelOK {
			h.Services = append(h.Services, s)
		} else if c.State == deliver.StatePaced {
			h.Paced = append(h.Paced, name)
		}
	}
	slices.Sort(h.Paced)
	slices.SortFunc(h.Services, func(a, b ServiceHealth) int {
		return cmp.Or(cmp.Compare(b.Level.Rank(), a.Level.Rank()), a.Since.Compare(b.Since), cmp.Compare(a.Service, b.Service))
	})
	slices.SortFunc(h.Problems, compareItems)
	if len(h.Services)+len(h.Problems) > 0 {
		h.Level = LevelDegraded
	}
	if o.Blocked != nil {
		h.Level, h.Reason, h.Error, h.Since, h.NextTry = LevelDown, o.Reason, o.Blocked.Error(), o.Since.UTC(), o.NextTry.UTC()
		if o.Reason == "store" || o.Reason == "disk" {
			h.Do = remedy.Of(o.Reason, o.Blocked) + resumes
		} else if h.Do = remedies[o.Reason]; h.Do == "" {
			h.Do = "see the log of the process"
		}
	}
	return h
}

// resumes follows a remedy after which no command is needed.
const resumes = "; the process resumes by itself"

// Remedies of the reasons that block a process. All but superseded end without an operator.
var remedies = map[string]string{
	"starting":   "wait; its log says what for",
	"superseded": "start it with the active configuration, or with --activate to roll back to this one",
	"halted":     "remove the cause of the error" + resumes,
	"topic":      "bring the topic's brokers back, or give it as many replicas as it wants" + resumes,
}

// obstacle returns why the progress of queues is unknown: the server that knows is
// unreachable. Empty when it is known.
func (h *Health) obstacle() string {
	switch h.Reason {
	case "store", "disk", "topic", "superseded", "starting":
		return h.Error
	}
	for _, p := range h.Problems {
		if p.What == "kafka" || p.What == "store" {
			return p.What + " is unreachable: " + p.Why
		}
	}
	return ""
}

func serviceHealth(name string, c deliver.Condition, now time.Time) ServiceHealth {
	s := ServiceHealth{Service: name, Level: LevelOK, State: c.State, Refused: c.Refused, Parked: int64(c.Parked.Rows), Since: c.Since.UTC(), NextTry: c.NextTry.UTC(), Error: c.Error}
	do := "correct what the target's answer names, or ask its operator"
	if c.Failure != nil {
		do = remedy.Of(name, c.Failure)
	}
	if c.Pause != nil {
		s.Cause = c.Pause.Cause
	}
	switch {
	case s.Cause == deliver.PausedByGuard:
		s.Hold = &Held{Service: name, Since: s.Since, Why: c.Pause.Reason, Hold: *c.Pause.Hold}
		s.Level, s.Error = LevelDown, "held by the guard: "+c.Pause.Reason
		s.Do = fmt.Sprintf("weir guard show %[1]s shows samples; then weir guard release %[1]s, weir guard discard %[1]s or weir guard extend %[1]s; queued changes are kept", name)
	case s.Cause == deliver.PausedByOperator:
		s.Level, s.Do = LevelDegraded, fmt.Sprintf("when its customer is ready: weir resume %s; queued changes are kept", name)
		if s.Error = "paused by " + c.Pause.Actor; c.Pause.Reason != "" {
			s.Error += ": " + c.Pause.Reason
		}
	case s.Cause == deliver.PausedByRefusal:
		s.Level, s.Do = LevelDown, do+"; retried automatically"
	case c.State == deliver.StateRetrying:
		if s.Level, s.Do = LevelDegraded, do+"; retried automatically"; now.Sub(c.Since) >= longAway {
			s.Level = LevelDown
		}
	case c.Parked.Full:
		s.NextTry = c.Parked.Next.UTC()
		s.Level, s.Since, s.Error = LevelDown, c.Parked.Oldest.UTC(), fmt.Sprintf("%d entities fail, and no more are set aside: %s", c.Parked.Entities, c.Parked.Error)
		s.Do = fmt.Sprintf("correct what the target's answers name (weir dlq list --state retrying --service %s), or discard those changes", name)
	case c.Refused >= manyRefused:
		s.Level, s.Do = LevelDown, fmt.Sprintf("%s; every change was refused since: weir dlq list --service %s", do, name)
	case c.Refused > 0:
		s.Level, s.Do = LevelDegraded, fmt.Sprintf("%s; then weir dlq replay --all --yes --service %s", do, name)
	}
	return s
}
