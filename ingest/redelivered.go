package ingest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// headers returns the metadata of an event that a dead letter stores: the key, that the value is
// null, the headers that the extractor reads, and the context of the work that made it, as a JSON
// object, or nil without any.
func (s *Extractor) headers(ev *transport.Received, t *change.Trace) []byte {
	kept := map[string]string{}
	if ev.Key != nil {
		kept[transport.KeyMetadata] = string(ev.Key)
	}
	if ev.Value == nil {
		kept[transport.NullMetadata] = "1"
	}
	for _, name := range []string{s.Entity.Header, s.EventID.Header, s.Operation.Header, s.Sequence.Header, s.Session.Header, s.Unchanged.Header} {
		if name != "" && slices.ContainsFunc(ev.Headers, func(h transport.Header) bool { return h.Key == name }) {
			kept[name] = ev.Header(name)
		}
	}
	if why := ev.Header(transport.RefusalHeader); why != "" && s.ByUUID {
		kept[transport.RefusalHeader] = why
	}
	if ev.Index != 0 {
		kept[indexHeader] = strconv.FormatInt(ev.Index, 10)
	}
	if kept = t.AddTo(kept); len(kept) == 0 {
		return nil
	}
	for name, value := range kept {
		// JSON would write U+FFFD, which is a valid id; NUL is refused again.
		kept[name] = strings.ToValidUTF8(value, "\x00")
	}
	// A map of strings always has a JSON form.
	text, _ := json.Marshal(kept)
	return text
}

// indexHeader holds Received.Index in the headers of a dead letter. It is omitted for 0.
const indexHeader = "weir-index"

// Redelivered takes a dead letter of this source's ingest apart once more, as it was
// or as it was edited, with the position that it had. It returns the record to append, or
// the dead letter that it would become now.
func (s *Extractor) Redelivered(l store.DeadLetter) (change.Record, *store.DeadLetter) {
	msg := message.NewMessage("", l.Payload)
	if len(l.Headers) > 0 {
		_ = json.Unmarshal(l.Headers, &msg.Metadata) // this package wrote them
	}
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	if len(l.Payload) > 0 {
		delete(msg.Metadata, transport.NullMetadata) // an edit gave it a value
	}
	if !bytes.Equal(l.Payload, transport.RefusedPayload) {
		delete(msg.Metadata, transport.RefusalHeader) // likewise
	}
	ev := transport.ReceivedOf(msg)
	ev.Offset = l.Offset
	ev.Index, _ = strconv.ParseInt(msg.Metadata.Get(indexHeader), 10, 64)
	x := s.extract(transport.NewFrame("", l.Topic, l.Part, 0, []transport.Received{ev}), 0, nil)
	switch {
	case x.moved != nil:
		l.Code, l.Reason = "entity_changed", "it gives a row another entity id: edit it to an insert, and delete the earlier entity"
		x.letter = &l
	case x.skipped:
		l.Code, l.Reason = "skipped", "as it is now it is about no row: discard it"
		x.letter = &l
	}
	return x.record, x.letter
}
