package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
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

	claim  store.ClaimID  // of a row with a key
	answer store.Response // of an accepted row or a duplicate, with a key
	first  *row           // an earlier row of the request with the same key and content
	lost   error          // why it is not known to be durable
}

// rows prepares the events of a request, and returns the fingerprint of a batch. The request's
// key is the key of a single event; a row of a batch without an id gets a key by its place.
func (s *Source) rows(h http.Header, f form, values [][]byte, key string) ([]*row, [32]byte) {
	rows := make([]*row, len(values))
	fingerprint := sha256.New()
	fingerprint.Write([]byte("weir batch 1"))
	for i, value := range values {
		var meta message.Metadata
		var wrong error
		switch f {
		case binary:
			value, meta, wrong = binaryEvent(h, value)
		case structured, batched:
			value, meta, wrong = structuredEvent(value)
		}
		one := s.prepare(value, s.headers(h, meta), key != "", wrong)
		rows[i] = one
		if !f.batch() {
			if key != "" {
				one.key, one.shared = requestKey(key), false
			}
			continue
		}
		one.result.Index = &i
		// Unreadable rows are distinguished by their bytes.
		sum := sha256.Sum256(append([]byte("refused "), values[i]...))
		if one.event != nil {
			sum = one.event.Fingerprint()
			if key != "" && one.key == "" {
				one.key = rowKey(key, i)
			}
		}
		fingerprint.Write(sum[:])
	}
	return rows, [32]byte(fingerprint.Sum(nil))
}

// headers adds to meta the request's headers that the source's locators read.
func (s *Source) headers(h http.Header, meta message.Metadata) message.Metadata {
	if meta == nil {
		meta = message.Metadata{}
	}
	for _, name := range []string{
		s.Extractor.Entity.Header, s.Extractor.EventID.Header, s.Extractor.Operation.Header, s.Extractor.Sequence.Header,
	} {
		if _, there := meta[name]; there || name == "" {
			continue
		}
		if value := h.Get(name); value != "" {
			meta.Set(name, value)
		}
	}
	return meta
}

// prepare takes the row's event apart. Keyed says that the request has a key, which covers
// the row.
func (s *Source) prepare(value []byte, meta message.Metadata, keyed bool, wrong error) *row {
	r := &row{value: value, meta: meta}
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
		// Together the two may be longer than a key.
		digest := store.DigestKey(id, event.Entity())
		r.key = eventKey(s.Name, hex.EncodeToString(digest[:]))
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
