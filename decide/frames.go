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
			n, fits := w.fitting(rest)
			if h.To = end; n < len(rest) {
				h.To = rest[n].Position()
			}
			w.write(m.Partition, h, rest[:n], fits)
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
	buckets     serviceBuckets
	parts       [][]*decidedChange
	record      []byte
}

// reset drops what w refers to, and memory that only large frames need.
func (w *frameWriter) reset() {
	for n, list := range w.byPartition {
		clear(list)
		w.byPartition[n] = list[:0]
	}
	clear(w.buckets.sorted[:cap(w.buckets.sorted)])
	clear(w.parts[:cap(w.parts)])
	if cap(w.record) > maxScratch {
		*w = frameWriter{}
	}
}

// fitting returns how many of these changes, which are of one partition and in its
// order, one frame holds: all those of as many offsets as fit into it, and of one
// in any case; fits is false when that one does not.
func (w *frameWriter) fitting(rest []*decidedChange) (n int, fits bool) {
	w.meter.Reset()
	fit, of, fits := 0, change.Version(0), true
	for n, c := range rest {
		if c.Position() != of {
			if of, fit = c.Position(), n; !fits {
				return n, false
			}
		}
		if w.meter.Add(&c.Change) > w.limit {
			if fit > 0 {
				return fit, true
			}
			fits = false
		}
	}
	return len(rest), fits
}

// write writes a frame; one that does not fit holds one offset and is cut into parts.
func (w *frameWriter) write(p store.Partition, h change.Frame, changes []*decidedChange, fits bool) {
	if w.parts = append(w.parts[:0], changes); !fits {
		w.cut(changes)
	}
	if len(w.parts) > 1 {
		id := fnv.New64a()
		_ = binary.Write(id, binary.BigEndian, h.Revision)
		for i, part := range w.parts {
			for _, c := range w.buckets.sort(w.plan, part) {
				_ = binary.Write(id, binary.BigEndian, [2]int32{int32(i), w.number(c)})
			}
		}
		h.Cut = id.Sum64()
	}
	for i, part := range w.parts {
		for _, c := range w.buckets.sort(w.plan, part) {
			w.builder.Add(w.number(c), &c.Change)
		}
		h.Part, h.Last = i, i == len(w.parts)-1
		w.end(p, h)
	}
}

func (w *frameWriter) number(c *decidedChange) int32 { return w.plan.Services[c.service].Number }

// cut makes parts of the changes of one offset.
func (w *frameWriter) cut(changes []*decidedChange) {
	w.parts = w.parts[:0]
	w.meter.Reset()
	first := 0
	// Changes with one document come one after the other, in the order of their lowest
	// numbers: the order of the configuration must not show.
	lowest := w.lowest
	clear(lowest)
	for _, c := range changes {
		doc := unsafe.SliceData(c.Doc) //nolint:gosec // compared only
		if known, ok := lowest[doc]; !ok || w.number(c) < known {
			lowest[doc] = w.number(c)
		}
	}
	slices.SortStableFunc(changes, func(a, b *decidedChange) int {
		return cmp.Or(cmp.Compare(lowest[unsafe.SliceData(a.Doc)], lowest[unsafe.SliceData(b.Doc)]), cmp.Compare(w.number(a), w.number(b))) //nolint:gosec // compared only
	})
	for n, c := range changes {
		if w.meter.Exceeds(&c.Change, w.limit) {
			w.parts, first = append(w.parts, changes[first:n]), n
			w.meter.Reset()
		}
		w.meter.Add(&c.Change)
	}
	w.parts = append(w.parts, changes[first:])
}

// serviceBuckets orders changes by service.
type serviceBuckets struct {
	of       [][]*decidedChange // by service, by its index
	services []int              // that have changes
	sorted   []*decidedChange
}

// sort returns changes by the number of their service, those of one service in their order,
// until it is called again.
func (b *serviceBuckets) sort(p *Plan, changes []*decidedChange) []*decidedChange {
	if len(b.of) < len(p.Services) {
		b.of = make([][]*decidedChange, len(p.Services))
	}
	for _, c := range changes {
		if len(b.of[c.service]) == 0 {
			b.services = append(b.services, c.service)
		}
		b.of[c.service] = append(b.of[c.service], c)
	}
	slices.SortFunc(b.services, func(x, y int) int { return cmp.Compare(p.Services[x].Number, p.Services[y].Number) })
	b.sorted = b.sorted[:0]
	for _, s := range b.services {
		b.sorted = append(b.sorted, b.of[s]...)
		clear(b.of[s])
		b.of[s] = b.of[s][:0]
	}
	b.services = b.services[:0]
	return b.sorted
}

func (w *frameWriter) end(p store.Partition, h change.Frame) {
	w.record = w.builder.AppendTo(w.record[:0], h)
	w.out = append(w.out, store.OutboxFrame{Partition: p, Frame: bytes.Clone(w.record)})
}
