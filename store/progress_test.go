package store

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
)

// What HistorySnapshot.Counts must say of a frame that revision decided from a position to
// another, in a partition whose watermark is at 60: revision 2 began at 20, 3 at 40
// and 4 there too, 5 at 50.
func TestCounts(t *testing.T) {
	at := func(offset int64) change.Version { return change.NewVersion(1, offset) }
	look := HistorySnapshot{Active: 5, Marks: map[int32]Mark{0: {Watermark: at(60), LastTo: at(55)}, 2: {Watermark: change.NewVersion(2, 5)}}, Activations: []Activation{
		{Revision: 2, Partition: 0, From: at(20)}, {Revision: 3, Partition: 0, From: at(40)},
		{Revision: 4, Partition: 0, From: at(40)}, {Revision: 5, Partition: 0, From: at(50)},
		{Revision: 2, Partition: 1, From: at(0)}, {Revision: 3, Partition: 2, From: at(7)},
	}}
	for name, c := range map[string]struct {
		partition int32
		revision  int64
		from, to  change.Version
		want      bool
	}{
		"under the first revision":                               {0, 1, at(0), at(20), true},
		"past the end of the first":                              {0, 1, at(10), at(21), false},
		"from where a revision begins to where it ends":          {0, 2, at(20), at(40), true},
		"within a revision":                                      {0, 2, at(25), at(30), true},
		"before its revision began":                              {0, 2, at(19), at(30), false},
		"past the end of its revision":                           {0, 2, at(30), at(41), false},
		"of a revision that decided nothing":                     {0, 3, at(40), at(41), false},
		"of a lost revision of the number of one without frames": {0, 3, at(30), at(40), false},
		"of the next one, which begins there too":                {0, 4, at(40), at(50), true},
		"of the newest, up to the watermark":                     {0, 5, at(50), at(60), true},
		"above the watermark":                                    {0, 5, at(50), at(61), false},
		"of a revision that the store does not know":             {0, 6, at(50), at(60), false},
		"above the watermark of a partition that has none":       {9, 1, at(0), at(1), false},
		"of a partition with a watermark of 0 then":              {1, 2, at(0), at(1), false},
		"of an older generation":                                 {2, 2, at(3), at(7), true},
		"of an older generation, by a newer revision":            {2, 3, at(3), at(7), false},
		"of a newer generation":                                  {2, 3, change.NewVersion(2, 0), change.NewVersion(2, 5), true},
		"of a newer generation, by an older revision":            {2, 2, change.NewVersion(2, 0), change.NewVersion(2, 5), false},
	} {
		assert.Equal(t, c.want, look.Counts(c.partition, c.revision, c.from, c.to), name)
	}
	assert.False(t, (&HistorySnapshot{}).Counts(0, 0, 0, at(0)), "an empty store has no history")
}

// drawPositions draws positions as a progress row has them: few of them differ.
func drawPositions(t *rapid.T) (positions []ServicePosition) {
	some := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Position {
		return Position{Version: change.Version(rapid.Uint64Max(math.MaxInt64).Draw(t, "position")), LogOffset: rapid.Int64Min(0).Draw(t, "offset")}
	}), 1, 5).Draw(t, "positions")
	services := rapid.SliceOfDistinct(rapid.Int32Min(0), rapid.ID).Draw(t, "services")
	for _, n := range slices.Sorted(slices.Values(services)) {
		positions = append(positions, ServicePosition{Service: n, Entities: rapid.Int64().Draw(t, "entities"), Position: rapid.SampledFrom(some).Draw(t, "position"),
			Mark: rapid.StringN(0, -1, 40).Draw(t, "mark")})
	}
	return positions
}

// unmarked returns positions without their marks.
func unmarked(positions []ServicePosition) []ServicePosition {
	positions = slices.Clone(positions)
	for i := range positions {
		positions[i].Mark, positions[i].Repair = "", ""
	}
	return positions
}

// A swap writes the marks that it moves, and no others; with the stored ones they are the
// marks of its positions.
func TestMovedMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		saved := drawPositions(t)
		next := slices.Clone(saved)
		for i := len(next) - 1; i >= 0; i-- {
			switch rapid.SampledFrom([]string{"stays", "stays", "moves", "unmarked", "removed"}).Draw(t, "what") {
			case "moves":
				next[i].Mark = rapid.StringN(1, -1, 5).Draw(t, "mark")
				next[i].Repair = rapid.StringN(0, -1, 5).Draw(t, "repair")
			case "unmarked":
				next[i].Mark, next[i].Repair = "", ""
			case "removed":
				next = slices.Delete(next, i, i+1)
			}
		}
		if rapid.Bool().Draw(t, "new ones") {
			saved = slices.DeleteFunc(saved, func(ServicePosition) bool { return rapid.Bool().Draw(t, "new") })
		}
		stored := map[int32]string{}
		for _, p := range saved {
			if e := p.extra(); e != "" {
				stored[p.Service] = e
			}
		}
		for _, known := range []bool{true, false} {
			swap := ProgressSwap{Progress: Progress{Positions: next}}
			if known {
				swap.Saved = saved
			}
			rows := maps.Clone(stored)
			swap.MovedMarks(func(service int32, mark string) {
				require.False(t, known && rows[service] != "" && rows[service] == mark, "written without need")
				if rows[service] = mark; mark == "" {
					delete(rows, service)
				}
			})
			got := unmarked(next)
			for service, mark := range rows {
				SetMark(got, service, mark)
			}
			require.Equal(t, next, got)
			if known {
				for _, p := range next {
					delete(rows, p.Service)
				}
				require.Empty(t, rows, "marks of services without position")
			}
		}
	})
}

func TestPlacesCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		positions := unmarked(drawPositions(t))
		prefix := rapid.SliceOf(rapid.Byte()).Draw(t, "prefix")
		b := AppendPositions(slices.Clone(prefix), positions)
		require.Equal(t, prefix, slices.Clone(b[:len(prefix)]))
		b = b[len(prefix):]
		got, err := DecodePositions(b)
		require.NoError(t, err)
		require.Equal(t, positions, got)
		var top change.Version
		for _, p := range positions {
			top = max(top, p.Version)
		}
		require.Equal(t, top, Top(got))
		if len(b) > 0 {
			_, err = DecodePositions(b[:len(b)-1])
			require.Error(t, err, "a part is cut off")
			require.Equal(t, Fatal, ClassOf(err))
			_, err = DecodePositions(append(b, b...))
			require.Error(t, err, "services twice")
		}
	})
}

// Services that share a position cost two bytes or three each.
func TestPlacesAreSmall(t *testing.T) {
	var positions []ServicePosition
	for n := range int32(200) {
		positions = append(positions, ServicePosition{Service: n + 1, Position: Position{Version: change.NewVersion(3, 1<<33), LogOffset: 1 << 30}})
	}
	positions[7].Version--
	positions[150].LogOffset--
	assert.Less(t, len(AppendPositions(nil, positions)), 450)
}

// For any bytes, decoding ends with an error of class Fatal, or with
// positions that mean the same when they are encoded again; it never takes more memory
// than a few times the bytes.
func FuzzPlacesCodec(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		positions, err := DecodePositions(b)
		if err != nil {
			require.Equal(t, Fatal, ClassOf(err))
			require.Nil(t, positions)
			return
		}
		require.LessOrEqual(t, len(positions), len(b))
		for i, p := range positions {
			require.GreaterOrEqual(t, p.Service, int32(0))
			if i > 0 {
				require.Less(t, positions[i-1].Service, p.Service)
			}
		}
		again, err := DecodePositions(AppendPositions(nil, positions))
		require.NoError(t, err)
		require.Equal(t, positions, again)
	})
}

// A look is valid for one activation: not for another one that a restored
// store made under the same number.
func TestActivationsAreKeptOfOneActivation(t *testing.T) {
	var c SnapshotCache
	of, kept := c.Kept()
	require.True(t, of.Same(Revision{}), "a store without revisions has no activations")
	require.Empty(t, kept)
	at := time.UnixMicro(1)
	c.Keep(Revision{Number: 2, Fingerprint: []byte("f"), Activated: at}, []Activation{{2, 1, 3}, {2, 0, 9}, {1, 1, 3}})
	of, kept = c.Kept()
	require.Equal(t, []Activation{{2, 0, 9}, {1, 1, 3}, {2, 1, 3}}, kept, "by partition, as frames are judged")
	require.True(t, of.Same(Revision{Number: 2, Fingerprint: []byte("f"), Activated: at.UTC()}))
	for _, other := range []Revision{
		{Number: 3, Fingerprint: []byte("f"), Activated: at},
		{Number: 2, Fingerprint: []byte("g"), Activated: at},
		{Number: 2, Fingerprint: []byte("f"), Activated: at.Add(time.Microsecond)},
	} {
		require.False(t, of.Same(other))
	}
}
