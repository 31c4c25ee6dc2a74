package decide

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wire"
)

// errRemembered is for bytes that encodeState did not write: nothing is decided for
// such an entity.
var errRemembered = errors.New("what the entity remembers is cut off or corrupt")

// encode returns the stored form of a fence: per source, in the order of their
// names, its name and what sourceFence has. Numbers are varints, texts have
// their length in front. It is written with every row of an entity.
func (f fence) encode() []byte {
	b := make([]byte, 0, 128)
	for _, source := range slices.Sorted(maps.Keys(f)) {
		s := f[source]
		b = wire.Append(b, source)
		b = binary.AppendUvarint(b, uint64(len(s.Positions)))
		for _, p := range s.Positions {
			b = wire.Append(b, p.Topic)
			b = binary.AppendVarint(b, int64(p.Partition))
			b = binary.AppendVarint(b, p.Offset)
		}
		b = binary.AppendUvarint(b, uint64(len(s.Events)))
		for _, mark := range s.Events {
			b = wire.Append(b, mark)
		}
		b = wire.Append(b, s.Sequence)
		b = binary.AppendUvarint(b, uint64(s.Version))
		b = binary.AppendVarint(b, s.At)
		b = binary.AppendVarint(b, s.Died)
	}
	return b
}

func decodeFence(b []byte) (fence, error) {
	f := fence{}
	r := wire.Reader{Rest: b}
	for len(r.Rest) > 0 && !r.Failed {
		source, s := r.Text(), &sourceFence{}
		for n := r.Count(); n > 0 && !r.Failed; n-- {
			s.Positions = append(s.Positions, position{Topic: r.Text(), Partition: int32(r.Varint()), Offset: r.Varint()})
		}
		for n := r.Count(); n > 0 && !r.Failed; n-- {
			s.Events = append(s.Events, r.Text())
		}
		s.Sequence, s.Version, s.At, s.Died = r.Text(), change.Version(r.Uvarint()), r.Varint(), r.Varint()
		if _, twice := f[source]; twice {
			r.Failed = true
		}
		f[source] = s
	}
	if r.Failed {
		return nil, errRemembered
	}
	return f, nil
}
