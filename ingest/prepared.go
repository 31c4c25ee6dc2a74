package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// Prepared is an event that was extracted before it was handed to a stage: by the API,
// whose caller gets the reason of a refusal at once. With [WithPrepared] it travels in the
// event's own context, and the stage does not parse it again. After WithClaim it is
// read-only, so its frame may be redelivered.
type Prepared struct {
	x           extracted
	fingerprint [32]byte
}

// Prepare parses an event that has no position. value is its JSON, nil for a null value; meta
// holds its headers and, under transport.KeyMetadata, its key. The error is a *Refusal. Neither
// value nor meta may be changed afterwards. It may be called concurrently.
func (s *Extractor) Prepare(value []byte, meta message.Metadata) (*Prepared, error) {
	msg := message.NewMessage("", value)
	if meta != nil {
		msg.Metadata = meta
	}
	if value == nil {
		msg.Metadata.Set(transport.NullMetadata, "1")
	}
	ev := transport.ReceivedOf(msg)
	var sum canonicaltree.Digest
	x, err := s.parse(&ev, &sum)
	if err == nil && x.moved != nil {
		// A claim is for one record, and without a position nothing else tells a repetition.
		err = refuse("entity_changed", "the update gave the row another entity id at %s: post a delete and an insert", s.Entity)
	}
	if err != nil {
		return nil, RefusalOf(err)
	}
	return &Prepared{x, s.fingerprint(&ev, sum)}, nil
}

// Entity is the id of the event's entity.
func (p *Prepared) Entity() string { return p.x.record.Entity }

// EventID is the producer's id of the event, empty when it has none.
func (p *Prepared) EventID() string { return p.x.record.Event.EventID }

// Skipped reports that the event is about no entity, see Format: there is nothing to append.
func (p *Prepared) Skipped() bool { return p.x.skipped }

// Fingerprint is equal for events that ask for the same: it is taken from the
// source, the structure of the whole value (numbers by their literals), and the
// headers that the source's locators read. Member order, white space and the
// spelling of escapes do not count.
func (p *Prepared) Fingerprint() [32]byte { return p.fingerprint }

// WithClaim puts the event under a claim for a tenant's key that is known for keep:
// decide lets it have its effect once, and the gate, which could forget it
// earlier, is not asked.
func (p *Prepared) WithClaim(claim store.ClaimID, tenant, key string, keep time.Duration) {
	digest := store.DigestKey(tenant, key)
	p.x.record.Event.Claim = claim.String()
	p.x.record.Event.Use = &change.Use{Key: digest[:], Content: p.fingerprint[:len(store.Use{}.Content)], Keep: keep.Milliseconds()}
	p.x.gate.EventID = ""
}

// Record returns the record that a stage would append to the inbox. Do not change it.
func (p *Prepared) Record() change.Record { return p.x.record }

// fingerprint hashes length-prefixed parts, so that no two lists of them meet.
func (s *Extractor) fingerprint(ev *transport.Received, value canonicaltree.Digest) (sum [32]byte) {
	h := sha256.New()
	part := func(text string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(text)))
		h.Write(n[:])
		h.Write([]byte(text))
	}
	part("weir event 1")
	part(s.Source)
	for _, l := range []Locator{s.Entity, s.EventID, s.Operation, s.Sequence} {
		switch {
		case l.Key:
			part(string(ev.Key))
		case l.Header != "":
			part(ev.Header(l.Header))
		default:
			part("")
		}
	}
	if ev.Value == nil {
		part("null")
	} else {
		part(string(value[:]))
	}
	h.Sum(sum[:0])
	return sum
}

type preparedKey struct{}

// WithPrepared returns a context of an event that carries the prepared event.
func WithPrepared(ctx context.Context, p *Prepared) context.Context {
	return context.WithValue(ctx, preparedKey{}, p)
}

// PreparedOf returns the prepared event that a context carries, nil without one.
func PreparedOf(ctx context.Context) *Prepared {
	p, _ := ctx.Value(preparedKey{}).(*Prepared)
	return p
}

func preparedOf(ev *transport.Received) (extracted, bool) {
	if ev.Context == nil {
		return extracted{}, false
	}
	p := PreparedOf(ev.Context)
	if p == nil {
		return extracted{}, false
	}
	return p.x, true
}
