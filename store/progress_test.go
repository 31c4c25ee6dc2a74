package store

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
)

// drawPositions draws positions as a progress row has them: few of them differ.
func drawPositions(t *rapid.T) (positions []ServicePosition) {
	some := rapid.SliceOfN(rapid.Uint64Max(math.MaxInt64), 1, 5).Draw(t, "positions")
	services := rapid.SliceOfDistinct(rapid.Int32Min(0), rapid.ID).Draw(t, "services")
	for _, n := range slices.Sorted(slices.Values(services)) {
		positions = append(positions, ServicePosition{Service: n, Entities: rapid.Int64().Draw(t, "entities"), Version: change.Version(rapid.SampledFrom(some).Draw(t, "position")),
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
		positions = append(positions, ServicePosition{Service: n + 1, Version: change.NewVersion(3, 1<<33)})
	}
	positions[7].Version--
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
