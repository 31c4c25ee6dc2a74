package store

import "errors"

// Errors that a caller can act on. Compare with errors.Is.
var (
	// ErrFenced: another owner, a restore, or this owner's own commit of unknown
	// outcome moved the watermark or a dam row. Nothing was written.
	ErrFenced = errors.New("fenced: another process moved the partition's state")
	// ErrSuperseded: another configuration revision is active. Nothing was written.
	ErrSuperseded = errors.New("superseded: another configuration revision is active")
	// ErrRepartitioned: the inbox topic has another number of partitions than it was opened with.
	ErrRepartitioned = errors.New("the inbox topic was re-partitioned")
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrSchema: the tables have another schema than this build's.
	ErrSchema = errors.New("the state tables are of another version")
)

// Class is a caller's reaction to an error of the store.
type Class int

const (
	// Retry: the same may succeed later (connection, serialization, dead-lock,
	// resources, disk full, a cancelled context). Of Decide nothing was written; of
	// every other method something may have been, and calling it again does no harm.
	Retry Class = iota
	// Poison: nothing was written and the same never succeeds: a value that the
	// database cannot hold. Bisect the batch; the row that remains is a dead letter.
	Poison
	// Unknown: it may or may not have been written (connection lost, or a failed
	// sync, during commit). After Decide take over again; any other method is called
	// again as after Retry.
	Unknown
	// Fenced: ErrFenced.
	Fenced
	// Superseded: ErrSuperseded.
	Superseded
	// Fatal: a bug or wrong set-up (missing table, no permission). Halt, stay
	// alive, not ready, try again slowly.
	Fatal
)

// classed carries a class beside an error.
type classed struct {
	class Class
	err   error
}

func (c *classed) Error() string { return c.err.Error() }
func (c *classed) Unwrap() error { return c.err }

// WithClass wraps err so that ClassOf answers c. For implementations.
func WithClass(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &classed{class: c, err: err}
}

// ClassOf sorts an error of a Store. An error that no implementation classified
// is Retry, which loses nothing.
func ClassOf(err error) Class {
	switch {
	case errors.Is(err, ErrFenced):
		return Fenced
	case errors.Is(err, ErrSuperseded):
		return Superseded
	}
	var c *classed
	if errors.As(err, &c) {
		return c.class
	}
	return Retry
}
