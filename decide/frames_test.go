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
	end  change.Version
	seen map[string][]change.Change // by service
}

// read takes one frame as a reader does that has read all before it.
func (l *logged) read(t require.TestingT, p *Plan, frame *store.Frame, limit int) {
	f, err := change.ParseFrame(frame.Body)
	require.NoError(t, err)
	require.Equal(t, l.end, f.Prev, "it goes on where the one before it ended")
	require.Equal(t, frame.To, f.To)
	require.Equal(t, p.Revision, f.Revision)
	require.NotEmpty(t, f.Slices)
	positions := map[change.Version]bool{}
	for i := range f.Slices {
		s := &f.Slices[i]
		name := p.Services[p.byNumber[s.Service]].Name
		for c, err := range s.All(name) {
			require.NoError(t, err)
			l.seen[name] = append(l.seen[name], c)
			positions[c.Position()] = true
		}
	}
	require.True(t, len(frame.Body) <= limit || len(positions) == 1, "%d bytes of %d positions", len(frame.Body), len(positions))
	l.end = f.To
}

// With any batches: the frames of a partition are a chain that covers every
// change once, each service's in their order, and none is above the limit unless
// one position is. The mistakes that this catches: a cut within a position, a link that a
// batch without changes forgot.
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
			var decided []*decidedChange
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
						decided = append(decided, &decidedChange{c, i})
						decided[len(decided)-1].Partition = n
						want[n][c.Service] = append(want[n][c.Service], c)
					}
				}
				moves = append(moves, store.WatermarkStep{Partition: store.Partition{Generation: generation, Number: n}, From: from, To: next[n]})
			}
			frames := new(frameWriter).pack(p, decided, moves, ends, limit)
			for i := range frames {
				log[frames[i].Partition.Number].read(t, p, &frames[i], limit)
			}
			for _, m := range moves {
				end := log[m.Partition.Number].end
				if slices.ContainsFunc(frames, func(f store.Frame) bool { return f.Partition == m.Partition }) {
					ends[m.Partition] = change.NewVersion(generation, m.To)
				}
				require.Equal(t, ends[m.Partition], end)
			}
		}
		for n := range log {
			require.Equal(t, want[n], log[n].seen)
		}
	})
}

// Frames are cut between positions, never within one, and filled as far as they go.
func TestFramesAreCut(t *testing.T) {
	p := &Plan{Revision: 1, Services: []Service{{Name: "a", Number: 2}, {Name: "b", Number: 1}}}
	partition := store.Partition{Generation: 1}
	var decided []*decidedChange
	add := func(offset int64, service, size int) {
		decided = append(decided, &decidedChange{service: service, Change: change.Change{
			Service: p.Services[service].Name, Entity: "e", Op: change.Upsert, Version: change.NewVersion(1, offset), Content: change.Retracted(), Doc: make([]byte, size),
		}})
	}
	add(12, 0, 400) // together
	add(12, 1, 100)
	add(13, 0, 100)
	add(15, 0, 600) // more than a frame has
	add(15, 1, 600)
	add(17, 0, 100) // and the rest
	frames := new(frameWriter).pack(p, decided, []store.WatermarkStep{{Partition: partition, From: 10, To: 20}}, frameEnds{partition: change.NewVersion(1, 3)}, 1000)
	type frame struct {
		from, to, prev int64
		counts         map[int32]int
	}
	var got []frame
	for _, o := range frames {
		f, err := change.ParseFrameHeader(o.Body)
		require.NoError(t, err)
		require.Equal(t, f.To, o.To)
		require.Equal(t, partition, o.Partition)
		counts := map[int32]int{}
		for _, s := range f.Slices {
			counts[s.Service] = s.Count
		}
		got = append(got, frame{f.From.Offset(), f.To.Offset(), f.Prev.Offset(), counts})
	}
	require.Equal(t, []frame{{10, 15, 3, map[int32]int{1: 1, 2: 2}}, {15, 17, 15, map[int32]int{1: 1, 2: 1}}, {17, 20, 17, map[int32]int{2: 1}}}, got)
	require.Empty(t, new(frameWriter).pack(p, nil, []store.WatermarkStep{{Partition: partition, From: 20, To: 30}}, nil, 1000), "a decision without changes has no frame")
}
