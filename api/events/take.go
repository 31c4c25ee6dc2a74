package events

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// row is one event of a request, and what becomes of it.
type row struct {
	value  []byte
	meta   message.Metadata
	event  *ingest.Prepared // nil when it is refused or skipped
	key    string           // "" when it has none
	shared bool             // the key is of a CloudEvent's source and id
	result Result

	claimed store.ClaimResult // of a row with a key
	answer  store.Response    // of an accepted row or a duplicate, with a key
	first   *row              // an earlier row of the request with the same key and content
	lost    error             // why it is not known to be durable
}

// prepare takes the row's event apart; index is absent for a single event. Keyed says
// that the request has a key, which covers the row.
func (s *Source) prepare(value []byte, meta message.Metadata, index *int, keyed bool, wrong error) *row {
	r := &row{value: value, meta: meta, result: Result{Index: index}}
	if wrong != nil {
		r.refuse(wrong)
		return r
	}
	shape := s.Extractor
	if r.shared = meta[ceIdentity] != "" && shape.EventID == (ingest.Locator{}); r.shared {
		shape.EventID = ingest.Locator{Header: ceIdentity}
	}
	if value == nil && (shape.Format == "" || shape.Format == ingest.JSON) && !shape.IsDelete(meta.Get(shape.Operation.Header)) {
		r.refuse(&ingest.Refusal{Code: "no_payload", Reason: "the event has no data, and no operation in an attribute that says that it is a delete"})
		return r
	}
	event, err := shape.Prepare(value, meta)
	if err != nil {
		r.refuse(err)
		return r
	}
	if event.Skipped() {
		r.result.Status = Skipped
		return r
	}
	if e := event.Record().Event; s.Patches && !keyed && e.Op != change.Delete && e.EventID == "" && e.Sequence == "" {
		// It would be applied again, over what came since.
		r.refuse(&ingest.Refusal{Code: "no_event_id", Reason: "nothing would show that the patch was sent before: send it with an event id or a sequence, or with an Idempotency-Key"})
		return r
	}
	r.event = event
	r.result.EventID, r.result.Entity = event.EventID(), event.Entity()
	switch id := event.EventID(); {
	case r.shared:
		// Producers use one id for the rows of a snapshot, or of a transaction.
		r.key = eventKey(s.Name, fmt.Sprintf("%d:%s %s", len(id), id, event.Entity()))
	case id != "":
		r.key = eventKey(s.Name, id)
	}
	return r
}

// sharedKey is the reason of a conflict under the key of a CloudEvent.
const sharedKey = "an earlier event about this entity has the same CloudEvents source and id, and other content; " +
	"give each event its own id, set event_id of the source, or send an Idempotency-Key"

// Keys of the ledger begin with their kind, so that kinds never collide.
func eventKey(source, id string) string { return "event:" + source + ":" + id }
func requestKey(key string) string      { return "key:" + key }
func rowKey(key string, i int) string   { return fmt.Sprintf("row:%d:%s", i, key) }

func (r *row) refuse(err error) {
	refusal := ingest.RefusalOf(err)
	r.result.Status, r.result.Reason, r.result.Refusal = Invalid, refusal.Code+": "+refusal.Reason, refusal
}

// busyError says that rows wait for another request that has their keys.
type busyError struct{ wait time.Duration }

func (*busyError) Error() string { return "a key is busy" }

// take claims the keys of rows, appends the claimed events, and completes the
// claims. Every row has a result then, or says why it is lost. With whole, a row
// whose key is busy ends it with a *busyError, and nothing is appended. Any other error
// is one of the ledger: no row has a result that counts.
func (h *Handler) take(ctx context.Context, tenant string, s *Source, rows []*row, whole bool) error {
	if err := h.begin(ctx, tenant, rows); err != nil {
		h.abandon(ctx, tenant, claims(rows))
		return err
	}
	if wait := longestWait(rows); wait > 0 {
		if whole {
			h.abandon(ctx, tenant, claims(rows))
			return &busyError{wait}
		}
		h.abandon(ctx, tenant, holdBack(rows))
	}
	crash.At(crash.FrontBegun, s.Name)
	var todo []*row
	var messages []*message.Message
	for _, r := range rows {
		if r.event == nil || r.first != nil || r.result.Status != "" {
			continue
		}
		if r.key != "" {
			r.event.WithClaim(r.claimed.ID, tenant, r.key, h.ledger.keep)
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
	crash.At(crash.FrontAppended, s.Name)
	err := h.complete(ctx, tenant, todo)
	if err != nil {
		h.abandon(ctx, tenant, claims(todo))
	}
	for _, r := range rows {
		if r.first != nil {
			r.copyFirst()
		}
		h.metrics.count(s.Name, r.result.Status)
	}
	return err
}

// begin claims keys.
func (h *Handler) begin(ctx context.Context, tenant string, rows []*row) error {
	pending := make([]*row, 0, len(rows))
	for _, r := range rows {
		if r.event != nil && r.key != "" {
			pending = append(pending, r)
		}
	}
	return store.ClaimAll(pending,
		func(r *row) store.ClaimRequest {
			return store.ClaimRequest{Key: r.key, Fingerprint: r.event.Fingerprint()}
		},
		func(intents []store.ClaimRequest) ([]store.ClaimResult, error) {
			return h.ledger.begin(ctx, tenant, intents)
		},
		(*row).applyClaim,
		func(r, first *row, same bool) {
			if same {
				r.first = first
			} else {
				r.applyClaim(store.ClaimResult{State: store.ClaimConflict, ID: first.claimed.ID, Fingerprint: first.event.Fingerprint()})
			}
		})
}

// applyClaim sets the row to the ledger's entry of its key.
func (r *row) applyClaim(c store.ClaimResult) {
	r.claimed = c
	if c.State != store.ClaimConflict {
		r.result.ID = c.ID.String()
	}
	switch c.State {
	case store.ClaimDone:
		r.result.Status, r.answer = Duplicate, c.Response
		if r.result.Origin != "" && originOf(c.Response) == r.result.Origin {
			r.result.Status = Accepted // by an earlier attempt at this very row
		}
	case store.ClaimBusy:
		r.result.Status, r.result.Reason = Busy, "another request with this key is under way"
	case store.ClaimConflict:
		given := r.event.Fingerprint()
		r.result.Status, r.result.Reason = Conflicting, "the key belongs to another event"
		if r.shared {
			r.result.Reason = sharedKey
		}
		r.result.Fingerprint, r.result.Stored = hex.EncodeToString(given[:]), hex.EncodeToString(c.Fingerprint[:])
	}
}

// longestWait returns how long the rows' busy keys may stay busy at most; 0 if none is.
func longestWait(rows []*row) (wait time.Duration) {
	for _, r := range rows {
		if r.result.Status == Busy {
			wait = max(wait, r.claimed.Wait, time.Nanosecond)
		}
	}
	return wait
}

// holdBack makes later rows of a busy row's entity busy, which would overtake it.
// It returns the claims that this frees.
func holdBack(rows []*row) (freed []store.ClaimID) {
	held := map[string]time.Duration{} // by entity: the wait for its busy row
	for _, r := range rows {
		switch {
		case r.event == nil || r.first != nil:
		case r.result.Status == Busy:
			held[r.event.Entity()] = r.claimed.Wait
		case r.result.Status == "":
			wait, behind := held[r.event.Entity()]
			if !behind {
				continue
			}
			freed = append(freed, claims([]*row{r})...)
			r.claimed = store.ClaimResult{Wait: wait}
			r.result.ID, r.result.Status, r.result.Reason = "", Busy, "an earlier row of its entity is busy"
		}
	}
	return freed
}

// copyFirst copies the result of the first row with the same key.
func (r *row) copyFirst() {
	first := r.first
	r.lost, r.answer, r.claimed = first.lost, first.answer, first.claimed
	r.result.ID, r.result.Status, r.result.Reason = first.result.ID, first.result.Status, first.result.Reason
	if r.result.Status == Accepted {
		r.result.Status = Duplicate
	}
}

// complete stores the answers of accepted rows and ends the leases of lost ones.
func (h *Handler) complete(ctx context.Context, tenant string, rows []*row) error {
	var done []store.Completion
	var lost []store.ClaimID
	var accepted []*row
	for _, r := range rows {
		switch {
		case r.key == "":
		case r.lost != nil:
			lost = append(lost, r.claimed.ID)
		default:
			answer := r.result
			answer.Index = nil
			accepted = append(accepted, r)
			done = append(done, store.Completion{ID: r.claimed.ID, Response: store.Response{Status: http.StatusAccepted, Body: encode(answer)}})
		}
	}
	h.abandon(ctx, tenant, lost)
	if len(done) == 0 {
		return nil
	}
	answers, err := h.ledger.complete(ctx, tenant, done)
	if err != nil {
		return err
	}
	for i, r := range accepted {
		r.answer = answers[i]
	}
	return nil
}

// claims are those that rows have begun.
func claims(rows []*row) (ids []store.ClaimID) {
	for _, r := range rows {
		if r.claimed.State == store.ClaimStarted || r.claimed.State == store.ClaimResumed {
			ids = append(ids, r.claimed.ID)
		}
	}
	return ids
}

// abandonTime bounds the end of leases, which the next request would otherwise
// wait for.
const abandonTime = 2 * time.Second

func (h *Handler) abandon(ctx context.Context, tenant string, ids []store.ClaimID) {
	if len(ids) == 0 {
		return
	}
	// The request's own time may be over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	h.ledger.abandon(ctx, tenant, ids)
}
