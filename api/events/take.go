package events

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"

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
				if r.first = first[r.claimed.ID]; r.first == nil {
					first[r.claimed.ID] = r
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
				done = append(done, store.Completion{ID: r.claimed.ID, Response: r.answer})
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
	case store.ClaimConflict:
		given := r.event.Fingerprint()
		r.result.Status, r.result.Reason = Conflicting, "the key belongs to another event"
		if r.shared {
			r.result.Reason = sharedKey
		}
		r.result.Fingerprint, r.result.Stored = hex.EncodeToString(given[:]), hex.EncodeToString(c.Fingerprint[:])
	}
}

// copyFirst copies the result of the first row with the same key.
func (r *row) copyFirst() {
	first := r.first
	r.lost, r.answer, r.claimed = first.lost, first.answer, first.claimed
	r.result.Status, r.result.Reason = first.result.Status, first.result.Reason
	if r.result.Status == Accepted {
		r.result.Status = Duplicate
	}
}
