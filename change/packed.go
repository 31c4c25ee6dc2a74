package change

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// The changes of a frame are compressed once, by decide.
const (
	packedPlain = 1
	packedS2    = 2 // an S2 block (github.com/klauspost/compress/s2)
)

// appendPacked keeps these bounds, and unpack refuses a block beyond them: the length that a
// block claims is allocated before its bytes are read, and S2 itself would let five bytes claim
// 16 MiB. Changes hold keys and hashes, so only documents of hundreds of kilobytes that say the
// same over and over again reach the ratio. They stay plain.
const (
	maxUnpacked = 1 << 30 // bytes
	maxRatio    = 1 << 12 // unpacked to packed bytes
)

// appendPacked appends the packed form of the changes of a frame. Changes that do not get smaller stay as they are.
func appendPacked(dst, changes []byte) []byte {
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

// unpack returns the changes that appendPacked was given. They may
// be a part of packed. Its error wraps ErrMalformed.
func unpack(packed []byte) ([]byte, error) {
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
