package decide

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// MaxFrame is how many bytes a frame of the changes log has at most, before
// compression; only the changes of one position make a larger one.
const MaxFrame = 1 << 20

// frameEnds says by partition where its newest frame ends.
type frameEnds = map[store.Partition]change.Version

// pack makes the frames of a decision: frames of one partition are linked to one another, and
// the first to what ends says. A partition without changes has no frame. limit is MaxFrame but
// in tests.
func (w *frameWriter) pack(p *Plan, changes []*decidedChange, moves []store.WatermarkStep, ends frameEnds, limit int) []store.Frame {
	if len(changes) == 0 {
		return nil
	}
	w.plan, w.limit, w.out = p, limit, nil
	if w.byPartition == nil {
		w.byPartition = map[int32][]*decidedChange{}
	}
	defer w.reset()
	for _, c := range changes {
		w.byPartition[c.Partition] = append(w.byPartition[c.Partition], c)
	}
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
	}
	return w.out
}

// frameWriter writes the frames of one decision, and then those of the next one.
type frameWriter struct {
	plan        *Plan
	limit       int
	out         []store.Frame
	builder     change.FrameBuilder
	meter       change.FrameMeter
	byPartition map[int32][]*decidedChange
	buckets     serviceBuckets
	record      []byte
}

// reset drops what w refers to, and memory that only large frames need.
func (w *frameWriter) reset() {
	for n, list := range w.byPartition {
		clear(list)
		w.byPartition[n] = list[:0]
	}
	clear(w.buckets.sorted[:cap(w.buckets.sorted)])
	if cap(w.record) > maxScratch {
		*w = frameWriter{}
	}
}

// fitting returns how many of these changes, which are of one partition and in its
// order, go into one frame: the changes of as many positions as fit, and at least of one.
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

// write writes a frame.
func (w *frameWriter) write(p store.Partition, h change.Frame, changes []*decidedChange) {
	for _, c := range w.buckets.sort(w.plan, changes) {
		w.builder.Add(w.number(c), &c.Change)
	}
	w.record = w.builder.AppendTo(w.record[:0], h)
	w.out = append(w.out, store.Frame{Partition: p, To: h.To, Body: bytes.Clone(w.record)})
}

func (w *frameWriter) number(c *decidedChange) int32 { return w.plan.Services[c.service].Number }

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
