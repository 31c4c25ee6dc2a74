package change

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEventComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[^\x00]{0,20}`)
		entity := rapid.StringMatching(`[^\x00]{1,20}`).Draw(t, "entity")
		e := &Event{
			Origin: Origin{
				Source: text.Draw(t, "source"), Topic: text.Draw(t, "topic"),
				Partition: rapid.Int32().Draw(t, "partition"), Offset: rapid.Int64().Draw(t, "offset"),
			},
			EventID: text.Draw(t, "id"), Sequence: text.Draw(t, "sequence"),
			Op: rapid.SampledFrom([]Op{Upsert, Delete, Refused}).Draw(t, "op"), Entity: entity,
		}
		if e.Op == Refused {
			e.Refusal = "oversized"
		}
		if rapid.Bool().Draw(t, "of a session") {
			e.Session = Session{Log: text.Draw(t, "log"), Number: rapid.Int64Min(1).Draw(t, "number"), Name: text.Draw(t, "name")}
		}
		if e.Op == Upsert {
			e.Payload = []byte(`{"a":1}`)
		}
		if rapid.Bool().Draw(t, "claimed") {
			e.Claim = "019ab1c2-0000-7000-8000-000000000001"
			e.Use = &Use{
				Key:     rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"),
				Content: rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "content"), Keep: rapid.Int64Min(0).Draw(t, "keep"),
			}
		}
		if rapid.Bool().Draw(t, "marked") {
			e.Mark = string(rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "mark"))
		}
		key, head, value, err := EncodeRecord(Record{Entity: entity, Event: e})
		require.NoError(t, err)
		got, err := DecodeRecord(key, head, value)
		require.NoError(t, err)
		clear(head)
		clear(key)
		require.Equal(t, Record{Entity: entity, Event: e}, got, "no text is a part of the record's bytes")
		again, err := EventOfText(entity, e.Text(), e.Payload)
		require.NoError(t, err)
		again.Mark = e.Mark
		require.Equal(t, e, again)
	})
}

func TestControlComesBack(t *testing.T) {
	want := Record{Entity: "B-007", Control: &Control{ID: "1", Action: Refuse, Services: []string{"a/b@c"}, Version: 7, Actor: "deliver", Reason: "dead letter"}}
	key, head, value, err := EncodeRecord(want)
	require.NoError(t, err)
	got, err := DecodeRecord(key, head, value)
	require.NoError(t, err)
	require.Equal(t, want, got)

	barrier := Record{Control: &Control{ID: "2", Action: Barrier, Session: Session{Log: "shop", Number: 7, Name: "x"}, Sequence: "t1"}}
	key, head, value, err = EncodeRecord(barrier)
	require.NoError(t, err)
	require.Empty(t, key)
	got, err = DecodeRecord(key, head, value)
	require.NoError(t, err)
	require.Equal(t, barrier, got)

	want.Control.Action, want.Control.Change = Resend, []byte("\x00{a change, as it was published}")
	key, head, value, err = EncodeRecord(want)
	require.NoError(t, err)
	require.Equal(t, want.Control.Change, value, "not a byte larger")
	got, err = DecodeRecord(key, head, value)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Values that the store cannot hold, and records that break the rules, are
// refused on both sides.
func TestRefused(t *testing.T) {
	for name, r := range map[string]Record{
		"no entity":              {Event: &Event{Op: Delete}},
		"NUL in the entity":      {Entity: "a\x00b", Event: &Event{Op: Delete}},
		"no UTF-8":               {Entity: "a\xffb", Event: &Event{Op: Delete}},
		"a long entity":          {Entity: strings.Repeat("e", MaxEntity+1), Event: &Event{Op: Delete}},
		"NUL in the event id":    {Entity: "e", Event: &Event{Op: Delete, EventID: "a\x00"}},
		"a long sequence":        {Entity: "e", Event: &Event{Op: Delete, Sequence: strings.Repeat("1", MaxID+1)}},
		"NUL in a reason":        {Entity: "e", Control: &Control{Reason: "\x00"}},
		"NUL in a replay":        {Entity: "e", Event: &Event{Op: Delete, Replay: &Replay{Actor: "\x00"}}},
		"neither":                {Entity: "e"},
		"both":                   {Entity: "e", Event: &Event{Op: Delete}, Control: &Control{}},
		"delete with payload":    {Entity: "e", Event: &Event{Op: Delete, Payload: []byte("{}")}},
		"upsert without payload": {Entity: "e", Event: &Event{Op: Upsert}},
		"refused, no reason":     {Entity: "e", Event: &Event{Op: Refused}},
		"refused with payload":   {Entity: "e", Event: &Event{Op: Refused, Refusal: "r", Payload: []byte("{}")}},
		"delete with a reason":   {Entity: "e", Event: &Event{Op: Delete, Refusal: "r"}},
		"a session below 0":      {Entity: "e", Event: &Event{Op: Delete, Session: Session{Number: -1}}},
		"NUL in a session":       {Entity: "e", Event: &Event{Op: Delete, Session: Session{Log: "\x00"}}},
		"barrier of an entity":   {Entity: "e", Control: &Control{Action: Barrier, Session: Session{Log: "l", Number: 1}}},
		"barrier, no session":    {Control: &Control{Action: Barrier}},
		"barrier, long sequence": {Control: &Control{Action: Barrier, Session: Session{Log: "l", Number: 1}, Sequence: strings.Repeat("1", MaxID+1)}},
	} {
		_, _, _, err := EncodeRecord(r)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	head := func(e Event) string {
		head, err := e.appendHead(nil)
		require.NoError(t, err)
		return string(head)
	}
	plain := head(Event{Op: Upsert, EventID: "i", Mark: "0123456789ab"})
	for name, m := range map[string][3]string{
		"no key":             {"", head(Event{Op: Delete}), ""},
		"NUL in the key":     {"a\x00b", head(Event{Op: Upsert}), "{}"},
		"NUL in the id":      {"e", head(Event{Op: Upsert, EventID: "a\x00"}), "{}"},
		"a long id":          {"e", head(Event{Op: Upsert, EventID: strings.Repeat("i", MaxID+1)}), "{}"},
		"no header":          {"e", "", "{}"},
		"a cut header":       {"e", plain[:len(plain)-1], "{}"},
		"a longer header":    {"e", plain + "x", "{}"},
		"unknown flags":      {"e", "e\x10" + plain[2:], "{}"},
		"a wide partition":   {"e", "e\x00\x00\x00\xff\xff\xff\xff\xff\x00\x00\x00\x00", "{}"},
		"a broken rare part": {"e", "e\x08\x00\x00\x00\x00\x00\x00\x00{", "{}"},
		"unknown kind":       {"e", "x", "{}"},
		"broken control":     {"e", "c[]", ""},
		"no control":         {"e", "c", "{}"},
		"no event":           {"e", "e", "{}"},
	} {
		_, err := DecodeRecord([]byte(m[0]), []byte(m[1]), []byte(m[2]))
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	_, err := DecodeRecord([]byte("e"), []byte(plain), nil)
	require.ErrorIs(t, err, ErrMalformed, "a null value is no document")
	_, err = EventOfText("e", `{"op":"merge"}`, []byte("{}"))
	require.ErrorIs(t, err, ErrMalformed)
}

// FuzzRecord: what DecodeRecord returns, EncodeRecord takes, and it comes back the same.
func FuzzRecord(f *testing.F) {
	for _, e := range []Event{{Origin: Origin{Source: "registry"}, EventID: "e1", Sequence: "1", Op: Upsert, Mark: "0123456789ab"}, {Op: Delete, EventID: "\x00"}, {Op: Upsert, Claim: "c", Use: &Use{Keep: 1}},
		{Op: Refused, Refusal: "oversized", Session: Session{Log: "shop", Number: 3, Name: "x"}}} {
		head, _ := e.appendHead(nil)
		f.Add([]byte("B-007"), head, []byte(`{}`))
	}
	f.Add([]byte("B-007"), []byte(`c{"id":"1","action":"refuse","services":["a/b@c"]}`), []byte(nil))
	f.Fuzz(func(t *testing.T, key, head, value []byte) {
		r, err := DecodeRecord(key, head, value)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		key, head, value, err = EncodeRecord(r)
		require.NoError(t, err)
		again, err := DecodeRecord(key, head, value)
		require.NoError(t, err)
		_, same, _, err := EncodeRecord(again)
		require.NoError(t, err)
		require.Equal(t, string(head), string(same))
	})
}
