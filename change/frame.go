package change

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"time"
)

// Frame is one record of the changes log: all changes that one decision made in
// one inbox partition, service by service. The same bytes stand in the outbox.
type Frame struct {
	// From and To are the inbox positions that were decided: From is the first,
	// To the one behind the last.
	From, To Version
	// Prev is the To of the partition's frame before this one, 0 for the first.
	Prev Version
	// Revision of the configuration that decided it.
	Revision int64
	// Part and Last cut the changes of a single position, when they are too large
	// for one record, into several frames with the same From, To and Prev: Part
	// counts from 0. A frame that is not cut is part 0 and the last.
	Part int
	Last bool
	// Slices are in ascending order of their services.
	Slices []Slice
}

// Slice is the changes of one service in a frame, in their order.
type Slice struct {
	Service int32 // the store's number of it
	Count   int

	revision int64
	body     []byte
}

// FrameBuilder makes the bytes of frames. The zero value is ready; it may be used
// again after AppendTo, by one goroutine at a time.
type FrameBuilder struct {
	table, body []byte
	service     int32
	count       int
	start       int
	open        bool
}

const frameFormat = 1

// flags of a change in a frame.
const (
	frameRetract = 1 << iota
	frameResent
	frameTraced
)

// Size returns about how many bytes the frame has so far, before compression.
func (b *FrameBuilder) Size() int { return len(b.table) + len(b.body) }

// Add appends a change of a service. Services must come in ascending order, the
// changes of one service in theirs.
func (b *FrameBuilder) Add(service int32, c *Change) {
	if !b.open || service != b.service {
		b.endSlice()
		b.open, b.service, b.start, b.count = true, service, len(b.body), 0
	}
	b.count++
	var flags byte
	if c.Op == Retract {
		flags |= frameRetract
	}
	if c.Resent != 0 {
		flags |= frameResent
	}
	if c.Trace != nil {
		flags |= frameTraced
	}
	d := append(b.body, flags)
	d = binary.BigEndian.AppendUint64(d, uint64(c.Version))
	if c.Resent != 0 {
		d = binary.BigEndian.AppendUint64(d, uint64(c.Resent))
		d = binary.AppendVarint(d, c.Revision) // that of the first time
	}
	d = binary.AppendVarint(d, c.Time.UnixMilli())
	d = appendBytes(d, c.Entity)
	d = appendBytes(d, c.Key)
	d = appendBytes(d, c.Content)
	d = appendBytes(d, c.Doc)
	if c.Trace != nil {
		d = appendBytes(appendBytes(d, c.Trace.Parent), c.Trace.State)
	}
	b.body = d
}

func (b *FrameBuilder) endSlice() {
	if !b.open {
		return
	}
	b.table = binary.AppendUvarint(b.table, uint64(b.service))
	b.table = binary.AppendUvarint(b.table, uint64(b.count))
	b.table = binary.AppendUvarint(b.table, uint64(len(b.body)-b.start))
	b.open = false
}

// AppendTo appends the record of a frame with the header of h and what was
// added, and makes the builder empty.
func (b *FrameBuilder) AppendTo(dst []byte, h Frame) []byte {
	b.endSlice()
	last := byte(0)
	if h.Last {
		last = 1
	}
	dst = append(dst, frameFormat, last)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.From))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.To))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Prev))
	dst = binary.AppendVarint(dst, h.Revision)
	dst = binary.AppendUvarint(dst, uint64(h.Part))
	dst = appendBytes(dst, b.table)
	dst = AppendPacked(dst, b.body)
	b.table, b.body = b.table[:0], b.body[:0]
	return dst
}

// ParseFrame reads a record of the changes log. Changes are decoded when Slice.All
// asks for them; they share the frame's bytes, which must not change. May be
// called concurrently. Its error wraps ErrMalformed.
func ParseFrame(record []byte) (*Frame, error) {
	f, packed, sizes, err := parseHeader(record)
	if err != nil {
		return nil, err
	}
	body, err := Unpack(packed)
	if err != nil {
		return nil, err
	}
	for i, size := range sizes {
		if size > uint64(len(body)) {
			return nil, fmt.Errorf("%w: a slice is longer than the frame", ErrMalformed)
		}
		f.Slices[i].body, body = body[:size:size], body[size:]
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%w: %d bytes of no service", ErrMalformed, len(body))
	}
	return f, nil
}

// ParseFrameHeader is ParseFrame without the changes: slices have a service and a
// count alone.
func ParseFrameHeader(record []byte) (*Frame, error) {
	f, _, _, err := parseHeader(record)
	return f, err
}

func parseHeader(record []byte) (f *Frame, packed []byte, sizes []uint64, err error) {
	r := reader{b: record}
	if format := r.byte(); !r.failed && format != frameFormat {
		return nil, nil, nil, fmt.Errorf("%w: frame format %d, this build reads %d", ErrMalformed, format, frameFormat)
	}
	f = &Frame{}
	last := r.byte()
	f.Last = last == 1
	f.From, f.To, f.Prev = Version(r.uint64()), Version(r.uint64()), Version(r.uint64())
	f.Revision = r.varint()
	part := r.uvarint()
	table := reader{b: r.bytes()}
	if r.failed || last > 1 || f.From >= f.To || f.Prev > f.From || f.From.Generation() == 0 || part > math.MaxInt32 {
		return nil, nil, nil, fmt.Errorf("%w: header of a frame", ErrMalformed)
	}
	f.Part = int(part)
	for len(table.b) > 0 && !table.failed {
		service, count, size := table.uvarint(), table.uvarint(), table.uvarint()
		if service > math.MaxInt32 || count == 0 || count > size || len(f.Slices) > 0 && int32(service) <= f.Slices[len(f.Slices)-1].Service {
			table.failed = true
			break
		}
		f.Slices = append(f.Slices, Slice{Service: int32(service), Count: int(count), revision: f.Revision})
		sizes = append(sizes, size)
	}
	if table.failed {
		return nil, nil, nil, fmt.Errorf("%w: table of a frame", ErrMalformed)
	}
	return f, r.b, sizes, nil
}

// Bytes is the size of the slice's changes, decompressed.
func (s *Slice) Bytes() int { return len(s.body) }

// All returns the changes of the slice, for the service with this name, and an
// error wrapping ErrMalformed as the last element if they cannot be read to their
// end.
func (s *Slice) All(name string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		r := reader{b: s.body}
		for range s.Count {
			c, ok := s.next(&r, name)
			if !ok {
				yield(Change{}, fmt.Errorf("%w: change of %s", ErrMalformed, name))
				return
			}
			if !yield(c, nil) {
				return
			}
		}
		if len(r.b) > 0 {
			yield(Change{}, fmt.Errorf("%w: more changes of %s than were counted", ErrMalformed, name))
		}
	}
}

func (s *Slice) next(r *reader, name string) (Change, bool) {
	c := Change{Service: name, Op: Upsert, Revision: s.revision}
	flags := r.byte()
	c.Version = Version(r.uint64())
	if flags&frameResent != 0 {
		c.Resent = Version(r.uint64())
		c.Revision = r.varint()
	}
	c.Time = time.UnixMilli(r.varint()).UTC()
	c.Entity, c.Key = string(r.bytes()), string(r.bytes())
	c.Content, c.Doc = Content(r.bytes()), r.bytes()
	if flags&frameRetract != 0 {
		c.Op, c.Doc = Retract, nil
	}
	if flags&frameTraced != 0 {
		c.Trace = &Trace{Parent: string(r.bytes()), State: string(r.bytes())}
	}
	return c, !r.failed && c.Version != 0 && c.Entity != ""
}

// Place is the position of the inbox record that put the change into the log: of
// the control record for one that is sent once more.
func (c *Change) Place() Version {
	if c.Resent != 0 {
		return c.Resent
	}
	return c.Version
}
