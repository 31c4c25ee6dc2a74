package change

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/seed-86dfc502/weir/internal/wire"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const names = "a/b@c"

// collect reads a sequence up to its error.
func collect(seq iter.Seq2[Change, error]) (changes []Change, err error) {
	for c, e := range seq {
		if e != nil {
			return changes, e
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// serviceChanges are the changes of one service.
type serviceChanges struct {
	service int32
	changes []Change
}

func build(h Frame, all []serviceChanges) []byte {
	var b FrameBuilder
	for _, s := range all {
		for i := range s.changes {
			b.Add(s.service, &s.changes[i])
		}
	}
	return b.AppendTo(nil, h)
}

// keyed sets the key of a change.
func keyed(c *Change) *Change {
	c.Key = Key(c.Service, c.Entity, c.Version, c.Content)
	return c
}

// generatedFrame draws a header and the changes of a frame.
func generatedFrame(t *rapid.T) (h Frame, all []serviceChanges) {
	generation := rapid.Uint16Range(1, 1<<15-1).Draw(t, "generation")
	from := rapid.Int64Range(0, 1<<47).Draw(t, "from")
	to := from + rapid.Int64Range(1, 1000).Draw(t, "positions")
	h = Frame{
		From: NewVersion(generation, from), To: NewVersion(generation, to), Revision: rapid.Int64().Draw(t, "revision"),
	}
	h.Prev = Version(rapid.Uint64Range(0, uint64(h.From)).Draw(t, "prev"))
	numbers := rapid.SliceOfNDistinct(rapid.Int32Range(0, math.MaxInt32), 0, 5, rapid.ID).Draw(t, "services")
	slices.Sort(numbers)
	for _, n := range numbers {
		changes := rapid.SliceOfN(rapid.Custom(generated), 1, 6).Draw(t, "changes")
		for i := range changes {
			c := &changes[i]
			c.Service = names
			at := NewVersion(generation, rapid.Int64Range(from, to-1).Draw(t, "position"))
			if c.Resent != 0 {
				c.Resent = at // and its revision is its own
			} else {
				c.Version, c.Revision = at, h.Revision
			}
			keyed(c)
		}
		slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Position(), b.Position()) })
		all = append(all, serviceChanges{n, changes})
	}
	return h, all
}

// What decide puts into a frame is what deliver reads of it, service by service.
func TestFrameComesBack(t *testing.T) {
	var b FrameBuilder // is used again and again
	rapid.Check(t, func(t *rapid.T) {
		h, want := generatedFrame(t)
		bound := FrameHeader
		for _, s := range want {
			for i := range s.changes {
				b.Add(s.service, &s.changes[i])
				bound += s.changes[i].FrameSize()
			}
		}
		before := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "before")
		record := b.AppendTo(slices.Clone(before), h)
		require.True(t, bytes.Equal(before, record[:len(before)]))
		record = record[len(before):]
		require.LessOrEqual(t, len(record), bound)
		require.Equal(t, record, build(h, want), "the builder keeps nothing of the frame before")

		got, err := ParseFrame(record)
		require.NoError(t, err)
		head, err := ParseFrameHeader(record)
		require.NoError(t, err)
		for _, f := range []*Frame{got, head} {
			got := Frame{From: f.From, To: f.To, Prev: f.Prev, Revision: f.Revision}
			require.Equal(t, h, got)
			require.Len(t, f.Slices, len(want))
			for i, s := range f.Slices {
				require.Equal(t, want[i].service, s.Service)
				require.Equal(t, len(want[i].changes), s.Count)
			}
		}
		for i := range got.Slices {
			s := &got.Slices[i]
			require.LessOrEqual(t, s.Count, s.Bytes())
			for range 2 { // it can be read again
				changes, err := collect(s.All(names))
				require.NoError(t, err)
				require.Equal(t, want[i].changes, changes)
			}
		}
		// Cut off anywhere it is no whole frame.
		if cut := rapid.IntRange(0, len(record)-1).Draw(t, "cut"); len(want) > 0 {
			require.ErrorIs(t, readAll(record[:cut]), ErrMalformed)
		}
	})
}

// readAll reads all that a record holds.
func readAll(record []byte) error {
	f, err := ParseFrame(record)
	if err != nil {
		return err
	}
	for i := range f.Slices {
		if _, err := collect(f.Slices[i].All(names)); err != nil {
			return err
		}
	}
	return nil
}

func example() (Frame, []serviceChanges) {
	at := func(offset int64) Change {
		return Change{Entity: "e", Op: Upsert, Version: NewVersion(2, offset), Content: Retracted(), Time: time.UnixMilli(1_700_000_000_000), Doc: []byte(`{"a":[1,2,3]}`)}
	}
	traced, resent, gone := at(4), at(1), at(5)
	traced.Trace = &Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "vendor=1"}
	resent.Resent = NewVersion(2, 6)
	gone.Op, gone.Doc = Retract, nil
	return Frame{From: NewVersion(2, 3), To: NewVersion(2, 9), Prev: NewVersion(1, 7), Revision: 5},
		[]serviceChanges{{0, []Change{at(3), traced}}, {7, []Change{gone, resent, at(8)}}}
}

// A consumer that stops early is not called again.
func TestSliceStops(t *testing.T) {
	f, err := ParseFrame(build(example()))
	require.NoError(t, err)
	n := 0
	for _, err := range f.Slices[1].All(names) {
		require.NoError(t, err)
		if n++; n == 2 {
			break
		}
	}
	require.Equal(t, 2, n)
}

// A frame that no decision could have made is refused, with any part damaged.
func TestParseFrameRefuses(t *testing.T) {
	h, all := example()
	head := func(change func(*Frame)) []byte {
		// The header is written as AppendTo does, which would not write this one.
		f := h
		change(&f)
		record := build(h, all)
		for i, v := range []Version{f.From, f.To, f.Prev} {
			for j := range 8 {
				record[1+8*i+j] = byte(v >> (8 * (7 - j)))
			}
		}
		return record
	}
	require.NoError(t, readAll(head(func(*Frame) {})))
	short := build(h, all)
	with := func(docs, table, body string) []byte {
		record := slices.Clone(short[:1+3*8+1]) // up to the documents: the revision is a byte
		record = wire.Append(wire.Append(record, docs), table)
		return append(append(record, packedPlain), body...)
	}
	body := func(table, body string) []byte { return with("", table, body) }
	fields := "\x00\x02\x00\x00\x00\x00\x00\x03" + "\x00" + "\x01e"
	minimal, upsert := "\x01"+fields+"\x00\x01\xff", "\x00"+fields+"\x01"
	size, upsertSize := string(rune(len(minimal))), string(rune(len(upsert)))
	doc := "\x01\xff\x02"
	require.NoError(t, readAll(body("\x03\x01"+size+"\x00", minimal)), "the frames below are not damaged elsewhere")
	require.NoError(t, readAll(with(doc, "\x03\x01"+upsertSize+"\x02", "{}"+upsert)))
	for name, record := range map[string][]byte{
		"nothing":                       nil,
		"a later format":                append([]byte{frameFormat + 1}, short[1:]...),
		"no positions":                  head(func(f *Frame) { f.To = f.From }),
		"positions that go back":        head(func(f *Frame) { f.From, f.To = f.To, f.From }),
		"two generations":               head(func(f *Frame) { f.To = NewVersion(3, 1) }),
		"no generation":                 head(func(f *Frame) { f.From, f.To, f.Prev = 1, 2, 0 }),
		"a link into the future":        head(func(f *Frame) { f.Prev = f.From + 1 }),
		"a change before the first":     head(func(f *Frame) { f.From++ }),
		"a change behind the last":      head(func(f *Frame) { f.To-- }),
		"a table that is cut off":       body("\x03\x01", minimal),
		"a service twice":               body("\x03\x01"+size+"\x00\x03\x01"+size+"\x00", minimal+minimal),
		"services that descend":         body("\x03\x01"+size+"\x00\x02\x01"+size+"\x00", minimal+minimal),
		"a service without changes":     body("\x03\x00"+size+"\x00", minimal),
		"no such number":                body("\xff\xff\xff\xff\x08\x01"+size+"\x00", minimal),
		"more changes than bytes":       body("\x03\x7f"+size+"\x00", minimal),
		"a size beyond everything":      body("\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", minimal),
		"a count that turns negative":   body("\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", minimal),
		"fewer bytes than in table":     body("\x03\x01"+size+"\x00", minimal[1:]),
		"more bytes than in table":      body("\x03\x01"+size+"\x00", minimal+"\x00"),
		"more changes than counted":     body("\x03\x01"+string(rune(2*len(minimal)))+"\x00", minimal+minimal),
		"fewer changes than counted":    body("\x03\x02"+size+"\x00", minimal),
		"entered at an unknown time":    body("\x03\x01"+string(rune(len(minimal)+1))+"\x00", "\x81"+minimal[1:10]+"\x00"+minimal[10:]),
		"an entity without a name":      body("\x03\x01"+string(rune(len(minimal)-1))+"\x00", strings.Replace(minimal, "\x01e", "\x00", 1)),
		"sent once more, never before":  body("\x03\x01"+string(rune(len(minimal)+9))+"\x00", "\x02"+minimal[1:9]+strings.Repeat("\x00", 9)+minimal[9:]),
		"a trace without a parent":      body("\x03\x01"+string(rune(len(minimal)+2))+"\x00", "\x05"+fields+"\x00\x00"+"\x00\x01\xff"),
		"a document that is not there":  body("\x03\x01"+upsertSize+"\x00", upsert),
		"an upsert without a document":  with(doc, "\x03\x01"+size+"\x02", "{}\x00"+minimal[1:]),
		"a retraction with a document":  with(doc, "\x03\x01"+size+"\x02", "{}\x01"+fields+"\x01\x01\xff"),
		"a document beyond the frame":   with("\x01\xff\x7f", "\x03\x01"+size+"\x00", minimal),
		"documents not as in the table": with(doc, "\x03\x01"+upsertSize+"\x01", "{}"+upsert),
		"documents that are cut off":    with("\xff", "\x03\x01"+size+"\x00", minimal),
		"changes that are not packed":   short[:len(short)-1],
	} {
		require.ErrorIs(t, readAll(record), ErrMalformed, name)
	}
}

// An unreadable frame is not written.
func TestFrameBuilderPanics(t *testing.T) {
	h, all := example()
	c := all[0].changes[0]
	var b FrameBuilder
	b.Add(3, &c)
	require.Panics(t, func() { b.Add(2, &c) }, "services descend")
	earlier := c
	earlier.Version--
	require.Panics(t, func() { b.Add(3, &earlier) }, "positions descend")
	require.Panics(t, func() { b.Add(-1, &c) })
	for name, wrong := range map[string]Frame{
		"the change is before it": {From: h.From + 1, To: h.To}, "the change is behind it": {From: h.Prev, To: h.From},
		"no position": {From: h.From, To: h.From}, "a link into the future": {From: h.From, To: h.To, Prev: h.From + 1},
	} {
		require.Panics(t, func() { b.AppendTo(nil, wrong) }, name)
	}
	b.AppendTo(nil, h)
	b.Add(2, &c) // of the next frame
}

// A few bytes that claim to be a gigabyte, or millions of changes, get neither.
func TestAFrameIsNotBelieved(t *testing.T) {
	h, all := example()
	record := build(h, all)
	f, err := ParseFrameHeader(record)
	require.NoError(t, err)
	require.Len(t, f.Slices, 2)
	zeros := s2.Encode(nil, make([]byte, 16<<20))
	bomb := append(append(slices.Clone(record[:len(record)-len(f.packed)]), packedS2), zeros...)
	require.Less(t, allocated(func() { require.ErrorIs(t, readAll(bomb), ErrMalformed) }), uint64(1<<20))
}

// Any bytes in the log are a frame, or malformed,
// and cost no more memory than their size allows.
func FuzzParseFrame(f *testing.F) {
	h, all := example()
	f.Add(build(h, all))
	f.Add(build(h, nil))
	f.Add(build(h, []serviceChanges{{1, slices.Repeat(all[0].changes[:1], 50)}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 { // what it may stand for takes seconds to go through
			return
		}
		head, headErr := ParseFrameHeader(b)
		got, err := ParseFrame(b)
		if headErr != nil {
			require.ErrorIs(t, headErr, ErrMalformed)
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		require.Less(t, head.From, head.To)
		require.LessOrEqual(t, head.Prev, head.From)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		var back []serviceChanges
		size := 0
		for i := range got.Slices {
			s := &got.Slices[i]
			size += s.Bytes()
			changes, err := collect(s.All(names))
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				return
			}
			require.Len(t, changes, s.Count)
			back = append(back, serviceChanges{s.Service, changes})
		}
		require.LessOrEqual(t, size, maxRatio*len(b))
		// A parsed frame can be written, and is the same then.
		again, err := ParseFrame(build(*got, back))
		require.NoError(t, err)
		for i := range again.Slices {
			changes, err := collect(again.Slices[i].All(names))
			require.NoError(t, err)
			require.Equal(t, back[i].changes, changes)
		}
	})
}

// However many services get a document, the frame has it and its content once, and no key.
func TestAFrameHasEachDocumentOnce(t *testing.T) {
	doc := []byte(`{"text":"` + strings.Repeat("x", 1<<16) + `"}`)
	var b FrameBuilder
	var meter FrameMeter
	size := 0
	change := func(service int32) *Change {
		return keyed(&Change{Service: fmt.Sprint(service), Entity: "B", Op: Upsert, Version: NewVersion(1, 7), Content: Retracted(), Doc: doc, Time: time.UnixMilli(0).UTC()})
	}
	for service := range int32(200) {
		b.Add(service, change(service))
		size = meter.Add(change(service))
	}
	retraction := *change(200)
	retraction.Op, retraction.Doc = Retract, nil
	b.Add(200, &retraction)
	require.Less(t, size, len(doc)+200*256)
	record := b.AppendTo(nil, Frame{From: NewVersion(1, 7), To: NewVersion(1, 8)})
	f, err := ParseFrame(record)
	require.NoError(t, err)
	require.Equal(t, len(doc), f.Shared())
	var first *byte
	for i := range f.Slices[:200] {
		require.Less(t, f.Slices[i].Own(), 16+len("B"))
		for c, err := range f.Slices[i].All(fmt.Sprint(i)) {
			require.NoError(t, err)
			require.Equal(t, change(int32(i)), &c)
			if first == nil {
				first = &c.Doc[0]
			}
			require.Same(t, first, &c.Doc[0])
		}
	}
	// The builder forgets the documents of the last frame.
	b.Add(1, change(1))
	f, err = ParseFrame(b.AppendTo(nil, Frame{From: NewVersion(1, 7), To: NewVersion(1, 8)}))
	require.NoError(t, err)
	require.Equal(t, len(doc), f.Shared())
}
