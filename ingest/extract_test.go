package ingest_test

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/stretchr/testify/require"
)

func shape(t testing.TB) ingest.Extractor {
	rules, err := stripper.Compile([]string{"updated_at", "**.trace_id"})
	require.NoError(t, err)
	return ingest.Extractor{
		Source: "registry", Entity: ingest.Locator{Path: "m.id"}, EventID: ingest.Locator{Path: "m.event"},
		Operation: ingest.Locator{Path: "m.op"}, Sequence: ingest.Locator{Path: "m.seq"}, Payload: "d",
		IsDelete: func(op string) bool { return op == "delete" || op == "true" }, Strip: rules, MaxEvent: 200, MaxEntity: 16,
	}
}

// take extracts the event of a message at offset 42 of T1/3, which is about one entity at
// most.
func take(s ingest.Extractor, m *message.Message) (record change.Record, letter *store.DeadLetter) {
	records, letter := takeAll(s, m)
	if len(records) > 0 {
		record = records[len(records)-1]
	}
	return record, letter
}

func takeAll(s ingest.Extractor, m *message.Message) ([]change.Record, *store.DeadLetter) {
	ev := transport.ReceivedOf(m)
	ev.Offset = 42
	return s.Extract(frame(ev), 0)
}

// frame is one of partition 3 of a source's topic.
func frame(records ...transport.Received) *transport.Frame {
	return transport.NewFrame("registry.events", "T1", 3, 1, records)
}

func byHeaders(s *ingest.Extractor) {
	s.Entity, s.EventID, s.Sequence = ingest.Locator{Key: true}, ingest.Locator{Header: "ce_id"}, ingest.Locator{Header: "seq"}
}

var extractions = []struct {
	name    string
	value   string // "null record" for a null value
	meta    map[string]string
	shape   func(*ingest.Extractor)
	want    change.Event
	code    string // of the dead letter
	payload string
}{
	{name: "upsert", value: `{"m":{"id":"B","event":"e1","op":"upsert","seq":7},"d":{"a":1}}`,
		want: change.Event{Entity: "B", EventID: "e1", Sequence: "7", Op: change.Upsert}, payload: `{"a":1}`},
	{name: "stripped", value: `{"m":{"id":"B"},"d":{"updated_at":1,"a":[{"trace_id":2,"b":3}]}}`,
		want: change.Event{Entity: "B", Op: change.Upsert}, payload: `{"a":[{"b":3}]}`},
	{name: "numbers keep their digits", value: `{"m":{"id":1.50,"event":12345678901234567890123},"d":1.50}`,
		want: change.Event{Entity: "1.50", EventID: "12345678901234567890123", Op: change.Upsert}, payload: `1.50`},
	{name: "escapes", value: `{"m":{"id":"\u0042\n"},"d":{}}`, want: change.Event{Entity: "B\n", Op: change.Upsert}, payload: `{}`},
	{name: "delete", value: `{"m":{"id":"B","op":"delete"},"d":{"a":1}}`, want: change.Event{Entity: "B", Op: change.Delete}},
	{name: "operation as a truth value", value: `{"m":{"id":"B","op":true}}`, want: change.Event{Entity: "B", Op: change.Delete}},
	{name: "null payload", value: `{"m":{"id":"B"},"d":null}`, want: change.Event{Entity: "B", Op: change.Delete}},
	{name: "null payload that is the whole value", value: `null`, meta: map[string]string{transport.KeyMetadata: "B"},
		shape: func(s *ingest.Extractor) { byHeaders(s); s.Payload = "" }, want: change.Event{Entity: "B", Op: change.Delete}},
	{name: "null record", value: "null record", meta: map[string]string{transport.KeyMetadata: "B"}, want: change.Event{Entity: "B", Op: change.Delete}},
	{name: "null record with headers", value: "null record", shape: byHeaders,
		meta: map[string]string{transport.KeyMetadata: "B", "ce_id": "e", "seq": "9"},
		want: change.Event{Entity: "B", EventID: "e", Sequence: "9", Op: change.Delete}},
	{name: "key and headers", value: `{"d":{}}`, shape: byHeaders, meta: map[string]string{transport.KeyMetadata: "B", "ce_id": "e"},
		want: change.Event{Entity: "B", EventID: "e", Op: change.Upsert}, payload: `{}`},
	{name: "whole value", value: `{"m":{"id":"B"}}`, shape: func(s *ingest.Extractor) { s.Payload = "" },
		want: change.Event{Entity: "B", Op: change.Upsert}, payload: `{"m":{"id":"B"}}`},

	{name: "no JSON", value: `{"m":`, code: "bad_json"},
	{name: "empty", value: ``, code: "bad_json"},
	{name: "a member twice", value: `{"m":{"id":"B","id":"C"},"d":{}}`, code: "bad_json"},
	{name: "not UTF-8", value: "{\"m\":{\"id\":\"B\"},\"d\":\"\xff\"}", code: "bad_json"},
	{name: "too large", value: `{"m":{"id":"B"},"d":"` + strings.Repeat("x", 200) + `"}`, code: "oversized"},
	{name: "too many values", value: `{"m":{"id":"B"},"d":[` + strings.Repeat("0,", 1<<20) + `0]}`,
		shape: func(s *ingest.Extractor) { s.MaxEvent = 8 << 20 }, code: "too_many_values"},
	{name: "no entity", value: `{"m":{},"d":{}}`, code: "no_entity"},
	{name: "empty entity", value: `{"m":{"id":""},"d":{}}`, code: "no_entity"},
	{name: "null entity", value: `{"m":{"id":null},"d":{}}`, code: "no_entity"},
	{name: "null record without key", value: "null record", code: "no_entity"},
	{name: "object as entity", value: `{"m":{"id":{}},"d":{}}`, code: "bad_entity"},
	{name: "truth as entity", value: `{"m":{"id":true},"d":{}}`, code: "bad_entity"},
	{name: "long entity", value: `{"m":{"id":"12345678901234567"},"d":{}}`, code: "bad_entity"},
	{name: "NUL in entity", value: `{"m":{"id":"B\u0000"},"d":{}}`, code: "bad_entity"},
	{name: "key that is not UTF-8", value: `{"d":{}}`, shape: byHeaders, meta: map[string]string{transport.KeyMetadata: "\xff"}, code: "bad_entity"},
	{name: "NUL in event id", value: `{"m":{"id":"B","event":"\u0000"},"d":{}}`, code: "bad_event_id"},
	{name: "list as event id", value: `{"m":{"id":"B","event":[]},"d":{}}`, code: "bad_event_id"},
	{name: "object as sequence", value: `{"m":{"id":"B","seq":{}},"d":{}}`, code: "bad_sequence"},
	{name: "no payload", value: `{"m":{"id":"B"}}`, code: "no_payload"},
}

func TestTakeApart(t *testing.T) {
	for _, c := range extractions {
		t.Run(c.name, func(t *testing.T) {
			s := shape(t)
			if c.shape != nil {
				c.shape(&s)
			}
			m := message.NewMessage("uuid", []byte(c.value))
			for k, v := range c.meta {
				m.Metadata.Set(k, v)
			}
			if c.value == "null record" {
				m.Payload = nil
				m.Metadata.Set(transport.NullMetadata, "1")
			}
			record, letter := take(s, m)
			if c.code != "" {
				require.NotNil(t, letter)
				require.Equal(t, c.code, letter.Code)
				require.Equal(t, "ingest/registry/T1/3/42", letter.DedupKey)
				require.Equal(t, string(m.Payload), string(letter.Payload))
				require.NotContains(t, letter.Reason, "xxx")
				return
			}
			require.Nil(t, letter)
			c.want.Origin = change.Origin{Source: "registry", Topic: "T1", Partition: 3, Offset: 42}
			if c.payload != "" {
				c.want.Payload = []byte(c.payload)
			}
			require.Equal(t, marked(t, c.want), *record.Event)
			require.Equal(t, c.want.Entity, record.Entity)
			_, _, _, err := change.EncodeRecord(record)
			require.NoError(t, err)
		})
	}
}

// marked returns an event with the mark that decide would compute of its id and payload.
func marked(t require.TestingT, e change.Event) change.Event {
	if e.EventID != "" {
		var content canonicaltree.Digest
		if e.Op == change.Upsert {
			tree, err := canonicaltree.Parse(e.Payload)
			require.NoError(t, err)
			content = tree.Root().Sum(canonicaltree.Literal)
		}
		mark := change.EventMark(e.EventID, content[:])
		e.Mark = string(mark[:])
	}
	return e
}

// Any input is a record that the inbox takes, or a dead letter.
func FuzzTake(f *testing.F) {
	for _, s := range []string{`{"m":{"id":"B","op":"delete"}}`, `{"m":{"id":"B"},"d":{"trace_id":1}}`, `{"m":{"id":"\u0000"}}`, `[`, "\xff", `{"m":{"id":1e400},"d":null}`} {
		f.Add([]byte(s), "")
	}
	f.Fuzz(func(t *testing.T, value []byte, key string) {
		s := shape(t)
		m := message.NewMessage("uuid", value)
		m.Metadata.Set(transport.KeyMetadata, key)
		record, letter := take(s, m)
		if letter != nil {
			require.NotEmpty(t, letter.Code)
			return
		}
		k, head, v, err := change.EncodeRecord(record)
		require.NoError(t, err)
		back, err := change.DecodeRecord(k, head, v)
		require.NoError(t, err)
		require.Equal(t, record.Entity, back.Entity)
	})
}

// A refusal's letter has one name however often its event comes again: its place,
// or its message's UUID where the place is not the same every time or there is none.
// A byte order mark is no part of an event, and UTF-16 is named.
func TestByteOrderMarks(t *testing.T) {
	s := shape(t)
	const event = `{"m":{"id":"B","event":"1"},"d":{"a":1}}`
	plain, letter := take(s, message.NewMessage("", []byte(event)))
	require.Nil(t, letter)
	marked, letter := take(s, message.NewMessage("", []byte("\xef\xbb\xbf"+event)))
	require.Nil(t, letter)
	require.Equal(t, plain, marked)
	once, err := s.Prepare([]byte(event), nil)
	require.NoError(t, err)
	again, err := s.Prepare([]byte("\xef\xbb\xbf"+event), nil)
	require.NoError(t, err)
	require.Equal(t, once.Fingerprint(), again.Fingerprint(), "no other event under its key")
	for _, text := range []string{"\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}", "{\x00}\x00"} {
		_, letter = take(s, message.NewMessage("", []byte(text)))
		require.Contains(t, letter.Reason, "UTF-16")
	}
}

func TestNameOfALetter(t *testing.T) {
	ev := transport.Received{Value: []byte("["), Offset: 7, Headers: []transport.Header{{Key: transport.UUIDHeader, Value: []byte("uuid")}}}
	for name, c := range map[string]struct {
		topicID string
		byUUID  bool
		want    string
	}{
		"by place":         {"T1", false, "ingest/registry/T1/3/7"},
		"by UUID":          {"T1", true, "ingest/registry/uuid"},
		"without position": {"", false, "ingest/registry/uuid"},
	} {
		s := shape(t)
		s.ByUUID = c.byUUID
		_, letter := s.Extract(transport.NewFrame("t", c.topicID, 3, 1, []transport.Received{{Value: []byte("["), Offset: 6}, ev}), 1)
		require.Equal(t, c.want, letter.DedupKey, name)
	}
}

// The letter of an event that is too large to be parsed names its entity, wherever that is.
func TestLettersOfOversizedEventsNameTheEntity(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tc := range []struct {
		entity ingest.Locator
		format ingest.Format
		value  string
		want   string
	}{
		{ingest.Locator{Path: "m.id"}, ingest.JSON, `{"d":"` + long + `","m":{"id":"B-1"}}`, "B-1"},
		{ingest.Locator{Path: "id"}, ingest.JSON, `{"id":17,"d":"` + long + `"}`, "17"},
		{ingest.Locator{Key: true}, ingest.JSON, `["` + long + `"]`, "the key"},
		{ingest.Locator{Header: "h"}, ingest.JSON, `["` + long + `"]`, "the header"},
		{ingest.Locator{Path: "id"}, ingest.Debezium, `{"op":"u","before":{"id":0},"after":{"d":"` + long + `","id":7}}`, "7"},
		{ingest.Locator{Path: "id"}, ingest.Debezium, `{"schema":{},"payload":{"op":"u","after":{"d":"` + long + `","id":7}}}`, "7"},
		{ingest.Locator{Path: "id"}, ingest.Maxwell, `{"type":"insert","data":{"d":"` + long + `","id":"a"}}`, "a"},
		{ingest.Locator{Path: "id"}, ingest.JSON, `{"id":"` + long + `"}`, ""},
		{ingest.Locator{Path: "id"}, ingest.JSON, `{"id":{"a":1},"d":"` + long + `"}`, ""},
		{ingest.Locator{Path: "id"}, ingest.JSON, `{"id":"a\u0000","d":"` + long + `"}`, ""},
		{ingest.Locator{Path: "id"}, ingest.JSON, `{"d":"` + long, ""},
	} {
		s := shape(t)
		s.Entity, s.Format = tc.entity, tc.format
		m := message.NewMessage("uuid", []byte(tc.value))
		m.Metadata.Set(transport.KeyMetadata, "the key")
		m.Metadata.Set("h", "the header")
		_, letter := take(s, m)
		require.NotNil(t, letter)
		require.Equal(t, ingest.Oversized, letter.Code)
		require.Equal(t, tc.want, letter.Entity, tc.value)
	}
}
