package events

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/parallel"
	"github.com/seed-86dfc502/weir/store"
)

// once lets each key have its effect once. do gets the ledger's entries of the keys, has the
// effects of open ones, each under the id of its claim, and returns answers to those that
// are durable. Several requests with one key, at the same time or after one that died,
// have the same claim: decide lets one effect through. once returns the first answer that
// was stored of each, in the order of do's; it is the same for all requests.
func (l ledger) once(ctx context.Context, tenant string, keys []store.ClaimRequest, do func([]store.ClaimResult) ([]store.Completion, error)) ([]store.Response, error) {
	var found []store.ClaimResult
	if len(keys) > 0 {
		var err error
		found, err = l.begins.call(ctx, tenant, keys)
		if err = l.answered(err); err != nil {
			return nil, err
		}
	}
	done, err := do(found)
	if err != nil || len(done) == 0 {
		return nil, err
	}
	answers, err := l.completes.call(ctx, tenant, done)
	return answers, l.answered(err)
}

// take appends the events of rows and stores the answers to those with a key. Every row has
// a result then, or says why it is lost. An error is one of the ledger: no row has a
// result that counts.
func (h *Handler) take(ctx context.Context, tenant string, s *Source, rows []*row) error {
	var keyed, accepted []*row
	var keys []store.ClaimRequest
	for _, r := range rows {
		if r.event != nil && r.key != "" {
			keyed, keys = append(keyed, r), append(keys, store.ClaimRequest{Key: r.key, Fingerprint: r.event.Fingerprint()})
		}
	}
	answers, err := h.ledger.once(ctx, tenant, keys, func(found []store.ClaimResult) (done []store.Completion, err error) {
		first := make(map[store.ClaimID]*row, len(keyed))
		for i, r := range keyed {
			if r.applyClaim(found[i]); found[i].State == store.ClaimOpen {
				if r.first = first[r.claim]; r.first == nil {
					first[r.claim] = r
				}
			}
		}
		crash.At(crash.FrontBegun, s.Name)
		h.push(ctx, tenant, s, rows)
		crash.At(crash.FrontAppended, s.Name)
		for _, r := range keyed {
			if r.result.Status == Accepted && r.answer.Status == 0 {
				answer := r.result
				answer.Index = nil
				r.answer = store.Response{Status: http.StatusAccepted, Body: encode(answer)}
				accepted = append(accepted, r)
				done = append(done, store.Completion{ID: r.claim, Response: r.answer})
			}
		}
		return done, nil
	})
	for i, r := range accepted[:len(answers)] {
		if !bytes.Equal(r.answer.Body, answers[i].Body) {
			r.result.Status = Duplicate // of an event from elsewhere that was first
		}
		r.answer = answers[i]
	}
	for _, r := range rows {
		if r.first != nil {
			r.copyFirst()
		}
		h.metrics.count(s.Name, r.result.Status)
	}
	return err
}

// push appends the events of rows that have no result yet, in their order.
func (h *Handler) push(ctx context.Context, tenant string, s *Source, rows []*row) {
	var todo []*row
	var messages []*message.Message
	for _, r := range rows {
		if r.event == nil || r.first != nil || r.result.Status != "" {
			continue
		}
		if r.key != "" {
			r.event.WithClaim(r.claim, tenant, r.key, h.ledger.keep)
		}
		m := message.NewMessage("", r.value)
		m.Metadata = r.meta
		m.SetContext(ingest.WithPrepared(ctx, r.event))
		todo, messages = append(todo, r), append(messages, m)
	}
	for i, err := range s.Push.Push(ctx, messages...) {
		if r := todo[i]; err != nil {
			r.lost = err
		} else {
			r.result.Status = Accepted
		}
	}
}

// applyClaim sets the row to the ledger's entry of its key.
func (r *row) applyClaim(c store.ClaimResult) {
	r.claim = c.ID
	if c.State != store.ClaimConflict {
		r.result.ID = c.ID.String()
	}
	switch c.State {
	case store.ClaimDone:
		r.result.Status, r.answer = Duplicate, c.Response
		if r.result.Origin != "" && originOf(c.Response) == r.result.Origin {
			r.result.Status = Accepted // by an earlier attempt at this very row
		}
	case store.ClaimConflict:
		r.result.Status, r.result.Reason = Conflicting, "the key belongs to another event"
		if r.shared {
			r.result.Reason = sharedKey
		}
		r.result.Fingerprint, r.result.Stored = hexOf(r.event.Fingerprint()), hexOf(c.Fingerprint)
	}
}

// copyFirst copies the result of the first row with the same key.
func (r *row) copyFirst() {
	first := r.first
	r.lost, r.answer = first.lost, first.answer
	r.result.Status, r.result.Reason = first.result.Status, first.result.Reason
	if r.result.Status == Accepted {
		r.result.Status = Duplicate
	}
}

// takeOne takes the only event of a request and returns its answer; replayed says that it is
// the content of an earlier request. The error is an *ingest.Refusal, a *conflictError or a *lostError.
func (h *Handler) takeOne(ctx context.Context, tenant string, s *Source, one *row) (answer store.Response, replayed bool, err error) {
	if h.take(ctx, tenant, s, []*row{one}) != nil {
		return answer, false, errLedger
	}
	switch one.result.Status {
	case Invalid:
		return answer, false, one.result.Refusal
	case Conflicting:
		return answer, false, &conflictError{one.result.Fingerprint, one.result.Stored, one.shared}
	case Duplicate:
		return one.answer, true, nil
	case Accepted, Skipped:
		if one.key == "" || one.event == nil {
			one.answer = store.Response{Status: http.StatusAccepted, Body: encode(one.result)}
		}
		return one.answer, false, nil
	}
	return answer, false, &lostError{one.lost.Error()}
}

// takeBatch is takeOne for the rows of a batch; key is the batch's own, if it has one.
func (h *Handler) takeBatch(ctx context.Context, tenant string, s *Source, rows []*row, key string, fingerprint [32]byte) (answer store.Response, replayed bool, err error) {
	var keys []store.ClaimRequest
	if key != "" && slices.ContainsFunc(rows, func(r *row) bool { return r.event != nil }) {
		keys = append(keys, store.ClaimRequest{Key: requestKey(key), Fingerprint: fingerprint})
	}
	stored, err := h.ledger.once(ctx, tenant, keys, func(found []store.ClaimResult) (done []store.Completion, err error) {
		if len(found) > 0 && found[0].State == store.ClaimConflict {
			h.metrics.count(s.Name, Conflicting)
			return nil, &conflictError{given: hexOf(fingerprint), stored: hexOf(found[0].Fingerprint)}
		}
		if len(found) > 0 && found[0].State == store.ClaimDone {
			h.metrics.count(s.Name, Duplicate)
			answer, replayed = found[0].Response, true
			return nil, nil
		}
		if err := h.take(ctx, tenant, s, rows); err != nil {
			return nil, err
		}
		if answer, err = resultsOf(rows); err == nil && len(found) > 0 {
			done = append(done, store.Completion{ID: found[0].ID, Response: answer})
		}
		return done, err
	})
	_, conflict := errors.AsType[*conflictError](err)
	_, lost := errors.AsType[*lostError](err)
	switch {
	case err != nil && !conflict && !lost:
		err = errLedger
	case len(stored) > 0:
		answer = stored[0]
	}
	return answer, replayed, err
}

// conflictError says that a key belongs to other content, with both fingerprints in hex; shared,
// that it is the key of a CloudEvent.
type conflictError struct {
	given, stored string
	shared        bool
}

func (e *conflictError) Error() string {
	if e.shared {
		return sharedKey
	}
	return "an earlier request with this key asked for something else; send new content under a new key"
}

// lostError says that events of a request are not known to be durable.
type lostError struct{ text string }

func (e *lostError) Error() string { return e.text }

var errLedger = &lostError{"the ledger of idempotency keys did not answer in time"}

// resultsOf returns the answer to a batch whose rows were taken.
func resultsOf(rows []*row) (store.Response, error) {
	a := store.Response{Status: http.StatusAccepted}
	results := Results{Rows: make([]Result, len(rows))}
	var first error
	lost := 0
	for i, r := range rows {
		results.Rows[i] = r.result
		if r.lost != nil {
			if lost++; lost == 1 {
				first = r.lost
			}
		}
		switch r.result.Status {
		case Accepted, Duplicate, Skipped:
		default:
			a.Status = http.StatusMultiStatus
		}
	}
	if lost > 0 {
		return a, &lostError{fmt.Sprintf("%d of %d events are not known to be durable (%v); those that are count as duplicates then", lost, len(rows), first)}
	}
	a.Body = encode(results)
	return a, nil
}

// Row is an event that comes from a row of a file.
type Row struct {
	Value []byte
	// Origin names the row among all of all files. It is the key of an event without an id, and
	// tells a repetition of the row from another event with its id.
	Origin string
}

// Take ingests rows of a tenant and returns their results in their order: accepted rows
// are durable. Its error, with which nothing is known of a row, says that the same rows are to
// be ingested again: ledger or inbox failed. Rows that are accepted
// already stay so then, without a second effect.
func (h *Handler) Take(ctx context.Context, tenant string, s *Source, given []Row) ([]Result, error) {
	rows := make([]*row, len(given))
	parallel.Do(len(given), func(i int) {
		r := s.prepare(given[i].Value, s.headers(nil, nil), true, nil)
		if r.result.Origin = given[i].Origin; r.event != nil && r.key == "" {
			r.key = "import:" + given[i].Origin
		}
		rows[i] = r
	})
	if err := h.take(ctx, tenant, s, rows); err != nil {
		return nil, err
	}
	results := make([]Result, len(rows))
	for i, r := range rows {
		if r.lost != nil {
			return nil, r.lost
		}
		results[i] = r.result
	}
	return results, nil
}

func hexOf(fingerprint [32]byte) string { return hex.EncodeToString(fingerprint[:]) }

// originOf returns the origin in a stored answer, "" for an answer of a request.
func originOf(r store.Response) string {
	var stored Result
	if json.Unmarshal(r.Body, &stored) != nil {
		return ""
	}
	return stored.Origin
}

// encode returns the JSON of an answer; structs of this package always have one.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}
