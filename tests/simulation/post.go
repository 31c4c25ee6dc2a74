package simulation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// keep is for how long the front door knows a key.
const keep = 24 * time.Hour

// post is the front door, as far as decide sees it: requests under claims,
// whose attempts append their event to the inbox and are cut off before they
// can say so, so that the next attempt appends it once more; and those that
// were given up come to it late. In every fourth schedule the ledger may forget
// a key, as one does that is restored, and claim it again.
func (w *world) post() {
	d, again := w.dice("requests"), w.dice("keys")
	var attempts sync.WaitGroup
	defer attempts.Wait()
	send := func(d *dice, entity string, event *change.Event) {
		key, head, value, err := change.EncodeRecord(change.Record{Entity: entity, Event: event})
		if err != nil {
			panic(err) // it keeps the rules of the inbox
		}
		record := transport.Record{Topic: inboxTopic, Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}}
		for attempt := range 1 + d.n(3) {
			if attempt > 0 {
				w.count("posted again")
			}
			late := d.upTo(w.setup.span / 4)
			attempts.Go(func() {
				time.Sleep(late)
				w.inbox.append(record)
			})
		}
	}
	for i := range w.setup.requests {
		time.Sleep(d.upTo(2 * w.setup.span / time.Duration(w.setup.events)))
		entity := fmt.Sprint("B-", d.n(w.setup.entities))
		key := store.DigestKey("", fmt.Sprint(i))
		request := func(id uuid.UUID, level int) *change.Event {
			e := &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Claim: id.String(),
				Payload: fmt.Appendf(nil, `{"id":%q,"origin":"EC","ripeness_level":%d,"request":%d}`, entity, level, i)}
			content := sha256.Sum256(e.Payload)
			e.Use = &change.Use{Key: key[:], Content: content[:len(store.Use{}.Content)], Keep: keep.Milliseconds()}
			return e
		}
		id, level := d.claim(0), 1+d.n(3)
		event := request(id, level)
		if d.chance(0.1) {
			event.Op, event.Payload = change.Delete, nil
		}
		send(d, entity, event)
		if w.seed%4 != 0 || !again.chance(0.6) {
			continue
		}
		w.count("key forgotten")
		second := *event
		second.Claim = again.claim(0).String()
		switch again.n(4) {
		case 0: // something else
			second = *request(again.claim(0), 4+again.n(3))
		case 1: // the key is new again, whatever comes under it
			second = *request(again.claim(keep), 4+again.n(3))
		}
		send(again, entity, &second)
	}
}

// claim returns a UUIDv7 of this schedule, made so much later than now.
func (d *dice) claim(later time.Duration) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], d.draw())
	binary.BigEndian.PutUint64(id[8:], d.draw())
	made := uint64(time.Now().Add(later).UnixMilli()) //nolint:gosec // after 1970
	id[0], id[1] = byte(made>>40), byte(made>>32)
	binary.BigEndian.PutUint32(id[2:6], uint32(made)) //nolint:gosec // the lower half
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80   // version 7, variant 10
	return id
}
