package events

import (
	"errors"
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/problem"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/store"
)

// Status is what became of one event.
type Status string

// Statuses.
const (
	Accepted    Status = "accepted"    // durable in the inbox
	Duplicate   Status = "duplicate"   // accepted before under the same key
	Skipped     Status = "skipped"     // about no entity, such as a heartbeat of Debezium
	Invalid     Status = "invalid"     // refused; nothing of it was taken in
	Conflicting Status = "conflicting" // another event was accepted under the key
)

// Result is the answer to one event, and a row of the answer to a batch.
type Result struct {
	// Index is the event's place in its batch, from 0; absent for a single event.
	Index *int `json:"index,omitempty"`
	// ID names the claim of the event's key; absent where there is no key.
	ID      string `json:"id,omitempty"`
	EventID string `json:"event_id,omitempty"`
	Entity  string `json:"entity,omitempty"`
	Status  Status `json:"status"`
	Reason  string `json:"reason,omitempty"`
	// Fingerprint of this event, and of the first one under the key, in hex,
	// where they conflict.
	Fingerprint string `json:"fingerprint,omitempty"`
	Stored      string `json:"stored_fingerprint,omitempty"`
	// Origin names the row of a file that the event is, see Row.
	Origin string `json:"origin,omitempty"`
	// Refusal says why an event is invalid.
	Refusal *ingest.Refusal `json:"-"`
}

// Results is the answer to a batch.
type Results struct {
	Rows []Result `json:"rows"`
}

// ReplayedHeader says that an answer is the stored one of an earlier request.
const ReplayedHeader = "Idempotency-Replayed"

// write answers a request whose events were taken, or says why not.
func write(w http.ResponseWriter, answer store.Response, replayed bool, err error) {
	if err != nil {
		if _, again := errors.AsType[*lostError](err); again {
			api.RetryAfter(w, time.Second)
		}
		problem.Write(w, problemOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if replayed {
		w.Header().Set(ReplayedHeader, "true")
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body)
}

// problemOf describes the errors of takeOne and takeBatch. A refused event has 400 where it
// cannot be read, 413 where it is too large, else 422.
func problemOf(err error) problem.Problem {
	if r, ok := errors.AsType[*ingest.Refusal](err); ok {
		status := http.StatusUnprocessableEntity
		switch r.Code {
		case ingest.BadJSON:
			status = http.StatusBadRequest
		case ingest.Oversized:
			status = http.StatusRequestEntityTooLarge
		}
		return problem.Problem{
			Type: problem.Kind("invalid-event"), Title: "The event is refused", Status: status,
			Detail: r.Reason, Extensions: map[string]any{"code": r.Code},
		}
	}
	if c, ok := errors.AsType[*conflictError](err); ok {
		return problem.Problem{
			Type: problem.Kind("key-conflict"), Title: "The key belongs to another request", Status: http.StatusUnprocessableEntity,
			Detail:     c.Error(),
			Extensions: map[string]any{"fingerprint": c.given, "stored_fingerprint": c.stored},
		}
	}
	return problem.Problem{
		Type: problem.Kind("not-durable"), Title: "Not durable yet", Status: http.StatusServiceUnavailable,
		Detail: err.Error() + "; send the request again",
	}
}

func answerProblem(w http.ResponseWriter, status int, detail string) {
	problem.Write(w, problem.Problem{Status: status, Detail: detail})
}
