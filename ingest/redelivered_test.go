package ingest_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
)

// I9: a dead letter that comes again is taken apart as its event was: with its
// key, its headers and its position, which a payload alone would not tell.
func TestALetterIsTakenApartAsItsEventWas(t *testing.T) {
	s := shape(t)
	s.Entity, s.EventID, s.Sequence, s.Payload = ingest.Locator{Key: true}, ingest.Locator{Header: "ce_id"}, ingest.Locator{Header: "seq"}, ""
	msg := message.NewMessage("", []byte(`{"a":`))
	for k, v := range map[string]string{transport.KeyMetadata: "B", "ce_id": "e1", "seq": "7", "cookie": "nobody asked for it"} {
		msg.Metadata.Set(k, v)
	}
	_, letter := take(s, msg)
	require.NotNil(t, letter)
	require.Equal(t, "bad_json", letter.Code)
	require.JSONEq(t, `{"`+transport.KeyMetadata+`":"B","ce_id":"e1","seq":"7"}`, string(letter.Headers), "what the shape reads, and no more")

	_, still := s.Redelivered(*letter)
	require.NotNil(t, still)
	require.Equal(t, "bad_json", still.Code)
	require.Equal(t, letter.DedupKey, still.DedupKey)

	letter.Payload = []byte(`{"a":1,"updated_at":2}`)
	record, still := s.Redelivered(*letter)
	require.Nil(t, still)
	require.Equal(t, marked(t, change.Event{
		Origin: change.Origin{Source: "registry", Topic: "T1", Partition: 3, Offset: 42}, EventID: "e1", Sequence: "7",
		Op: change.Upsert, Entity: "B", Payload: []byte(`{"a":1}`),
	}), *record.Event)
}

// A key or header that is not UTF-8 does not come back as another one that is: two of
// them would become the same entity.
func TestALetterWhoseKeyIsNotUTF8(t *testing.T) {
	for name, c := range map[string]struct{ key, id, code string }{
		"key":      {"caf\xe9", "e1", "bad_entity"},
		"event id": {"B", "\xff", "bad_event_id"},
	} {
		t.Run(name, func(t *testing.T) {
			s := shape(t)
			s.Entity, s.EventID, s.Payload = ingest.Locator{Key: true}, ingest.Locator{Header: "ce_id"}, ""
			msg := message.NewMessage("", []byte(`{}`))
			msg.Metadata.Set(transport.KeyMetadata, c.key)
			msg.Metadata.Set("ce_id", c.id)
			_, letter := take(s, msg)
			require.NotNil(t, letter)
			require.Equal(t, c.code, letter.Code)
			record, still := s.Redelivered(*letter)
			require.NotNil(t, still, "%+v", record.Event)
			require.Equal(t, c.code, still.Code)
		})
	}
}

// A null value that could not be taken in is still one when it comes again, and
// an edit makes a value of it.
func TestALetterOfANullValue(t *testing.T) {
	s := shape(t)
	msg := message.NewMessage("", nil)
	msg.Metadata.Set(transport.NullMetadata, "1")
	_, letter := take(s, msg)
	require.NotNil(t, letter)
	require.Equal(t, "no_entity", letter.Code)
	_, still := s.Redelivered(*letter)
	require.NotNil(t, still)
	require.Equal(t, "no_entity", still.Code, "not bad_json")
	letter.Payload = []byte(`{"m":{"id":"B"},"d":{}}`)
	record, still := s.Redelivered(*letter)
	require.Nil(t, still)
	require.Equal(t, change.Upsert, record.Event.Op)
}
