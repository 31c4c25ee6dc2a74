package decide

import (
	"encoding/binary"
	"errors"
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
	b := make([]byte, 0, 256)
	var room [8]string
	sources := room[:0]
	for source := range f {
		sources = append(sources, source)
	}
	slices.Sort(sources)
	for _, source := range sources {
		s := f[source]
		b = wire.Append(b, source)
		b = binary.AppendUvarint(b, uint64(len(s.Positions)))
		for _, p := range s.Positions {
			b = appendPosition(b, p)
		}
		b = binary.AppendUvarint(b, uint64(len(s.Events)))
		for _, mark := range s.Events {
			b = wire.Append(b, mark)
		}
		b = wire.Append(b, s.Sequence)
		b = binary.AppendUvarint(b, uint64(s.Version))
		b = binary.AppendVarint(b, s.At)
		b = binary.AppendVarint(b, s.Died)
		if m := s.Missing; m == nil {
			b = append(b, 0)
		} else {
			b = wire.Append(appendPosition(append(b, 1), m.position), m.Sequence)
		}
	}
	return b
}

func appendPosition(b []byte, p position) []byte {
	b = wire.Append(b, p.Topic)
	b = binary.AppendVarint(b, int64(p.Partition))
	b = binary.AppendVarint(b, p.Offset)
	return binary.AppendVarint(b, p.Index)
}

// fenceRoom is memory for the fences of a batch.
type fenceRoom struct {
	sources   []sourceFence
	positions []position
	marks     []string
}

// reset ends the use of the fences.
func (room *fenceRoom) reset() {
	clear(room.sources)
	clear(room.positions)
	clear(room.marks)
	room.sources, room.positions, room.marks = room.sources[:0], room.positions[:0], room.marks[:0]
}

// allot returns a part of list with n elements. A full list is replaced.
func allot[T any](list *[]T, n int) []T {
	if len(*list)+n > cap(*list) {
		*list = make([]T, 0, max(16, 2*cap(*list), n))
	}
	from := len(*list)
	*list = (*list)[:from+n]
	return (*list)[from : from+n : from+n]
}

// decode reads what encode wrote into f, which is empty.
func (room *fenceRoom) decode(f fence, b []byte) error {
	r, all := wire.Reader{Rest: b}, string(b)
	text := func() string {
		n, end := len(r.Bytes()), len(b)-len(r.Rest)
		return all[end-n : end]
	}
	place := func() position {
		return position{Topic: text(), Partition: int32(r.Varint()), Offset: r.Varint(), Index: r.Varint()}
	}
	for len(r.Rest) > 0 && !r.Failed {
		source, s := text(), &allot(&room.sources, 1)[0]
		// With place for one more, which note adds.
		if n := int(r.Count()); n > 0 {
			s.Positions = allot(&room.positions, n+1)[:0]
			for ; n > 0 && !r.Failed; n-- {
				s.Positions = append(s.Positions, place())
			}
		}
		if n := int(r.Count()); n > 0 {
			s.Events = allot(&room.marks, n+1)[:0]
			for ; n > 0 && !r.Failed; n-- {
				s.Events = append(s.Events, text())
			}
		}
		s.Sequence, s.Version, s.At, s.Died = text(), change.Version(r.Uvarint()), r.Varint(), r.Varint()
		switch r.Byte() {
		case 0:
		case 1:
			s.Missing = &missing{place(), text()}
		default:
			r.Failed = true
		}
		if _, twice := f[source]; twice {
			r.Failed = true
		}
		f[source] = s
	}
	if r.Failed {
		return errRemembered
	}
	return nil
}
