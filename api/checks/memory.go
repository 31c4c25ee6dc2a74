package checks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wire"
	"github.com/seed-86dfc502/weir/store"
)

// maxEvents is how many events a row remembers: a caller repeats its last few.
const maxEvents = 16

// knownEvent is an event and the version that its answer named.
type knownEvent struct {
	mark    change.Mark
	version change.Version
}

// memory is the part of a row beside its content.
type memory struct {
	// Released: the last version was given back. The content is the delivered one
	// again, or unknown.
	released bool
	// Sole: the last pass was answered to one caller once, and the pass before
	// it was confirmed. Only then a refusal leaves the receiver with the delivered content.
	sole     bool
	sequence string // the highest seen, empty before the first
	events   []knownEvent
}

const memoryFormat = 1

// Flags of the stored form.
const (
	flagReleased = 1 << iota
	flagSole
)

var errMemory = store.WithClass(errors.New("checks: a stored row has a memory that this build cannot read"), store.Fatal)

// encode returns the stored form: format, flags, sequence with its length, events
// of 20 bytes each, oldest first.
func (m *memory) encode() []byte {
	b := make([]byte, 0, 4+len(m.sequence)+len(m.events)*(len(change.Mark{})+8))
	var flags byte
	if m.released {
		flags |= flagReleased
	}
	if m.sole {
		flags |= flagSole
	}
	b = append(b, memoryFormat, flags)
	b = wire.Append(b, m.sequence)
	for _, e := range m.events {
		b = append(b, e.mark[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(e.version))
	}
	return b
}

func decodeMemory(b []byte) (memory, error) {
	var m memory
	if len(b) == 0 {
		return m, nil
	}
	const size = len(change.Mark{}) + 8
	r := wire.Reader{Rest: b}
	format, flags := r.Byte(), r.Byte()
	m.released, m.sole, m.sequence = flags&flagReleased != 0, flags&flagSole != 0, r.Text()
	if r.Failed || format != memoryFormat || len(r.Rest)%size != 0 || len(r.Rest) > maxEvents*size {
		return memory{}, errMemory
	}
	for b = r.Rest; len(b) > 0; b = b[size:] {
		m.events = append(m.events, knownEvent{change.Mark(b[:len(change.Mark{})]), change.Version(binary.BigEndian.Uint64(b[len(change.Mark{}):]))})
	}
	return m, nil
}

// find returns the version that an event was answered with.
func (m *memory) find(k change.Mark) (change.Version, bool) {
	for _, e := range m.events {
		if e.mark == k {
			return e.version, true
		}
	}
	return 0, false
}

// remember keeps an event instead of the oldest.
func (m *memory) remember(k change.Mark, v change.Version) {
	m.events = slices.DeleteFunc(m.events, func(e knownEvent) bool { return e.mark == k })
	m.events = append(m.events, knownEvent{k, v})
	if n := len(m.events) - maxEvents; n > 0 {
		m.events = slices.Delete(m.events, 0, n)
	}
}

// move assigns the events of one version to another version.
func (m *memory) move(from, to change.Version) {
	for i := range m.events {
		if m.events[i].version == from {
			m.events[i].version = to
		}
	}
}

// current is the version of the row's content, or after a release to the delivered
// content, that one's.
func current(row *store.CheckRow, m *memory) change.Version {
	if m.released && row.Content != nil {
		return row.DeliveredVersion
	}
	return row.Version
}

// same reports whether a row need not be written.
func same(a, b *store.CheckRow) bool {
	return a.Found == b.Found && a.Version == b.Version && a.DeliveredVersion == b.DeliveredVersion &&
		equal(a.Content, b.Content) && equal(a.Delivered, b.Delivered) && bytes.Equal(a.Memory, b.Memory)
}

// equal is the identity of contents, unlike their equality: unknown is unknown.
func equal(a, b change.Content) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
