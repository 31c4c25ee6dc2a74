package store

import (
	"context"
	"time"
)

// Operations serve operators' commands, beside the methods of the stages. Nothing in it decides:
// control records request decisions. Every write of an operator leaves an audit row in the same
// transaction. The rules of Store for concurrency, errors and values hold.
type Operations interface {
	// ServiceRows pages through the dam rows of one service in ascending byte
	// order of their entities: those after the given one.
	ServiceRows(ctx context.Context, service int32, after string, limit int) ([]Row, error)
	// ServiceCheckRows pages like ServiceRows through the rows of a check service.
	ServiceCheckRows(ctx context.Context, service int32, after string, limit int) ([]CheckRow, error)
	// AddAudits records operators' actions.
	AddAudits(ctx context.Context, audits []Audit) error
	// EditDeadLetter replaces the payload seen of an open dead letter; the first one
	// stays as Original. ErrNotFound when there is no such letter, it is not open, or
	// its payload is another one.
	EditDeadLetter(ctx context.Context, id int64, seen, payload []byte, audit Audit) error
	// MoveLetters takes the letters of ids that are in state from to state to, and tells
	// how many these were. The audit row is written when there is at least one.
	MoveLetters(ctx context.Context, ids []int64, from, to LetterState, audit Audit) (int, error)
	// ForgetServices deletes services that no configuration has, with their dead letters,
	// attempts, rows of check services, positions and marks; the next activation deletes those
	// that only these positions kept. Their numbers are never used again. Owners of partitions that lose a
	// position take them over again. Repeated, it does no harm.
	ForgetServices(ctx context.Context, services map[string]int32, audit Audit) error
	// ForgetStates deletes the dam states of forgotten services in up to limit entities after
	// the given one. It returns the last of them, "" if no more follow, and how many states
	// these were. An owner that has an entity in its cache may write its states once more;
	// nothing reads them.
	ForgetStates(ctx context.Context, services []int32, after string, limit int) (last string, dropped int64, err error)
	// LettersByKey pages through the letters with a DedupKey behind after and up to last, in its
	// order, without Payload and Original.
	LettersByKey(ctx context.Context, after, last string, limit int) ([]DeadLetter, error)
}

// JobState is how far a job is.
type JobState string

// The states of a job.
const (
	JobOpen JobState = "open" // under way, or cut off and to be resumed
	JobDone JobState = "done"
)

// Job is a long operation of an operator that resumes after a kill where its
// cursor is.
type Job struct {
	ID     int64  // given by the store
	Tenant string // empty for the operators'
	Kind   string // replay, import, …
	// Key tells an open job from others of its kind: the same Tenant, Kind and Key is the
	// same work. Never empty.
	Key        string
	Parameters []byte // JSON object, for display and for resuming
	Cursor     []byte // opaque to the store, nil at the start
	Done       int64  // units of work behind the cursor
	Total      int64  // units in all; 0 when that is not known
	State      JobState
	Actor      string
	Created    time.Time // given by the store
	Updated    time.Time // given by the store
	// Epoch counts how often it was opened and saved; only who did so last may save it.
	Epoch int64
}

// JobFilter selects jobs of a tenant. Empty fields except Tenant select all.
type JobFilter struct {
	Tenant, Kind, Key string
	State             JobState
	Before            int64 // only those with lower ids; 0: all
	Limit             int
}

// Jobs keeps them. A tenant sees its own. Prune removes finished ones, together with audit
// rows, and those of tenants without progress.
type Jobs interface {
	// OpenJob returns the open job of j's Tenant, Kind and Key, for the caller to go on
	// with, or makes one from j. Either way the caller has the turn now.
	OpenJob(ctx context.Context, j Job) (Job, error)
	// SaveJob writes Cursor, Done, Total and State, adds letters in the same transaction and
	// raises j.Epoch. ErrFenced when another caller opened or saved the job, or it was finished.
	SaveJob(ctx context.Context, j *Job, letters ...DeadLetter) error
	// ListJobs returns jobs, the latest first.
	ListJobs(ctx context.Context, f JobFilter) ([]Job, error)
}
