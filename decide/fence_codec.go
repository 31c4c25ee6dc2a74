package decide

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/change"
)

// errFence is wrapped by what decodeFence returns for bytes that encode did not
// write: nothing is decided for such an entity.
var errFence = errors.New("stored fence is cut off or corrupt")

// encode returns the stored form of a fence: per source, in the order of their
// names, its name and what sourceFence has. Numbers are varints, texts have
// their length in front. It is written with every row of an entity.
func (f fence) encode() []byte {
	b := make([]byte, 0, 128)
	for _, source := range slices.Sorted(maps.Keys(f)) {
		s := f[source]
		b = appendText(b, source)
		b = binary.AppendUvarint(b, uint64(len(s.Positions)))
		for _, p := range s.Positions {
			b = appendText(b, p.Topic)
			b = binary.AppendVarint(b, int64(p.Partition))
			b = binary.AppendVarint(b, p.Offset)
		}
		b = binary.AppendUvarint(b, uint64(len(s.Events)))
		for _, mark := range s.Events {
			b = appendText(b, mark)
		}
		b = appendText(b, s.Sequence)
		b = binary.AppendUvarint(b, uint64(s.Version))
		b = binary.AppendVarint(b, s.At)
		b = binary.AppendVarint(b, s.Died)
	}
	return b
}

func decodeFence(b []byte) (fence, error) {
	f := fence{}
	r := fenceReader{b: b}
	for len(r.b) > 0 && !r.failed {
		source, s := r.text(), &sourceFence{}
		for n := r.count(); n > 0 && !r.failed; n-- {
			s.Positions = append(s.Positions, position{Topic: r.text(), Partition: int32(r.varint()), Offset: r.varint()})
		}
		for n := r.count(); n > 0 && !r.failed; n-- {
			s.Events = append(s.Events, r.text())
		}
		s.Sequence, s.Version, s.At, s.Died = r.text(), change.Version(r.uvarint()), r.varint(), r.varint()
		if _, twice := f[source]; twice {
			r.failed = true
		}
		f[source] = s
	}
	if r.failed {
		return nil, fmt.Errorf("%w", errFence)
	}
	return f, nil
}

// fenceReader cuts fields off the front of b; after the first failure every
// further read returns zero values.
type fenceReader struct {
	b      []byte
	failed bool
}

func (r *fenceReader) uvarint() uint64 {
	n, used := binary.Uvarint(r.b)
	if used <= 0 || r.failed {
		r.failed = true
		return 0
	}
	r.b = r.b[used:]
	return n
}

func (r *fenceReader) varint() int64 {
	n, used := binary.Varint(r.b)
	if used <= 0 || r.failed {
		r.failed = true
		return 0
	}
	r.b = r.b[used:]
	return n
}

// count reads the length of a list, which cannot be longer than the bytes left.
func (r *fenceReader) count() uint64 {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.failed = true
		return 0
	}
	return n
}

func (r *fenceReader) text() string {
	n := r.count()
	if r.failed {
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
