package sinks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// Kind is the content of a target.
type Kind string

const (
	// State sinks hold the newest document of each entity. Deliver may leave out a change if a
	// newer one is queued.
	State Kind = "state"
	// Log sinks hold every change, in order per entity.
	Log Kind = "log"
)

// Traits tell deliver how to feed a sink. They do not change after Open.
type Traits struct {
	Kind Kind
	// MaxBatch is the most changes that one Write takes, at least 1.
	MaxBatch int
	// MaxBytes bounds the sum of documents in one Write, in bytes; 0 is no bound.
	// A single change above it is still handed over, alone.
	MaxBytes int
	// Linger is how long deliver may wait to fill a batch; 0 does not wait.
	Linger time.Duration
	// Guarded says that the target itself turns away repetitions and older
	// versions. Deliver then need not look into the dam before a first attempt.
	Guarded bool
	// Exclusive says that one process at a time can hold the target. Deliver closes the sink
	// when it loses its last partition, and may open it again.
	Exclusive bool
}

// Sink writes changes to one target of one service. Deliver calls Open until it succeeds, then
// Write from one goroutine at a time, then Close once. A sink never retries. Deliver does, after
// Error.Await, and checks before each further attempt that a change is still worth sending.
type Sink interface {
	// Open connects and checks the target, creating it where the sink's
	// configuration allows that. It may be called again after an error.
	Open(ctx context.Context) error

	// Write makes the changes durable in the target and returns nil when every one of them took
	// effect or was a no-op there. Changes of one entity have ascending versions. The sink keeps
	// that order. One change may be repeated (same key, version and bytes) and may come after a
	// newer one: for a State sink neither may have an effect. A Log sink skips a known key.
	//
	// An error that is a *BatchError names the failed changes, and all others
	// took effect. Any other error holds for the whole batch: none may be
	// assumed to have taken effect, any may have. Errors are *Error where the
	// sink knows more. Write returns soon after ctx is cancelled.
	Write(ctx context.Context, changes []change.Change) error

	// Traits may be called at any time after New.
	Traits() Traits

	// Close releases the target. Nothing is buffered between Writes, so
	// nothing is lost by it. It may be called without Open.
	Close() error
}

// Class says what deliver does about a failure.
type Class int

const (
	// Retry: not now. The target is unreachable, busy, asks to wait or answers with an error.
	// After the configured time an answered change is a dead letter; see Error.Unreachable.
	Retry Class = iota
	// RetryBounded: the same for deliver. It may be the failure of one change of a batch (a
	// server error for one document), which a sink with large writes searches.
	RetryBounded
	// Reject: this change is refused for its content and had no effect; a dead letter.
	Reject
	// Pause: the service as a whole is refused (401, 403, missing table,
	// mismatch); stop sending, tell the operator, probe periodically.
	Pause
)

// String returns the class's word for logs and metrics.
func (c Class) String() string {
	switch c {
	case Retry:
		return "retry"
	case RetryBounded:
		return "retry_bounded"
	case Reject:
		return "reject"
	case Pause:
		return "pause"
	}
	return fmt.Sprintf("class(%d)", int(c))
}

// Error is a failure that a sink has classified. Its text holds no payload
// and no secret.
type Error struct {
	Class Class
	// Ambiguous: the change may have taken effect all the same (a time-out, a
	// connection lost after sending).
	Ambiguous bool
	// RetryAfter is how long the target asked to wait, already capped, 0 when it did not.
	RetryAfter time.Duration
	// Unreachable: the target takes no connection or no work at all, so the failure says
	// nothing about the changes. Never set where something was sent and may be the cause.
	Unreachable bool
	Op          string // what was tried: "insert", "post", …
	Hint        string // remedy for an operator, may be empty
	Err         error

	await func(context.Context) bool // of a target that is down, see Await
	due   func() time.Time           // of the next attempt at it
	// report is of a target that is down, see Reports.
	report func(now time.Time) (failures int, first, due bool)
}

// Words returns the attempted operation and the cause, in the target's own words if it
// answered, without the hint.
func (e *Error) Words() string { return e.Op + ": " + e.Err.Error() }

// Error returns the attempted operation, the cause and the hint.
func (e *Error) Error() string {
	s := e.Words()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// BatchError says which changes of a Write failed. All others took effect.
type BatchError struct {
	// Failed maps the index in the batch to its failure. Never empty.
	Failed map[int]error
}

// Error returns the number of failed changes and one of the failures.
func (e *BatchError) Error() string {
	for i, err := range e.Failed {
		return fmt.Sprintf("%d changes of the batch failed, one of them [%d]: %v", len(e.Failed), i, err)
	}
	return "no change failed"
}

// ErrNotAttempted is in the chain of the failure of a change that was not sent
// because an earlier one had failed.
var ErrNotAttempted = errors.New("not attempted")

// Attempted reports whether an attempt was made.
func (e *Error) Attempted() bool { return !errors.Is(e, ErrNotAttempted) && !errors.Is(e, ErrDown) }

// Classify returns the *Error in err's chain. An error that no sink classified counts as Retry
// and ambiguous, which loses nothing.
func Classify(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Class: Retry, Ambiguous: true, Op: "write", Err: err}
}
