package change

import (
	"fmt"
	"iter"
	"slices"

	"github.com/klauspost/compress/s2"
)

// A packed record is what stands in a changes topic: changes of one service and
// one decision, in their order, compressed once. The same bytes stand in the
// outbox.
const (
	packedPlain = 1
	packedS2    = 2 // an S2 block (github.com/klauspost/compress/s2)
)

// What AppendPacked writes stays within these bounds, and Unpack refuses what
// does not: the length that a block claims is allocated before its bytes are
// read, and S2 itself would let five bytes stand for 16 MiB. Changes hold keys and
// hashes, so only documents of hundreds of kilobytes that say the same over and over
// again reach the ratio; they stay plain.
const (
	maxUnpacked = 1 << 30 // bytes
	maxRatio    = 1 << 12 // unpacked to packed bytes
)

// AppendPacked appends the packed form of changes that AppendBinary wrote one
// after the other. Changes that do not get smaller stay as they are.
func AppendPacked(dst, changes []byte) []byte {
	start := len(dst)
	if need := s2.MaxEncodedLen(len(changes)); need > 0 && len(changes) <= maxUnpacked {
		dst = append(slices.Grow(dst, 1+need), packedS2)
		block := s2.Encode(dst[len(dst):len(dst)+need], changes)
		if len(block) < len(changes) && len(changes) <= maxRatio*len(block) {
			return dst[:len(dst)+len(block)]
		}
	}
	dst = append(dst[:start], packedPlain)
	return append(dst, changes...)
}

// Unpack returns the changes that AppendPacked was given, for Decode. They may
// be a part of packed. Its error wraps ErrMalformed.
func Unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrMalformed)
	}
	switch body := packed[1:]; packed[0] {
	case packedPlain:
		return body, nil
	case packedS2:
		n, err := s2.DecodedLen(body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if n > maxUnpacked || n > maxRatio*len(body) {
			return nil, fmt.Errorf("%w: %d bytes claim to hold %d", ErrMalformed, len(body), n)
		}
		b, err := s2.Decode(make([]byte, n), body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return b, nil
	default:
		return nil, fmt.Errorf("%w: packed form %d", ErrMalformed, packed[0])
	}
}

// DecodeAll returns the changes of a packed record, and an error as the last
// element if it cannot be read to its end. What Decode says of sub-slices holds.
func DecodeAll(packed []byte) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		b, err := Unpack(packed)
		for err == nil && len(b) > 0 {
			var c Change
			if c, b, err = Decode(b); err == nil && !yield(c, nil) {
				return
			}
		}
		if err != nil {
			yield(Change{}, err)
		}
	}
}

// AppendOutbox appends one packed record of a service to an outbox row, which is
// a list of them.
func AppendOutbox(dst []byte, service string, packed []byte) []byte {
	return appendBytes(appendBytes(dst, service), packed)
}

// Outbox returns the services and packed records of an outbox row, in their
// order, and an error wrapping ErrMalformed as the last element if it cannot be
// read to its end. The records are parts of row.
func Outbox(row []byte) iter.Seq2[OutboxRecord, error] {
	return func(yield func(OutboxRecord, error) bool) {
		r := reader{b: row}
		for len(r.b) > 0 {
			o := OutboxRecord{Service: string(r.bytes()), Packed: r.bytes()}
			if r.failed || o.Service == "" || len(o.Packed) == 0 {
				yield(OutboxRecord{}, fmt.Errorf("%w: outbox row is cut off or corrupt", ErrMalformed))
				return
			}
			if !yield(o, nil) {
				return
			}
		}
	}
}

// OutboxRecord is one record that a decision owes to the changes topic of a
// service.
type OutboxRecord struct {
	Service string
	Packed  []byte
}
