package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
)

const (
	// maxBody bounds an array, as many receivers and proxies do. A single change above it
	// is an array of one.
	maxBody = 1 << 20
	// maxItem is how much of an answer is read for each change.
	maxItem = 1 << 10
	// arrayProbes bounds the requests per Write that look for the changes behind a server
	// error: enough for two of 1,000.
	arrayProbes = 40
)

// writeArrays posts the changes as arrays, one at a time. An array has at most one change
// of each entity: the receiver may take a later one where it fails an earlier one.
func (s *Sink) writeArrays(ctx context.Context, client *http.Client, changes []change.Change) error {
	receipts := sinks.ReceiptsOf(ctx)
	answered := map[int]bool{} // by index: accepted, or failed individually
	w := batch.Writer{Ordered: true, Most: s.most, Probes: arrayProbes}
	w.Insert = func(ctx context.Context, rows []batch.Row) *sinks.Error {
		e := s.postArray(ctx, client, rows, &w, receipts)
		for _, r := range rows {
			if e == nil {
				answered[r.Index] = true
			}
		}
		return e
	}
	rows := make([]batch.Row, len(changes))
	for i := range changes {
		rows[i] = batch.Row{Index: i, Change: &changes[i], Values: []any{changes[i].AppendRecord(nil)}}
	}
	for _, round := range batch.Rounds(rows) {
		for len(round) > 0 {
			n := fitting(round)
			err := w.Write(ctx, round[:n])
			s.most = w.Most
			if err != nil {
				return rest(&w, rows, answered, sinks.Classify(err))
			}
			round = round[n:]
		}
	}
	s.most = min(s.most+s.most/8+1, s.opts.BatchMax)
	return w.Result(len(changes), func(err error) (same, hint string) {
		if i, ok := errors.AsType[*itemError](err); ok {
			return fmt.Sprint(i.status), "the receiver refuses every change with the same status"
		}
		return "", ""
	})
}

// rest returns the error of a Write that e has ended. If some rows were answered, only the
// others are repeated.
func rest(w *batch.Writer, rows []batch.Row, answered map[int]bool, e *sinks.Error) error {
	if len(answered) == 0 {
		return e
	}
	left := slices.DeleteFunc(slices.Clone(rows), func(r batch.Row) bool { return answered[r.Index] || w.Failed(r.Index) })
	for _, r := range left {
		w.Fail(r.Index, &sinks.Error{Class: sinks.Retry, Ambiguous: e.Ambiguous, RetryAfter: e.RetryAfter, Op: e.Op,
			Err: fmt.Errorf("%w after %w", sinks.ErrNotAttempted, e.Err)})
	}
	return w.Result(len(rows), func(error) (same, hint string) { return "", "" })
}

// element is a row's part of the array.
func element(r batch.Row) []byte { return r.Values[0].([]byte) }

// fitting returns how many of rows one array holds, at least 1.
func fitting(rows []batch.Row) int {
	size := 2
	for n, r := range rows {
		if size += len(element(r)) + 1; n > 0 && size > maxBody {
			return n
		}
	}
	return len(rows)
}

// arrayID is the same for the same changes.
func arrayID(rows []batch.Row) string {
	h := sha256.New()
	for _, r := range rows {
		h.Write([]byte(r.Key)) // keys are of one length
	}
	return "batch_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// postArray posts rows as one array. Failures of single changes are in w.
func (s *Sink) postArray(ctx context.Context, client *http.Client, rows []batch.Row, w *batch.Writer, receipts []sinks.Receipt) *sinks.Error {
	items, docs := make([][]byte, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		items[i], docs[i] = element(r), r.Doc
	}
	m := message{
		id: arrayID(rows), body: joined(items), keep: maxAnswer + maxItem*len(rows),
		docs: func() []byte { return joined(docs) },
	}
	if len(rows) == 1 {
		m.trace = rows[0].Trace
	}
	a := s.post(ctx, client, m)
	results, e := a.results(rows)
	for i, r := range rows {
		if receipts == nil {
			break
		}
		receipts[r.Index] = a.receipt
		if len(results) > 0 {
			receipts[r.Index].Answer = sinks.Answer{Status: results[i].status, Body: results[i].body}
		}
	}
	if e != nil {
		return e
	}
	return s.failItems(a, rows, results, w)
}

// joined is a JSON array of items; empty ones are left out.
func joined(items [][]byte) []byte {
	items = append([][]byte(nil), items...)
	n := 0
	for _, item := range items {
		if len(item) > 0 {
			items[n] = item
			n++
		}
	}
	return append(append([]byte{'['}, bytes.Join(items[:n], []byte{','})...), ']')
}

// itemError is a receiver's answer to one change of an array.
type itemError struct {
	error
	status int
}

func (e *itemError) Unwrap() error { return e.error }

// failItems fails the rows that their results refuse. It returns an error if all of them
// say that the service as a whole is refused.
func (s *Sink) failItems(a answer, rows []batch.Row, results []result, w *batch.Writer) *sinks.Error {
	failures, taken, paused := make([]failure, len(results)), 0, 0
	for i, r := range results {
		failures[i] = statusFailure(r.status, a.wait, "")
		switch {
		case failures[i].err == nil:
			taken++
		case failures[i].err.Class == sinks.Pause:
			paused++
		}
	}
	for i, f := range failures {
		if f.err == nil {
			continue
		}
		f = statusFailure(results[i].status, a.wait, a.mask(results[i].words()))
		if paused == len(results) {
			return f.err
		}
		f.err.Err = &itemError{f.err.Err, results[i].status}
		if f.err.Class == sinks.Pause {
			f.err.Class, f.err.Hint = sinks.Reject, ""
		}
		if taken > 0 && f.doubt { // the receiver works
			f.err.Class = sinks.RetryBounded
		}
		w.FailRow(rows[i], f.err)
	}
	return nil
}
