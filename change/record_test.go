package change

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEventComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entity := rapid.StringMatching(`[^\x00]{1,20}`).Draw(t, "entity")
		e := &Event{
			Origin: Origin{
				Source: rapid.String().Draw(t, "source"), Topic: rapid.String().Draw(t, "topic"),
				Partition: rapid.Int32().Draw(t, "partition"), Offset: rapid.Int64().Draw(t, "offset"),
			},
			EventID: rapid.String().Draw(t, "id"), Sequence: rapid.String().Draw(t, "sequence"),
			Op: rapid.SampledFrom([]Op{Upsert, Delete}).Draw(t, "op"), Entity: entity,
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
		key, head, value, err := EncodeRecord(Record{Entity: entity, Event: e})
		require.NoError(t, err)
		got, err := DecodeRecord(key, head, value)
		require.NoError(t, err)
		require.Equal(t, Record{Entity: entity, Event: e}, got)
	})
}

func TestControlComesBack(t *testing.T) {
	want := Record{Entity: "B-007", Control: &Control{ID: "1", Action: Refuse, Services: []string{"a/b@c"}, Version: 7, Actor: "deliver", Reason: "dead letter"}}
	key, head, value, err := EncodeRecord(want)
	require.NoError(t, err)
	got, err := DecodeRecord(key, head, value)
	require.NoError(t, err)
	require.Equal(t, want, got)

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
		"neither":                {Entity: "e"},
		"both":                   {Entity: "e", Event: &Event{Op: Delete}, Control: &Control{}},
		"delete with payload":    {Entity: "e", Event: &Event{Op: Delete, Payload: []byte("{}")}},
		"upsert without payload": {Entity: "e", Event: &Event{Op: Upsert}},
	} {
		_, _, _, err := EncodeRecord(r)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	for name, m := range map[string][3]string{
		"no key":            {"", `{"k":"e","op":"delete"}`, ""},
		"no header":         {"e", "", "{}"},
		"broken header":     {"e", "{", "{}"},
		"unknown kind":      {"e", `{"k":"x"}`, "{}"},
		"unknown operation": {"e", `{"k":"e","op":"merge"}`, "{}"},
		"broken control":    {"e", `{"k":"c","ctl":[]}`, ""},
		"no control":        {"e", `{"k":"c"}`, "{}"},
		"no event":          {"e", `{"k":"e"}`, "{}"},
	} {
		_, err := DecodeRecord([]byte(m[0]), []byte(m[1]), []byte(m[2]))
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	_, err := DecodeRecord([]byte("e"), []byte(`{"k":"e","op":"upsert"}`), nil)
	require.ErrorIs(t, err, ErrMalformed, "a null value is no document")
}

func TestCompareSequence(t *testing.T) {
	ascending := []string{"0", "9", "10", "9007199254740992", "9007199254740993", "123456789012345678901234567890"}
	for i, a := range ascending {
		for j, b := range ascending {
			switch got := CompareSequence(a, b); {
			case i < j:
				require.Equal(t, -1, got, "%s %s", a, b)
			case i > j:
				require.Equal(t, 1, got, "%s %s", a, b)
			default:
				require.Zero(t, got)
			}
		}
	}
	require.Zero(t, CompareSequence("007", "7"))
	require.Equal(t, -1, CompareSequence("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"))
	require.Equal(t, -1, CompareSequence("0/16B3748", "0/16B3750"))
}

// One order for whatever a source sends: what is fenced does not depend on the
// way by which the newest one was reached. By bytes 10 < 1A < 2 stood beside
// 2 < 10.
func TestCompareSequenceIsAnOrder(t *testing.T) {
	for _, pair := range [][2]string{{"2", "10"}, {"10", "1A"}, {"2", "1A"}, {"99999999999999999999", ""}, {"5", "-1"}} {
		require.Equal(t, -1, CompareSequence(pair[0], pair[1]), "%v", pair)
		require.Equal(t, 1, CompareSequence(pair[1], pair[0]), "%v", pair)
	}
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.StringOfN(rapid.RuneFrom([]rune("0129A-")), 0, 4, -1)
		a, b, c := one.Draw(t, "a"), one.Draw(t, "b"), one.Draw(t, "c")
		require.Equal(t, -CompareSequence(a, b), CompareSequence(b, a))
		if CompareSequence(a, b) <= 0 && CompareSequence(b, c) <= 0 {
			require.LessOrEqual(t, CompareSequence(a, c), 0)
		}
	})
}
