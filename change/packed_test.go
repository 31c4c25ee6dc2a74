package change

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func binaryOf(changes []Change) (b []byte) {
	for i := range changes {
		b = changes[i].AppendBinary(b)
	}
	return b
}

// Packed changes are unpacked again, after any content of the buffer.
func TestPackedChangesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := binaryOf(rapid.SliceOfN(rapid.Custom(generated), 0, 20).Draw(t, "changes"))
		before := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "before")
		buffer := append(make([]byte, 0, rapid.IntRange(0, 4000).Draw(t, "capacity")+len(before)), before...)
		packed := appendPacked(buffer, raw)
		require.Equal(t, before, append([]byte{}, packed[:len(before)]...))
		packed = packed[len(before):]
		require.LessOrEqual(t, len(packed), 1+len(raw), "one byte more, at worst")
		got, err := unpack(packed)
		require.NoError(t, err)
		require.True(t, bytes.Equal(raw, got))
	})
}

// Records of equal changes are equal: a frame that is decided again is
// the same record.
func TestPackingDependsOnTheChangesOnly(t *testing.T) {
	raw := bytes.Repeat([]byte("the same over again "), 1000)
	want := appendPacked(nil, raw)
	require.Equal(t, want, appendPacked(bytes.Repeat([]byte{0xAA}, 100_000)[:0], raw))
	require.Less(t, len(want), len(raw)/10)
}

func TestUnpackRefuses(t *testing.T) {
	block := s2.Encode(nil, bytes.Repeat([]byte("abcdefgh"), 100))
	for name, packed := range map[string][]byte{
		"nothing":                nil,
		"an unknown form":        {3, 1, 2, 3},
		"no block":               {packedS2},
		"a block that is none":   {packedS2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
		"a block that is cut":    append([]byte{packedS2}, block[:len(block)-1]...),
		"a block and more":       append(append([]byte{packedS2}, block...), 0),
		"one change, not packed": binaryOf([]Change{{Service: "a/b@c", Entity: "e", Op: Retract}})[1:],
		"a length and no bytes":  {packedS2, 0x80, 0x01},
	} {
		_, err := unpack(packed)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A few bytes that claim to be a gigabyte do not get one.
func TestAClaimIsNotBelieved(t *testing.T) {
	for _, claim := range []uint64{1 << 14, 1 << 24, maxUnpacked, maxUnpacked + 1, 1<<32 - 1} {
		packed := binary.AppendUvarint([]byte{packedS2}, claim)
		require.Less(t, allocated(func() {
			_, err := unpack(packed)
			require.ErrorIs(t, err, ErrMalformed)
		}), uint64(1<<20), claim)
	}
	// S2 can say 16 MiB in few bytes, and these are real ones.
	block := s2.Encode(nil, make([]byte, 16<<20))
	require.Less(t, len(block), 1000)
	_, err := unpack(append([]byte{packedS2}, block...))
	require.ErrorIs(t, err, ErrMalformed)
}

// Packed changes can be unpacked, also those that get smaller than unpack
// expects, and at the bound.
func TestWhatIsPackedIsBelieved(t *testing.T) {
	words := "abcdefghijklmnopqrstuvwxyz"
	for _, size := range []int{1, 100, 10_000, 1 << 18, 3 << 20} {
		for _, period := range []int{1, 26, 10_000} {
			raw := []byte(strings.Repeat((strings.Repeat(words, period/26+1))[:period], size/period+1)[:size])
			packed := appendPacked(nil, raw)
			got, err := unpack(packed)
			require.NoError(t, err)
			require.True(t, bytes.Equal(raw, got), "%d bytes in periods of %d", size, period)
		}
	}
	n := maxRatio * len(s2.Encode(nil, make([]byte, maxRatio)))
	require.Equal(t, byte(packedS2), appendPacked(nil, make([]byte, n))[0])
	require.Equal(t, byte(packedPlain), appendPacked(nil, make([]byte, 1<<20))[0])
}

// Changes that do not get smaller stay as they are: they are read without a copy.
func TestIncompressibleChangesStayPlain(t *testing.T) {
	raw := make([]byte, 100_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(raw)
	packed := appendPacked(nil, raw)
	require.Equal(t, append([]byte{packedPlain}, raw...), packed)
	got, err := unpack(packed)
	require.NoError(t, err)
	require.Same(t, &packed[1], &got[0])
	require.Equal(t, []byte{packedPlain}, appendPacked(nil, nil))
}
