package plan

import "encoding/json"

// Effect is the previewed effect of a candidate. Its JSON form is the output of the command with
// --json.
type Effect struct {
	// Active: the candidate decides as the active configuration does. Where sinks
	// send to is no part of that.
	Active bool `json:"active"`
	// Compared: the configuration that samples are compared with was given.
	Compared bool  `json:"compared"`
	Entities int64 `json:"entities"` // stored ones
	// Failed counts the entities, of all services, that cannot be decided under the candidate.
	Failed    int64     `json:"failed,omitempty"`
	FailedIDs []string  `json:"failed_ids,omitempty"`
	Services  []Service `json:"services"` // in the order of the candidate, then removed ones
	Notes     []string  `json:"notes,omitempty"`
}

// State of a service between the stored state and the candidate.
type State string

// The states.
const (
	Kept    State = "kept"    // the state knows it
	New     State = "new"     // nothing was ever decided for it
	Removed State = "removed" // the candidate no longer has it
)

// Service is the effect on one service, in entities.
type Service struct {
	Service string `json:"service"`
	Renamed string `json:"renamed,omitempty"` // its name in the candidate, after a rename
	State   State  `json:"state"`
	Send    int64  `json:"send"`    // an upsert would be sent
	Retract int64  `json:"retract"` // a retraction would be sent
	// Anyway counts the changes of Send and Retract that the compared configuration would send as
	// well, after a reset for instance. NewlyHeld counts those that only the compared
	// configuration would send. Both are absent without one.
	Anyway    *int64 `json:"anyway,omitempty"`
	NewlyHeld *int64 `json:"newly_held_back,omitempty"`
	Unchanged int64  `json:"unchanged"` // equal to what the service has
	Nothing   int64  `json:"nothing"`   // not shown to this service, and never was
	Fail      int64  `json:"fail"`      // would become dead letters
	// Keeps are entities that the customer of a removed service keeps a copy of:
	// nothing is retracted.
	Keeps   int64    `json:"keeps,omitempty"`
	Samples []Sample `json:"samples,omitempty"`
}

// Sample is one entity that would be sent or retracted.
type Sample struct {
	Entity string          `json:"entity"`
	Op     string          `json:"op"`
	After  json.RawMessage `json:"after,omitempty"` // absent on a retraction
	// Before is its document under the compared configuration. Exact: by the hash, that
	// document was sent last. Older: another one was sent last. Neither: the one sent last is
	// the same by the projection's rules of sameness.
	Before json.RawMessage `json:"before,omitempty"`
	Exact  bool            `json:"exact,omitempty"`
	Older  bool            `json:"older,omitempty"`
	Diff   []Difference    `json:"diff,omitempty"`
	More   int             `json:"more_differences,omitempty"` // left out
}

// Difference is one path at which two documents differ.
type Difference struct {
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"` // absent: it is new
	After  json.RawMessage `json:"after,omitempty"`  // absent: it goes away
}

// Changes counts the effects of the candidate itself: sends, retractions and
// dead letters, without those that would come anyway.
func (e *Effect) Changes() int64 {
	n := e.Failed
	for _, s := range e.Services {
		n += s.Send + s.Retract + s.Fail
		if s.Anyway != nil {
			n -= *s.Anyway
		}
	}
	return n
}
