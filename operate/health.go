package operate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
)

// Level says how a process, or a service in it, is doing.
type Level string

// The levels, from the best to the worst.
const (
	LevelOK       Level = "ok"
	LevelDegraded Level = "degraded" // it works; of a process: a service does not
	LevelDown     Level = "down"     // it does not do its work
)

// Health is how a process and its services are doing.
type Health struct {
	Level Level `json:"level"`
	// Error says what keeps the process from its work, Do what to do about it; both
	// are empty unless the level is down.
	Error string `json:"error,omitempty"`
	Do    string `json:"do,omitempty"`
	// Services are those that are not well, the worst first, and of these the one
	// that has been so for longest.
	Services []ServiceHealth `json:"services,omitempty"`
}

// ServiceHealth is how the delivery of a service is doing.
type ServiceHealth struct {
	Service string        `json:"service"`
	Level   Level         `json:"level"`
	State   deliver.State `json:"state"`
	// Refused is how many changes the target refused since it took one.
	Refused int64     `json:"refused,omitempty"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error"`
	Do      string    `json:"do"`
}

// What makes a service that is not well one that is down.
const (
	manyRefused = 3               // changes in a row
	longAway    = 5 * time.Minute // of a target
)

// HealthOf judges what is known of a process: what keeps it from its work, by the
// word for it, and the conditions of its services.
func HealthOf(reason string, blocked error, conditions map[string]deliver.Condition, now time.Time) Health {
	h := Health{Level: LevelOK}
	for name, c := range conditions {
		if s := serviceHealth(name, c, now); s.Level != LevelOK {
			h.Level = LevelDegraded
			h.Services = append(h.Services, s)
		}
	}
	slices.SortFunc(h.Services, func(a, b ServiceHealth) int {
		return cmp.Or(cmp.Compare(b.Level.Rank(), a.Level.Rank()), a.Since.Compare(b.Since), cmp.Compare(a.Service, b.Service))
	})
	if blocked != nil {
		h.Level, h.Error, h.Do = LevelDown, blocked.Error(), remedies[reason]
		if h.Do == "" {
			h.Do = "see the log of the process"
		}
	}
	return h
}

// Rank orders levels: 0 ok, 1 degraded, 2 down.
func (l Level) Rank() int { return slices.Index([]Level{LevelOK, LevelDegraded, LevelDown}, l) }

// remedies are what to do about what keeps a process from its work.
var remedies = map[string]string{
	"starting":   "wait; its log says what for",
	"superseded": "start it with the active configuration, or with --activate to go back to this one",
	"store":      "bring the store back; the process goes on by itself",
	"disk":       "make room on the disk of store.sqlite.path; the process goes on by itself",
	"halted":     "see the error: when its cause is gone the process goes on by itself",
	"topic":      "bring the brokers of the topic back, or give it as many replicas as it wants; the process goes on by itself",
	"source":     "bring the database or the topic of the source back; the process goes on by itself",
}

func serviceHealth(name string, c deliver.Condition, now time.Time) ServiceHealth {
	s := ServiceHealth{Service: name, Level: LevelOK, State: c.State, Refused: c.Refused, Since: c.Since.UTC(), Error: c.Error}
	away := now.Sub(c.Since) >= longAway
	switch {
	case c.State == deliver.StateSuspended:
		s.Level, s.Do = LevelDegraded, fmt.Sprintf("when its customer is ready: weir resume %s; what waits is kept", name)
		if s.Error = "paused by " + c.Suspended.By; c.Suspended.Why != "" {
			s.Error += ": " + c.Suspended.Why
		}
	case c.State == deliver.StatePaused:
		s.Level, s.Do = LevelDown, "the target refuses the service as a whole: check address, credentials and rights (weir doctor); it is tried again by itself"
	case c.State == deliver.StateRetrying && away:
		s.Level, s.Do = LevelDown, "bring the target back, or correct its address; it is tried again by itself"
	case c.State == deliver.StateRetrying:
		s.Level, s.Do = LevelDegraded, "nothing, if the target comes back: it is tried again by itself"
	case c.Refused >= manyRefused:
		s.Level, s.Do = LevelDown, fmt.Sprintf("nothing was taken since: see what the target says to its documents, weir dlq list --service %s", name)
	case c.Refused > 0:
		s.Level, s.Do = LevelDegraded, fmt.Sprintf("look at its dead letters: weir dlq list --service %s", name)
	}
	return s
}
