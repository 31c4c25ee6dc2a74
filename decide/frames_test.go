package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// logged is the content of one partition of the changes log.
type logged struct {
	end     change.Version
	seen    map[string][]change.Change // by service
	pending []*change.Frame            // parts, until the last one
}

// read takes one frame as a reader does that has read all before it.
func (l *logged) read(t require.TestingT, p *Plan, frame []byte, limit int) {
	f, err := change.ParseFrame(frame)
	require.NoError(t, err)
	require.Equal(t, l.end, f.Prev, "it goes on where the one before it ended")
	require.Equal(t, p.Revision, f.Revision)
	require.NotEmpty(t, f.Slices)
	require.Equal(t, len(l.pending), f.Part)
	count, single := 0, 0
	for i := range f.Slices {
		s := &f.Slices[i]
		name := p.Services[p.byNumber[s.Service]].Name
		for c, err := range s.All(name) {
			require.NoError(t, err)
			l.seen[name] = append(l.seen[name], c)
			count, single = count+1, c.FrameSize()
			if f.Part > 0 || !f.Last {
				first := l.pending
				if len(first) == 0 {
					first = []*change.Frame{f}
				}
				require.Equal(t, first[0].From, f.From)
				require.Equal(t, first[0].To, f.To)
			}
		}
	}
	require.True(t, len(frame) <= limit || count == 1 && len(frame) <= change.FrameHeader+single, "%d bytes of %d changes", len(frame), count)
	l.pending = append(l.pending, f)
	if f.Last {
		l.pending, l.end = nil, f.To
	}
}

// With any batches: the frames of a partition are a chain that covers every
// change once, each service's in their order, and none is above the limit unless
// one change is. The mistakes that this catches: parts that are linked to one another,
// a cut within an offset, a link that a batch without changes forgot.
func TestFramesChain(t *testing.T) {
	p := &Plan{Revision: 3}
	for i, n := range []int32{5, 2, 9, 1} {
		p.Services = append(p.Services, Service{Name: fmt.Sprintf("c/p@%d", i), Number: n})
	}
	p.byNumber = map[int32]int{5: 0, 2: 1, 9: 2, 1: 3}
	rapid.Check(t, func(t *rapid.T) {
		const generation = 2
		limit := rapid.IntRange(300, 4000).Draw(t, "limit")
		ends, next := frameEnds{}, map[int32]int64{}
		log, want := map[int32]*logged{}, map[int32]map[string][]change.Change{}
		for n := range int32(3) {
			first := change.Version(rapid.SampledFrom([]uint64{0, 1<<48 | 7, 2 << 48}).Draw(t, "end before"))
			partition := store.Partition{Generation: generation, Number: n}
			ends[partition], next[n] = first, 0
			log[n], want[n] = &logged{end: first, seen: map[string][]change.Change{}}, map[string][]change.Change{}
		}
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			var moves []store.WatermarkStep
			var decided []decidedChange
			for n := range int32(3) {
				records := rapid.IntRange(0, 6).Draw(t, "records")
				if records == 0 {
					continue
				}
				from := next[n]
				for range records {
					next[n] += int64(rapid.IntRange(1, 3).Draw(t, "gap"))
					at := change.NewVersion(generation, next[n]-1)
					for i := range rapid.SampledFrom([]int{0, 1, 1, 4}).Draw(t, "services") {
						c := change.Change{
							Service: p.Services[i].Name, Entity: fmt.Sprint("entity ", at.Offset()), Op: change.Upsert, Version: at, Content: change.Retracted(),
							Revision: p.Revision, Time: time.UnixMilli(at.Offset()).UTC(),
							Doc: []byte(strings.Repeat("x", rapid.SampledFrom([]int{1, 20, 100, 700, 5000}).Draw(t, "document"))),
						}
						if rapid.IntRange(0, 9).Draw(t, "resent") == 0 {
							c.Version, c.Resent, c.Revision = change.NewVersion(1, 4), at, 1
						}
						c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
						decided = append(decided, decidedChange{c, i})
						decided[len(decided)-1].Partition = n
						want[n][c.Service] = append(want[n][c.Service], c)
					}
				}
				moves = append(moves, store.WatermarkStep{Partition: store.Partition{Generation: generation, Number: n}, From: from, To: next[n]})
			}
			outbox, last := new(frameWriter).pack(p, decided, moves, ends, limit)
			for i := range outbox {
				log[outbox[i].Partition.Number].read(t, p, outbox[i].Frame, limit)
			}
			for _, m := range moves {
				l := log[m.Partition.Number]
				require.Empty(t, l.pending, "parts end with a last one")
				to, has := last[m.Partition]
				require.Equal(t, slices.ContainsFunc(outbox, func(f store.OutboxFrame) bool { return f.Partition == m.Partition }), has)
				if has {
					require.Equal(t, change.NewVersion(generation, m.To), to)
					ends[m.Partition] = to
				}
				require.Equal(t, ends[m.Partition], l.end)
			}
		}
		for n := range log {
			require.Equal(t, want[n], log[n].seen)
		}
	})
}

// The parts of a position name how it was cut: equally by all owners that decide the
// same, in another way where other changes are in a part.
func TestACutIsKnownByWhatIsInEachPart(t *testing.T) {
	cuts := func(revision int64, sizes ...int) (cuts []uint64) {
		p := &Plan{Revision: revision}
		var decided []decidedChange
		for i, size := range sizes {
			p.Services = append(p.Services, Service{Number: int32(i)})
			decided = append(decided, decidedChange{service: i, Change: change.Change{Entity: "e", Version: change.NewVersion(1, 5), Doc: make([]byte, size)}})
		}
		outbox, _ := new(frameWriter).pack(p, decided, []store.WatermarkStep{{Partition: store.Partition{Generation: 1}, From: 5, To: 6}}, nil, 1000)
		for _, o := range outbox {
			f, err := change.ParseFrameHeader(o.Frame)
			require.NoError(t, err)
			cuts = append(cuts, f.Cut)
		}
		return cuts
	}
	require.Equal(t, []uint64{0}, cuts(1, 100, 100, 100), "not cut")
	two := cuts(1, 100, 600, 600)
	require.Len(t, two, 2)
	require.NotZero(t, two[0])
	require.Equal(t, two[0], two[1])
	require.Equal(t, two, cuts(1, 110, 600, 600), "a trace, for instance, may make it larger")
	for _, other := range [][]uint64{cuts(1, 600, 600, 100), cuts(1, 600, 600, 600), cuts(2, 100, 600, 600)} {
		require.NotEqual(t, two[0], other[0])
	}
}

// Frames are cut between offsets as long as that is enough, and filled as far as
// they go.
func TestFramesAreCut(t *testing.T) {
	p := &Plan{Revision: 1, Services: []Service{{Name: "a", Number: 2}, {Name: "b", Number: 1}}}
	partition := store.Partition{Generation: 1}
	var decided []decidedChange
	add := func(offset int64, service, size int) {
		decided = append(decided, decidedChange{service: service, Change: change.Change{
			Service: p.Services[service].Name, Entity: "e", Op: change.Upsert, Version: change.NewVersion(1, offset), Content: change.Retracted(), Doc: make([]byte, size),
		}})
	}
	add(12, 0, 400) // together
	add(12, 1, 100)
	add(13, 0, 100)
	add(15, 0, 600) // too much for it, so in parts, of one change each
	add(15, 1, 600)
	add(17, 0, 100) // and the rest
	outbox, last := new(frameWriter).pack(p, decided, []store.WatermarkStep{{Partition: partition, From: 10, To: 20}}, frameEnds{partition: change.NewVersion(1, 3)}, 1000)
	require.Equal(t, frameEnds{partition: change.NewVersion(1, 20)}, last)
	type frame struct {
		from, to, prev int64
		part           int
		last           bool
		counts         map[int32]int
	}
	var got []frame
	for _, o := range outbox {
		f, err := change.ParseFrameHeader(o.Frame)
		require.NoError(t, err)
		counts := map[int32]int{}
		for _, s := range f.Slices {
			counts[s.Service] = s.Count
		}
		got = append(got, frame{f.From.Offset(), f.To.Offset(), f.Prev.Offset(), f.Part, f.Last, counts})
	}
	require.Equal(t, []frame{
		{10, 15, 3, 0, true, map[int32]int{1: 1, 2: 2}},
		{15, 17, 15, 0, false, map[int32]int{1: 1}},
		{15, 17, 15, 1, true, map[int32]int{2: 1}},
		{17, 20, 17, 0, true, map[int32]int{2: 1}},
	}, got)
	outbox, last = new(frameWriter).pack(p, nil, []store.WatermarkStep{{Partition: partition, From: 20, To: 30}}, nil, 1000)
	require.Empty(t, outbox, "a decision without changes has no frame")
	require.Empty(t, last)
}
