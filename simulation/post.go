package simulation

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/transport"
)

// post is the front door, as far as decide sees it: requests under claims,
// whose attempts append their event to the inbox and are cut off before they
// can say so, so that the next attempt appends it once more; and those that
// were given up come to it late.
func (w *world) post() {
	d := w.dice("requests")
	var attempts sync.WaitGroup
	defer attempts.Wait()
	for i := range w.setup.requests {
		time.Sleep(d.upTo(2 * w.setup.span / time.Duration(w.setup.events)))
		entity := fmt.Sprint("B-", d.n(w.setup.entities))
		event := &inbox.Event{Origin: inbox.Origin{Source: "registry"}, Op: inbox.Upsert, Claim: d.claim().String(),
			Payload: fmt.Appendf(nil, `{"id":%q,"origin":"EC","ripeness_level":%d,"request":%d}`, entity, 1+d.n(3), i)}
		if d.chance(0.1) {
			event.Op, event.Payload = inbox.Delete, nil
		}
		key, head, value, err := inbox.Encode(inbox.Record{Entity: entity, Event: event})
		if err != nil {
			panic(err) // it keeps the rules of the inbox
		}
		record := transport.Record{Topic: inboxTopic, Key: key, Value: value, Headers: []transport.Header{{Key: inbox.Header, Value: head}}}
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
}

// claim gives a UUIDv7 of this schedule.
func (d *dice) claim() uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], d.draw())
	binary.BigEndian.PutUint64(id[8:], d.draw())
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80 // version 7, variant 10
	return id
}
