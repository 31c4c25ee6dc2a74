// Package batch writes a batch of changes in statements, or requests, that the target
// takes, and finds the changes behind a refusal.
//
// A statement fails for one row (a constraint), for its size (memory, a time-out), or for
// the state of the server. [Writer] splits it in the first two cases, for any class of
// error, so that only the row to blame fails. Before it splits a statement that was
// too much, it writes one row alone: if two of these fail alike and nothing else
// succeeded, the server is to blame, and the whole Write fails.
package batch

import (
	"cmp"
	"context"
	"errors"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// Row is one change of a Write.
type Row struct {
	Index int // in the Write
	*change.Change
	Values []any // converted; of the sink
}

// MinWhole is how many changes must be refused alike for a refusal of the service as a
// whole.
const MinWhole = 21

const (
	// parts is into how many a statement is split: as many statements as halves need,
	// on half as many levels, each of which may take a time-out.
	parts         = 4
	defaultProbes = 200
	// maxTooMuch bounds the statements per Write that were too much.
	maxTooMuch = 16
	// MaxBlamed bounds the rows per Write that Writer.Blame is called with.
	MaxBlamed = 100
)

var errTooMuch = errors.New("more than the server does in one statement")

// tooMuch is an error in its own words that is also errTooMuch.
type tooMuch struct{ error }

func (t tooMuch) Unwrap() []error { return []error{t.error, errTooMuch} }

// TooMuch marks a failure that a smaller statement may not have: of memory, size or time.
func TooMuch(e *sinks.Error) *sinks.Error {
	e.Err = tooMuch{e.Err}
	return e
}

// Writer makes the statements, or requests, of one Write.
type Writer struct {
	// Insert writes rows in one transaction. It returns nil when they took effect.
	Insert func(ctx context.Context, rows []Row) *sinks.Error
	// Blame, if any, adds to the refusal of a single row.
	Blame func(ctx context.Context, row Row, e *sinks.Error)
	// Ordered: after a failure that is no refusal, the later rows of the entity wait.
	Ordered bool
	// Most is how many rows one statement may have. It falls when a statement is too
	// much for the server and not for a single row.
	Most int
	// Probes bounds the statements that look for the rows behind an error that may be the
	// server's own. Defaults to 200.
	Probes int

	rows      int // of the Write
	failed    map[int]error
	held      map[string]bool // entities whose later rows wait
	whole     int             // Most before the first statement that was too much
	probes    int
	slow      int
	alone     int // single rows that were too much before anything succeeded
	blamed    int
	succeeded bool
}

// Fail records that a row has failed before it was sent.
func (w *Writer) Fail(index int, e *sinks.Error) {
	if w.failed == nil {
		w.failed = map[int]error{}
	}
	w.failed[index] = e
}

// Failed reports whether the row with that index has failed.
func (w *Writer) Failed(index int) bool { return w.failed[index] != nil }

// FailRow records that a row failed, independently of others.
func (w *Writer) FailRow(r Row, e *sinks.Error) {
	if w.Ordered && e.Class != sinks.Reject {
		if w.held == nil {
			w.held = map[string]bool{}
		}
		w.held[r.Entity] = true
	}
	w.Fail(r.Index, e)
}

// Rounds cuts rows into rounds with at most one row of each entity. The second one of an entity
// is in the second round.
func Rounds(rows []Row) [][]Row {
	var rounds [][]Row
	seen := make(map[string]int, len(rows))
	for _, r := range rows {
		n := seen[r.Entity]
		seen[r.Entity]++
		if n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], r)
	}
	return rounds
}

// Write writes rows. An error holds for all of them; failures of single rows are in
// Result.
func (w *Writer) Write(ctx context.Context, rows []Row) error {
	w.rows, w.whole, w.Probes = len(rows), w.Most, cmp.Or(w.Probes, defaultProbes)
	for len(rows) > 0 {
		n := min(w.Most, len(rows))
		if e := w.split(ctx, rows[:n]); e != nil {
			return e
		}
		rows = rows[n:]
	}
	return nil
}

// split writes rows, in smaller statements where the server does not take them.
func (w *Writer) split(ctx context.Context, rows []Row) *sinks.Error {
	if rows = w.skipHeld(rows); len(rows) == 0 {
		return nil
	}
	e := w.Insert(ctx, rows)
	if e == nil {
		w.succeeded = true
		return nil
	}
	much := errors.Is(e, errTooMuch)
	switch {
	case ctx.Err() != nil:
		return e
	case much:
		w.slow++
		w.Most = max(1, len(rows)/parts)
		if w.slow > maxTooMuch {
			return asWhole(e)
		}
	case e.Class == sinks.RetryBounded:
		if w.probes++; w.probes > w.Probes {
			return e
		}
	case e.Class != sinks.Reject:
		return e
	}
	if len(rows) == 1 {
		return w.blame(ctx, rows[0], e, much)
	}
	if much && !w.succeeded {
		if e := w.split(ctx, rows[:1]); e != nil {
			return e
		}
		rows = rows[1:]
	}
	size := (len(rows) + parts - 1) / parts
	for len(rows) > 0 {
		n := min(size, len(rows), w.Most) // a part before may have been too much
		if e := w.split(ctx, rows[:n]); e != nil {
			return e
		}
		rows = rows[n:]
	}
	return nil
}

// blame records the failure of a single row. It returns an error if the server is to
// blame instead.
func (w *Writer) blame(ctx context.Context, r Row, e *sinks.Error, much bool) *sinks.Error {
	if much {
		if !w.succeeded {
			w.alone++
			switch {
			case w.rows == 1:
				return e
			case w.alone == 2:
				return asWhole(e)
			}
		}
		w.Most = w.whole // this row alone took the time
	}
	if w.blamed++; w.Blame != nil && w.blamed <= MaxBlamed {
		w.Blame(ctx, r, e)
	}
	w.FailRow(r, e)
	return nil
}

// skipHeld fails the rows whose entity has an earlier row that failed.
func (w *Writer) skipHeld(rows []Row) []Row {
	if len(w.held) == 0 {
		return rows
	}
	rest := make([]Row, 0, len(rows))
	for _, r := range rows {
		if w.held[r.Entity] {
			w.Fail(r.Index, &sinks.Error{Class: sinks.Retry, Op: "insert", Err: sinks.ErrNotAttempted})
			continue
		}
		rest = append(rest, r)
	}
	return rest
}

// asWhole is a failure of single statements that says something about the server.
func asWhole(e *sinks.Error) *sinks.Error {
	whole := *e
	whole.Class = sinks.Retry
	return &whole
}

// Result returns the error of a Write of n changes whose Write here returned nil. Reason
// tells refusals of the server apart, as by a constraint, with a hint, "" for others: when
// at least MinWhole changes come and every one is refused for the same reason, the table
// is to blame, and the error has class Pause: dead letters without end would help no one.
func (w *Writer) Result(n int, reason func(error) (same, hint string)) error {
	if len(w.failed) == 0 {
		return nil
	}
	if len(w.failed) == n && n >= MinWhole {
		if e := refusedAlike(w.failed, reason); e != nil {
			return e
		}
	}
	return &sinks.BatchError{Failed: w.failed}
}

func refusedAlike(failed map[int]error, reason func(error) (same, hint string)) *sinks.Error {
	common, whole := "", (*sinks.Error)(nil)
	for _, err := range failed {
		e := sinks.Classify(err)
		same, hint := reason(err)
		if e.Class != sinks.Reject || same == "" || whole != nil && same != common {
			return nil
		}
		if hint == "" {
			hint = "the table refuses every change alike; was it altered?"
		}
		common, whole = same, &sinks.Error{Class: sinks.Pause, Op: "insert", Hint: hint, Err: e.Err}
	}
	return whole
}
