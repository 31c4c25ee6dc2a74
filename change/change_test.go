package change

import (
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func generated(t *rapid.T) Change {
	c := Change{
		Service: rapid.StringMatching(`[a-z]{1,9}/[a-z]{1,9}@[a-z]{1,9}`).Draw(t, "service"),
		Entity:  rapid.StringN(1, 20, -1).Draw(t, "entity"),
		Op:      rapid.SampledFrom([]Op{Upsert, Retract}).Draw(t, "op"),
		Version: NewVersion(rapid.Uint16Range(1, 1<<15-1).Draw(t, "generation"), rapid.Int64Range(0, 1<<48-1).Draw(t, "offset")),
		Content: Retracted(), Revision: rapid.Int64().Draw(t, "revision"),
		Time: time.UnixMilli(rapid.Int64Range(-1<<40, 1<<42).Draw(t, "time")).UTC(),
	}
	if rapid.Bool().Draw(t, "moves") {
		c.Effect = map[Op]Effect{Upsert: Enters, Retract: Leaves}[c.Op]
	}
	c.Entered = Entered(rapid.Uint32Range(0, uint32(MaxEntered)).Draw(t, "entered"))
	if rapid.Bool().Draw(t, "at") {
		c.At = time.UnixMilli(rapid.Int64Range(-1<<40, 1<<42).Draw(t, "at the source")).UTC()
	}
	if rapid.Bool().Draw(t, "resent") {
		c.Resent = NewVersion(c.Version.Generation(), rapid.Int64Range(0, 1<<48-1).Draw(t, "resent at"))
	}
	if rapid.Bool().Draw(t, "traced") {
		c.Trace = &Trace{Parent: rapid.StringN(1, 55, -1).Draw(t, "parent"), State: rapid.String().Draw(t, "state")}
	}
	if c.Op == Upsert {
		text, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "doc"))
		require.NoError(t, err)
		c.Doc = text
		d, err := canonicaltree.Sum(text, canonicaltree.Literal)
		require.NoError(t, err)
		c.Content = Hashed(canonicaltree.Scheme, d)
	}
	c.Key = Key(c.Service, c.Entity, c.Version, c.Content)
	return c
}

// decodeAll reads what AppendBinary appended one behind the other.
func decodeAll(b []byte) (all []Change, err error) {
	for len(b) > 0 {
		var c Change
		if c, b, err = Decode(b); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Appended changes come back, one behind the other.
func TestBinaryFormComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(generated), 0, 5).Draw(t, "changes")
		var b []byte
		for i := range want {
			b = want[i].AppendBinary(b)
		}
		got, err := decodeAll(b)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i], got[i])
		}
		if len(b) > 0 {
			_, err = decodeAll(b[:len(b)-1])
			require.ErrorIs(t, err, ErrMalformed, "cut off")
		}
	})
}

// The record that customers get is one JSON object with the members of the
// design, and doc is absent on a retraction.
func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := generated(t)
		var r map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(c.AppendRecord(nil), &r))
		var entity string
		require.NoError(t, json.Unmarshal(r["entity"], &entity))
		require.Equal(t, c.Entity, entity)
		_, has := r["doc"]
		require.Equal(t, c.Op == Upsert, has)
		if has {
			require.Equal(t, string(c.Doc), string(r["doc"]))
		}
		require.Len(t, r, map[bool]int{true: 6, false: 5}[has])
	})
}

// A trace changes nothing that a customer gets or compares.
func TestTraceStandsBesideTheChange(t *testing.T) {
	plain, err := hex.DecodeString("010205612f624063" + "00" + "0001000000000007" + "80a0abfef962" + "0165" + "01ff027b7d")
	require.NoError(t, err)
	c, rest, err := Decode(plain)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, Change{
		Service: "a/b@c", Entity: "e", Op: Upsert, Version: NewVersion(1, 7), Key: Key("a/b@c", "e", NewVersion(1, 7), Retracted()), Content: Retracted(), Revision: 1,
		Time: time.UnixMilli(1_700_000_000_000).UTC(), Doc: []byte("{}"),
	}, c)
	require.Equal(t, plain, c.AppendBinary(nil))

	traced := c
	traced.Trace = &Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=1"}
	require.Equal(t, c.AppendRecord(nil), traced.AppendRecord(nil))
	back, rest, err := Decode(append(traced.AppendBinary(nil), plain...))
	require.NoError(t, err)
	require.Equal(t, traced, back)
	require.Equal(t, plain, rest)

	traced.Trace = &Trace{State: "vendor=1"}
	_, _, err = Decode(traced.AppendBinary(nil))
	require.ErrorIs(t, err, ErrMalformed, "a trace without parent")
	_, _, err = Decode([]byte{3})
	require.ErrorIs(t, err, ErrMalformed, "a later form")
}

// Every part of the key's input changes the key, and where one part ends and
// the next begins does too.
func TestKeyTellsApart(t *testing.T) {
	v, c := NewVersion(1, 7), Retracted()
	keys := map[string]string{
		"base":    Key("a/b@c", "e", v, c),
		"service": Key("a/b@d", "e", v, c),
		"entity":  Key("a/b@c", "f", v, c),
		"version": Key("a/b@c", "e", v+1, c),
		"content": Key("a/b@c", "e", v, Hashed(1, canonicaltree.Digest{})),
		"border":  Key("a/b@ce", "", v, c),
	}
	seen := map[string]string{}
	for name, k := range keys {
		require.Len(t, k, 32)
		require.Empty(t, seen[k], name)
		seen[k] = name
	}
	require.Equal(t, keys["base"], Key("a/b@c", "e", v, c))
}

func TestVersion(t *testing.T) {
	v := NewVersion(3, 1<<48-1)
	require.Equal(t, uint16(3), v.Generation())
	require.Equal(t, int64(1<<48-1), v.Offset())
	require.Less(t, v, NewVersion(4, 0), "a new generation is newer than every offset of the old one")
	require.Panics(t, func() { NewVersion(0, 1) })
	require.Panics(t, func() { NewVersion(1, 1<<48) })
	require.Panics(t, func() { NewVersion(1, -1) })
}

func TestContent(t *testing.T) {
	require.Equal(t, "unknown", Content(nil).String())
	require.Equal(t, "retracted", Retracted().String())
	h := Hashed(1, canonicaltree.Digest{0xAB})
	require.Equal(t, uint8(1), h.Scheme())
	require.Zero(t, Retracted().Scheme())
	require.Contains(t, h.String(), "1:ab")
}

func FuzzDecode(f *testing.F) {
	c := Change{Service: "a/b@c", Entity: "e", Op: Upsert, Version: NewVersion(1, 2), Content: Retracted(), Doc: []byte("{}")}
	f.Add(c.AppendBinary(nil))
	c.Trace = &Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=1"}
	f.Add(c.AppendBinary(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeAll(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		var again []byte
		for i := range all {
			again = all[i].AppendBinary(again)
		}
		back, err := decodeAll(again)
		require.NoError(t, err)
		require.Equal(t, all, back)
	})
}

func TestEventMark(t *testing.T) {
	mark := EventMark("e", []byte("a"))
	require.Equal(t, mark, EventMark("e", []byte("a")))
	for _, other := range []Mark{EventMark("f", []byte("a")), EventMark("e", []byte("b")), EventMark("", []byte("ae")), EventMark("ae", nil)} {
		require.NotEqual(t, EventMark("e", []byte("a")), other)
	}
}
