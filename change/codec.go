package change

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// AppendRecord appends the JSON object that file, Kafka and webhook sinks
// emit: service, entity, op, version, key and, on an upsert, doc. The same
// change always gives the same bytes.
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

// The first byte of the binary form is its version; a reader refuses any that
// it does not know, so that a later form cannot be misread. A change without a
// trace keeps the first form, which every build reads.
const (
	formatVersion = 1
	tracedVersion = 2 // two more fields at the end, of Trace
)

// resentFlag turns the letter of the operation into a capital: a resent change,
// which has one more field.
const resentFlag = 'a' - 'A'

// RepublishedHeader is set on a record of the changes log that was published from
// the outbox at a take-over: the same frame may stand further up in the log,
// before newer ones.
const RepublishedHeader = "weir-republished"

// ErrMalformed is what Decode, ParseFrame and Slice.All return, wrapped,
// for bytes that this package did not write.
var ErrMalformed = errors.New("malformed change")

// AppendBinary appends the compact form of c. It is self-delimiting: forms may
// stand one after the other.
func (c *Change) AppendBinary(dst []byte) []byte {
	version := byte(formatVersion)
	if c.Trace != nil {
		version = tracedVersion
	}
	dst = append(dst, version)
	flag := byte('u')
	if c.Op == Retract {
		flag = 'r'
	}
	if c.Resent != 0 {
		flag ^= resentFlag
	}
	dst = append(dst, flag)
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Version))
	if c.Resent != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(c.Resent))
	}
	dst = binary.AppendVarint(dst, c.Revision)
	dst = binary.AppendVarint(dst, c.Time.UnixMilli())
	dst = appendBytes(dst, c.Service)
	dst = appendBytes(dst, c.Entity)
	dst = appendBytes(dst, c.Key)
	dst = appendBytes(dst, c.Content)
	dst = appendBytes(dst, c.Doc)
	if c.Trace != nil {
		dst = appendBytes(appendBytes(dst, c.Trace.Parent), c.Trace.State)
	}
	return dst
}

func appendBytes[T string | []byte | Content](dst []byte, b T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// Decode reads one change from the front of b and returns the rest. Content and
// Doc are sub-slices of b: b must not be changed while the change is in use.
// Its error wraps ErrMalformed.
func Decode(b []byte) (c Change, rest []byte, err error) {
	r := reader{b: b}
	version := r.byte()
	if version != formatVersion && version != tracedVersion && !r.failed {
		return Change{}, nil, fmt.Errorf("%w: format %d, this build reads %d and %d", ErrMalformed, version, formatVersion, tracedVersion)
	}
	flag := r.byte()
	switch flag | resentFlag {
	case 'u':
		c.Op = Upsert
	case 'r':
		c.Op = Retract
	default:
		r.failed = true
	}
	c.Version = Version(r.uint64())
	if flag&resentFlag == 0 {
		if c.Resent = Version(r.uint64()); c.Resent == 0 {
			r.failed = true // AppendBinary writes no zero
		}
	}
	c.Revision = r.varint()
	c.Time = time.UnixMilli(r.varint()).UTC()
	c.Service = string(r.bytes())
	c.Entity = string(r.bytes())
	c.Key = string(r.bytes())
	c.Content = Content(r.bytes())
	c.Doc = r.bytes()
	if version == tracedVersion {
		c.Trace = &Trace{Parent: string(r.bytes()), State: string(r.bytes())}
		if c.Trace.Parent == "" {
			r.failed = true // AppendBinary writes none
		}
	}
	if r.failed {
		return Change{}, nil, fmt.Errorf("%w: cut off or corrupt", ErrMalformed)
	}
	if c.Op == Retract {
		c.Doc = nil
	}
	return c, r.b, nil
}

// reader cuts fields off the front of b; after the first failure every
// further read returns zero values.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n uint64) []byte {
	if r.failed || n > uint64(len(r.b)) {
		r.failed = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.failed = true
		return 0
	}
	r.take(uint64(n))
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.failed = true
		return 0
	}
	r.take(uint64(n))
	return v
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }
