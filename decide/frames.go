package decide

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"unsafe"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// MaxFrame is how many bytes a frame of the changes log has at most, before
// compression; only a single document that is larger makes a larger one, for all services
// that get it. The log must take records of that size.
const MaxFrame = 1 << 20

// frameEnds says by partition where its newest frame ends.
type frameEnds = map[store.Partition]change.Version

// pack makes the frames of a decision, in the order in which they are published:
// those of one partition are linked to one another, and the first to what ends
// says. It also returns where the last ones end. A partition without changes has
// no frame. limit is MaxFrame but in tests.
func (w *frameWriter) pack(p *Plan, changes []decidedChange, moves []store.WatermarkStep, ends frameEnds, limit int) ([]store.OutboxFrame, frameEnds) {
	if len(changes) == 0 {
		return nil, nil
	}
	w.plan, w.limit, w.out = p, limit, nil
	if w.byPartition == nil {
		w.byPartition, w.lowest = map[int32][]*decidedChange{}, map[*byte]int32{}
	}
	defer w.reset()
	for i := range changes {
		c := &changes[i]
		w.byPartition[c.Partition] = append(w.byPartition[c.Partition], c)
	}
	last := make(frameEnds, len(moves))
	for _, m := range moves {
		rest := w.byPartition[m.Partition.Number]
		if len(rest) == 0 {
			continue
		}
		end := change.NewVersion(m.Partition.Generation, m.To)
		h := change.Frame{From: change.NewVersion(m.Partition.Generation, m.From), Prev: ends[m.Partition], Revision: p.Revision}
		for len(rest) > 0 {
			n := w.fitting(rest)
			if h.To = end; n < len(rest) {
				h.To = rest[n].Position()
			}
			w.write(m.Partition, h, rest[:n])
			rest, h.From, h.Prev = rest[n:], h.To, h.To
		}
		last[m.Partition] = end
	}
	return w.out, last
}

// frameWriter writes the frames of one decision, and then those of the next one.
type frameWriter struct {
	plan        *Plan
	limit       int
	out         []store.OutboxFrame
	builder     change.FrameBuilder
	meter       change.FrameMeter
	byPartition map[int32][]*decidedChange
	lowest      map[*byte]int32
	record      []byte
}

// reset drops what w refers to, and memory that only large frames need.
func (w *frameWriter) reset() {
	for n, list := range w.byPartition {
		clear(list)
		w.byPartition[n] = list[:0]
	}
	if cap(w.record) > maxScratch {
		*w = frameWriter{}
	}
}

// fitting returns how many of these changes, which are of one partition and in its
// order, one frame holds: all those of as many offsets as fit into it, and of one
// in any case.
func (w *frameWriter) fitting(rest []*decidedChange) int {
	w.meter.Reset()
	fit, of := 0, change.Version(0)
	for n, c := range rest {
		if c.Position() != of {
			of, fit = c.Position(), n
		}
		if w.meter.Add(&c.Change) > w.limit && fit > 0 {
			return fit
		}
	}
	return len(rest)
}

// write writes a frame; one that is too large holds one offset and is cut into parts.
func (w *frameWriter) write(p store.Partition, h change.Frame, changes []*decidedChange) {
	number := func(c *decidedChange) int32 { return w.plan.Services[c.service].Number }
	var parts [][]*decidedChange
	w.meter.Reset()
	first := 0
	// Changes with one document come one after the other, in the order of their lowest
	// numbers: the order of the configuration must not show.
	lowest := w.lowest
	clear(lowest)
	for _, c := range changes {
		doc := unsafe.SliceData(c.Doc) //nolint:gosec // compared only
		if known, ok := lowest[doc]; !ok || number(c) < known {
			lowest[doc] = number(c)
		}
	}
	slices.SortStableFunc(changes, func(a, b *decidedChange) int {
		return cmp.Or(cmp.Compare(lowest[unsafe.SliceData(a.Doc)], lowest[unsafe.SliceData(b.Doc)]), cmp.Compare(number(a), number(b))) //nolint:gosec // compared only
	})
	for n, c := range changes {
		if w.meter.Exceeds(&c.Change, w.limit) {
			parts, first = append(parts, changes[first:n]), n
			w.meter.Reset()
		}
		w.meter.Add(&c.Change)
	}
	parts = append(parts, changes[first:])
	for _, part := range parts {
		slices.SortStableFunc(part, func(a, b *decidedChange) int {
			return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a.Position(), b.Position()))
		})
	}
	if len(parts) > 1 {
		id := fnv.New64a()
		_ = binary.Write(id, binary.BigEndian, h.Revision)
		for i, part := range parts {
			for _, c := range part {
				_ = binary.Write(id, binary.BigEndian, [2]int32{int32(i), number(c)})
			}
		}
		h.Cut = id.Sum64()
	}
	for i, part := range parts {
		for _, c := range part {
			w.builder.Add(number(c), &c.Change)
		}
		h.Part, h.Last = i, i == len(parts)-1
		w.end(p, h)
	}
}

func (w *frameWriter) end(p store.Partition, h change.Frame) {
	w.record = w.builder.AppendTo(w.record[:0], h)
	w.out = append(w.out, store.OutboxFrame{Partition: p, Frame: bytes.Clone(w.record)})
}
