package change

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"unsafe"

	"github.com/seed-86dfc502/weir/internal/wire"
)

// Frame is one row of the changes log: all changes that one decision made in
// one inbox partition, service by service.
type Frame struct {
	// From and To are the inbox positions that were decided: From is the first,
	// To the one behind the last.
	From, To Version
	// Prev is the To of the partition's frame before this one, 0 for the first.
	Prev Version
	// Revision of the configuration that decided it.
	Revision int64
	// Slices are in ascending order of their services.
	Slices []Slice

	docs   []document // nil until the frame is open
	head   []byte     // contents and sizes of the documents; nil once it is open
	count  int        // of them
	shared int        // their bytes
	packed []byte     // texts of documents, and changes; nil once it is open
}

// document is a document that a frame holds once for all changes that carry it.
type document struct {
	content Content
	text    []byte
}

// Shared is the size of the documents of the frame, decompressed. Each document is stored once,
// for all changes that carry it.
func (f *Frame) Shared() int { return f.shared }

// Slice is the changes of one service in a frame, in their order: that of their
// positions, which are positions of the frame.
type Slice struct {
	Service int32 // the store's number of it
	Count   int

	size  int // of body
	docs  int // bytes of the documents of its changes
	frame *Frame
	body  []byte // nil until the frame is open
}

// FrameBuilder makes the bytes of frames. The zero value is ready. It may be used again after
// AppendTo, by one goroutine at a time. Wrong use would make an unreadable frame, so it panics.
type FrameBuilder struct {
	docs        []byte // contents and sizes of the documents in texts
	texts       []byte // documents, one behind the other
	shared      map[docID]carriedDoc
	last        docID // of the change before
	lastDoc     carriedDoc
	documents   int
	table, body []byte
	service     int32
	count       int
	carried     int     // bytes of the documents of the open slice
	start       int     // of the open slice in body
	position    Version // of the change before, in the open slice
	low, high   Version // positions of the frame
	open        bool
}

// docID identifies a document in memory: changes of one decision share its bytes.
type docID struct {
	first *byte
	size  int
}

func idOf(doc []byte) docID { return docID{unsafe.SliceData(doc), len(doc)} } //nolint:gosec // compared only

// carriedDoc is a document of the frame, by its number from 1.
type carriedDoc struct {
	number  int
	content Content
}

// A FrameMeter measures the record of a frame before it is made. The zero value is empty.
type FrameMeter struct {
	size int
	docs map[docID]bool
	last docID // the document counted last
}

// Reset makes m empty.
func (m *FrameMeter) Reset() {
	clear(m.docs)
	m.size, m.last = 0, docID{}
}

// Add counts c in, and returns at least how many bytes the record has then.
func (m *FrameMeter) Add(c *Change) int {
	if m.docs == nil {
		m.docs = map[docID]bool{}
	}
	if m.size == 0 {
		m.size = FrameHeader
	}
	m.size += c.frameSize()
	if id := idOf(c.Doc); len(c.Doc) > 0 && id != m.last {
		if m.last = id; !m.docs[id] {
			m.docs[id] = true
			m.size += c.docSize()
		}
	}
	return m.size
}

const frameFormat = 1

// FrameHeader is at least how many bytes of a record are not its changes.
const FrameHeader = 64

// FrameSize is at least how many bytes c adds to the record of a frame that has no other
// change with its document.
func (c *Change) FrameSize() int { return c.frameSize() + c.docSize() }

// docSize is at least how many bytes the document of c adds, with its content.
func (c *Change) docSize() int { return len(c.Doc) + len(c.Content) + 2*binary.MaxVarintLen32 }

func (c *Change) frameSize() int {
	// Flags, version, times, three lengths, and a row of the table for itself.
	n := 1 + 8 + 2*binary.MaxVarintLen64 + binary.MaxVarintLen32 + 3*binary.MaxVarintLen32 + 3*binary.MaxVarintLen32
	n += len(c.Entity)
	if len(c.Doc) == 0 {
		n += len(c.Content)
	}
	if c.Resent != 0 {
		n += 8 + binary.MaxVarintLen64
	}
	if c.Trace != nil {
		n += 2*binary.MaxVarintLen32 + len(c.Trace.Parent) + len(c.Trace.State)
	}
	return n
}

// Add appends a change of a service. Services must come in ascending order, and the changes of a
// service in the order of their positions.
func (b *FrameBuilder) Add(service int32, c *Change) {
	position := c.Position()
	if !b.open || service != b.service {
		if service < 0 || len(b.body) > 0 && service < b.service {
			panic(fmt.Sprintf("change: service %d behind %d in a frame", service, b.service))
		}
		b.endSlice()
		b.open, b.service, b.start, b.count, b.carried, b.position = true, service, len(b.body), 0, 0, position
	}
	if position < b.position {
		panic(fmt.Sprintf("change: position %v behind %v in a frame", position, b.position))
	}
	if b.position = position; len(b.body) == 0 {
		b.low, b.high = position, position
	}
	b.low, b.high = min(b.low, position), max(b.high, position)
	b.count++
	b.carried += len(c.Doc)
	b.body = binary.AppendUvarint(c.appendFields(b.body), uint64(b.document(c)))
	if c.Op == Retract {
		b.body = wire.Append(b.body, c.Content)
	}
}

// document returns the number of a change's document in the frame, from 1, or 0 without one.
func (b *FrameBuilder) document(c *Change) int {
	if c.Op == Retract {
		return 0
	}
	id := idOf(c.Doc)
	if id == b.last && bytes.Equal(b.lastDoc.content, c.Content) && len(c.Doc) > 0 {
		return b.lastDoc.number
	}
	d, known := b.shared[id]
	if !known || len(c.Doc) == 0 || !bytes.Equal(d.content, c.Content) {
		if b.shared == nil {
			b.shared = map[docID]carriedDoc{}
		}
		b.docs = binary.AppendUvarint(wire.Append(b.docs, c.Content), uint64(len(c.Doc)))
		b.texts = append(b.texts, c.Doc...)
		b.documents++
		d = carriedDoc{b.documents, c.Content}
		b.shared[id] = d
	}
	b.last, b.lastDoc = id, d
	return d.number
}

func (b *FrameBuilder) endSlice() {
	if !b.open {
		return
	}
	b.table = binary.AppendUvarint(b.table, uint64(b.service))
	b.table = binary.AppendUvarint(b.table, uint64(b.count))
	b.table = binary.AppendUvarint(b.table, uint64(len(b.body)-b.start))
	b.table = binary.AppendUvarint(b.table, uint64(b.carried))
	b.open = false
}

// AppendTo appends the record of a frame with the header of h and the added
// changes, and makes the builder empty. Every position must be a position of h.
func (b *FrameBuilder) AppendTo(dst []byte, h Frame) []byte {
	if len(b.body) > 0 && (b.low < h.From || b.high >= h.To) || h.From >= h.To || h.Prev > h.From {
		panic(fmt.Sprintf("change: frame from %v to %v behind %v, of positions from %v to %v", h.From, h.To, h.Prev, b.low, b.high))
	}
	b.endSlice()
	dst = append(dst, frameFormat)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.From))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.To))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Prev))
	dst = binary.AppendVarint(dst, h.Revision)
	dst = wire.Append(wire.Append(dst, b.docs), b.table)
	b.texts = append(b.texts, b.body...)
	dst = appendPacked(dst, b.texts)
	b.docs, b.texts, b.table, b.body, b.documents = b.docs[:0], b.texts[:0], b.table[:0], b.body[:0], 0
	clear(b.shared)
	b.last, b.lastDoc = docID{}, carriedDoc{}
	return dst
}

// ParseFrame reads a row of the changes log. Changes are decoded when Slice.All asks for them.
// They share the frame's bytes, which must not change. May be called concurrently. Its error
// wraps ErrMalformed.
func ParseFrame(record []byte) (*Frame, error) {
	f, err := ParseFrameHeader(record)
	if err != nil {
		return nil, err
	}
	if err := f.Open(); err != nil {
		return nil, err
	}
	return f, nil
}

// Open decompresses the changes of a frame that ParseFrameHeader read; once is
// enough, and not concurrently. Its error wraps ErrMalformed.
func (f *Frame) Open() error {
	if f.Opened() {
		return nil
	}
	body, err := unpack(f.packed)
	if err != nil {
		return err
	}
	if f.shared > len(body) {
		return fmt.Errorf("%w: documents are longer than the frame", ErrMalformed)
	}
	docs, head := make([]document, f.count), wire.Reader{Rest: bytes.Clone(f.head)} // an open frame does not hold its record
	for i := range docs {
		d := &docs[i]
		d.content = head.Bytes()
		size := head.Uvarint()
		d.text, body = body[:size:size], body[size:]
	}
	for i := range f.Slices {
		s := &f.Slices[i]
		if s.size > len(body) {
			return fmt.Errorf("%w: a slice is longer than the frame", ErrMalformed)
		}
		s.body, body = body[:s.size:s.size], body[s.size:]
	}
	if len(body) > 0 {
		return fmt.Errorf("%w: %d bytes of no service", ErrMalformed, len(body))
	}
	f.docs, f.head, f.packed = docs, nil, nil
	return nil
}

// ParseFrameHeader is ParseFrame without the changes, which Open makes readable.
func ParseFrameHeader(record []byte) (*Frame, error) {
	r := wire.Reader{Rest: record}
	if format := r.Byte(); !r.Failed && format != frameFormat {
		return nil, fmt.Errorf("%w: frame format %d, this build reads %d", ErrMalformed, format, frameFormat)
	}
	f := &Frame{}
	f.From, f.To, f.Prev = Version(r.Uint64()), Version(r.Uint64()), Version(r.Uint64())
	f.Revision = r.Varint()
	f.head = r.Bytes()
	docs := wire.Reader{Rest: f.head}
	table := wire.Reader{Rest: r.Bytes()}
	if r.Failed || f.From >= f.To || f.Prev > f.From ||
		f.From.Generation() == 0 || f.From.Generation() != f.To.Generation() {
		return nil, fmt.Errorf("%w: header of a frame", ErrMalformed)
	}
	for len(docs.Rest) > 0 && !docs.Failed {
		docs.Bytes()
		size := docs.Uvarint()
		docs.Failed = docs.Failed || size > uint64(maxUnpacked-f.shared)
		f.count, f.shared = f.count+1, f.shared+int(size)
	}
	if docs.Failed {
		return nil, fmt.Errorf("%w: documents of a frame", ErrMalformed)
	}
	for len(table.Rest) > 0 && !table.Failed {
		service, count, size, docs := table.Uvarint(), table.Uvarint(), table.Uvarint(), table.Uvarint()
		if docs > math.MaxInt || service > math.MaxInt32 || count == 0 || count > size || size > maxUnpacked || len(f.Slices) > 0 && int32(service) <= f.Slices[len(f.Slices)-1].Service {
			table.Failed = true
			break
		}
		f.Slices = append(f.Slices, Slice{Service: int32(service), Count: int(count), size: int(size), docs: int(docs), frame: f})
	}
	if table.Failed {
		return nil, fmt.Errorf("%w: table of a frame", ErrMalformed)
	}
	f.packed = r.Rest
	return f, nil
}

// Opened reports whether the changes are readable.
func (f *Frame) Opened() bool { return f.packed == nil }

// Bytes is the size of the slice's changes with their documents, decompressed.
func (s *Slice) Bytes() int { return s.size + s.docs }

// Own is the size of the slice's changes without their documents, which may be shared.
func (s *Slice) Own() int { return s.size }

// All returns the changes of the slice, for the service with this name, and an
// error wrapping ErrMalformed as the last element if they cannot be read to their
// end.
func (s *Slice) All(name string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		r, position := wire.Reader{Rest: s.body}, s.frame.From
		carried := 0
		for range s.Count {
			c := Change{Service: name, Revision: s.frame.Revision}
			ok := c.readFields(&r)
			document := r.Uvarint()
			switch {
			case c.Op == Retract:
				ok, c.Content = ok && document == 0, r.Bytes()
			case document == 0 || document > uint64(len(s.frame.docs)):
				ok = false
			default:
				d := &s.frame.docs[document-1]
				c.Content, c.Doc = d.content, d.text
				carried += len(c.Doc)
			}
			if !ok || r.Failed || c.Position() < position || c.Position() >= s.frame.To {
				yield(Change{}, fmt.Errorf("%w: change of %s", ErrMalformed, name))
				return
			}
			position, c.Key = c.Position(), Key(name, c.Entity, c.Version, c.Content)
			if !yield(c, nil) {
				return
			}
		}
		if len(r.Rest) > 0 || carried != s.docs {
			yield(Change{}, fmt.Errorf("%w: more changes of %s than were counted", ErrMalformed, name))
		}
	}
}

// Position is the position of the inbox record that put the change into the log. For a resent
// change that is the control record.
func (c *Change) Position() Version {
	if c.Resent != 0 {
		return c.Resent
	}
	return c.Version
}
