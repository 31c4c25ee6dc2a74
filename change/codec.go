package change

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/wire"
)

// AppendRecord appends the JSON object that file, Kafka and webhook sinks
// emit: service, entity, op, version, key and, on an upsert, doc. The same
// change always has the same bytes.
func (c *Change) AppendRecord(dst []byte) []byte {
	dst = append(dst, `{"service":`...)
	dst = canonicaltree.AppendString(dst, c.Service)
	dst = append(dst, `,"entity":`...)
	dst = canonicaltree.AppendString(dst, c.Entity)
	dst = append(dst, `,"op":"`...)
	dst = append(dst, c.Op...)
	dst = append(dst, `","version":`...)
	dst = strconv.AppendUint(dst, uint64(c.Version), 10)
	dst = append(dst, `,"key":"`...)
	dst = append(dst, c.Key...)
	dst = append(dst, '"')
	if c.Op == Upsert {
		dst = append(dst, `,"doc":`...)
		dst = append(dst, c.Doc...)
	}
	return append(dst, '}')
}

// ErrMalformed is wrapped by the errors of DecodeRecord, Decode, ParseFrame and
// Slice.All: the bytes were not written by this package.
var ErrMalformed = errors.New("malformed record")

// binaryFormat is the first byte of a change's binary form. A reader refuses any that it
// does not know, so that a later form cannot be misread.
const binaryFormat = 1

// AppendBinary appends the compact form of c, from which its key follows. It is
// self-delimiting: forms may follow one another.
func (c *Change) AppendBinary(dst []byte) []byte {
	dst = append(dst, binaryFormat)
	dst = binary.AppendVarint(dst, c.Revision)
	return wire.Append(wire.Append(c.appendFields(wire.Append(dst, c.Service)), c.Content), c.Doc)
}

// Decode reads one change from the front of b and returns the rest. Content and
// Doc are sub-slices of b: b must not be changed while the change is in use.
// Its error wraps ErrMalformed.
func Decode(b []byte) (c Change, rest []byte, err error) {
	r := wire.Reader{Rest: b}
	if format := r.Byte(); !r.Failed && format != binaryFormat {
		return Change{}, nil, fmt.Errorf("%w: format %d, this build reads %d", ErrMalformed, format, binaryFormat)
	}
	c = Change{Revision: r.Varint(), Service: r.Text()}
	ok := c.readFields(&r)
	if c.Content, c.Doc = r.Bytes(), r.Bytes(); c.Op == Retract {
		c.Doc = nil
	}
	if !ok || r.Failed {
		return Change{}, nil, fmt.Errorf("%w: cut off or corrupt", ErrMalformed)
	}
	c.Key = Key(c.Service, c.Entity, c.Version, c.Content)
	return c, r.Rest, nil
}

// flags of a change.
const (
	flagRetract = 1 << iota
	flagTraced
	flagMoves // into the service or, with flagRetract, out of it
	flagPlanned
	flagMends
	flagAtSource
	flagEntered
	flagResent // from here on rare: they take another byte
	flagForced
)

// appendFields appends everything but service, revision, key, content and document. A resent
// change has the revision of the first time.
func (c *Change) appendFields(dst []byte) []byte {
	var flags uint64
	if c.Op == Retract {
		flags |= flagRetract
	}
	if c.Resent != 0 {
		flags |= flagResent
	}
	if c.Trace != nil {
		flags |= flagTraced
	}
	if c.Effect != Keeps {
		flags |= flagMoves
	}
	if c.Planned {
		flags |= flagPlanned
	}
	if c.Mends {
		flags |= flagMends
	}
	if c.Forced {
		flags |= flagForced
	}
	if !c.At.IsZero() {
		flags |= flagAtSource
	}
	if c.Entered != 0 {
		flags |= flagEntered
	}
	dst = binary.AppendUvarint(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Version))
	if c.Resent != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.Resent))
		dst = binary.AppendVarint(dst, c.Revision)
	}
	dst = binary.AppendVarint(dst, c.Time.UnixMilli())
	if flags&flagAtSource != 0 {
		dst = binary.AppendVarint(dst, c.Time.Sub(c.At).Milliseconds())
	}
	if c.Entered != 0 {
		dst = binary.AppendUvarint(dst, uint64(c.Entered))
	}
	dst = wire.Append(dst, c.Entity)
	if c.Trace != nil {
		dst = wire.Append(wire.Append(dst, c.Trace.Parent), c.Trace.State)
	}
	return dst
}

// readFields reads what appendFields wrote, and reports whether it did.
func (c *Change) readFields(r *wire.Reader) bool {
	flags := r.Uvarint()
	c.Version = Version(r.Uint64())
	if flags&flagResent != 0 {
		c.Resent, c.Revision = Version(r.Uint64()), r.Varint()
	}
	c.Time = time.UnixMilli(r.Varint()).UTC()
	if flags&flagAtSource != 0 {
		c.At = c.Time.Add(-time.Duration(r.Varint()) * time.Millisecond)
	}
	var entered uint64
	if flags&flagEntered != 0 {
		entered = r.Uvarint()
		c.Entered = Entered(entered)
	}
	c.Entity, c.Op = r.Text(), Upsert
	moved := Enters
	if flags&flagRetract != 0 {
		c.Op, moved = Retract, Leaves
	}
	if flags&flagMoves != 0 {
		c.Effect = moved
	}
	c.Planned, c.Mends, c.Forced = flags&flagPlanned != 0, flags&flagMends != 0, flags&flagForced != 0
	if flags&flagTraced != 0 {
		c.Trace = &Trace{Parent: r.Text(), State: r.Text()}
	}
	// What appendFields does not write.
	odd := flags > 2*flagForced-1 || flags&flagEntered != 0 && entered == 0 || entered > uint64(MaxEntered) ||
		flags&flagResent != 0 && c.Resent == 0 || c.Trace != nil && c.Trace.Parent == ""
	return !r.Failed && !odd && c.Version != 0 && c.Entity != ""
}
