package change

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// all collects what a sequence yields before its error.
func all[T any](seq iter.Seq2[T, error]) (values []T, err error) {
	for v, e := range seq {
		if e != nil {
			return values, e
		}
		values = append(values, v)
	}
	return values, nil
}

func binaryOf(changes []Change) (b []byte) {
	for i := range changes {
		b = changes[i].AppendBinary(b)
	}
	return b
}

// What a decision packed comes back, change by change, behind whatever the
// buffer held before.
func TestPackedChangesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(generated), 0, 20).Draw(t, "changes")
		before := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "before")
		raw := binaryOf(want)
		buffer := append(make([]byte, 0, rapid.IntRange(0, 4000).Draw(t, "capacity")+len(before)), before...)
		packed := AppendPacked(buffer, raw)
		require.Equal(t, before, append([]byte{}, packed[:len(before)]...))
		packed = packed[len(before):]
		require.LessOrEqual(t, len(packed), 1+len(raw), "one byte more, at worst")
		got, err := Unpack(packed)
		require.NoError(t, err)
		require.True(t, bytes.Equal(raw, got))
		changes, err := all(DecodeAll(packed))
		require.NoError(t, err)
		require.Equal(t, want, append([]Change{}, changes...))
	})
}

// Records of equal changes are equal: what is published again from the outbox is
// the same record.
func TestPackingDependsOnTheChangesOnly(t *testing.T) {
	raw := bytes.Repeat([]byte("the same over again "), 1000)
	want := AppendPacked(nil, raw)
	require.Equal(t, want, AppendPacked(bytes.Repeat([]byte{0xAA}, 100_000)[:0], raw))
	require.Less(t, len(want), len(raw)/10)
}

// A consumer that stops early is not called again.
func TestDecodeAllStops(t *testing.T) {
	c := Change{Service: "a/b@c", Entity: "e", Op: Retract, Version: 1, Content: Retracted()}
	packed := AppendPacked(nil, binaryOf([]Change{c, c, c}))
	n := 0
	for range DecodeAll(packed) {
		if n++; n == 2 {
			break
		}
	}
	require.Equal(t, 2, n)
	row := AppendOutbox(AppendOutbox(nil, "a/b@c", packed), "a/b@d", packed)
	for o, err := range Outbox(row) {
		require.NoError(t, err)
		require.Equal(t, "a/b@c", o.Service)
		break
	}
}

// What stands before the damage is read, and then that there is damage.
func TestDecodeAllOfADamagedRecord(t *testing.T) {
	c := Change{Service: "a/b@c", Entity: "e", Op: Retract, Version: 1, Content: Retracted()}
	raw := binaryOf([]Change{c, c})
	changes, err := all(DecodeAll(AppendPacked(nil, raw[:len(raw)-1])))
	require.ErrorIs(t, err, ErrMalformed)
	require.Len(t, changes, 1)
}

func TestUnpackRefuses(t *testing.T) {
	block := s2.Encode(nil, bytes.Repeat([]byte("abcdefgh"), 100))
	for name, packed := range map[string][]byte{
		"nothing":               nil,
		"an unknown form":       {3, 1, 2, 3},
		"no block":              {packedS2},
		"a block that is none":  {packedS2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
		"a block that is cut":   append([]byte{packedS2}, block[:len(block)-1]...),
		"a block and more":      append(append([]byte{packedS2}, block...), 0),
		"one change, unpacked":  binaryOf([]Change{{Service: "a/b@c", Entity: "e", Op: Retract}})[1:],
		"a length and no bytes": {packedS2, 0x80, 0x01},
	} {
		_, err := Unpack(packed)
		require.ErrorIs(t, err, ErrMalformed, name)
		_, err = all(DecodeAll(packed))
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
			_, err := Unpack(packed)
			require.ErrorIs(t, err, ErrMalformed)
		}), uint64(1<<20), claim)
	}
	// S2 can say 16 MiB in few bytes, and these are real ones.
	block := s2.Encode(nil, make([]byte, 16<<20))
	require.Less(t, len(block), 1000)
	_, err := Unpack(append([]byte{packedS2}, block...))
	require.ErrorIs(t, err, ErrMalformed)
}

// Whatever is packed can be unpacked, also what gets smaller than Unpack
// believes, and at the bound.
func TestWhatIsPackedIsBelieved(t *testing.T) {
	words := "abcdefghijklmnopqrstuvwxyz"
	for _, size := range []int{1, 100, 10_000, 1 << 18, 3 << 20} {
		for _, period := range []int{1, 26, 10_000} {
			raw := []byte(strings.Repeat((strings.Repeat(words, period/26+1))[:period], size/period+1)[:size])
			packed := AppendPacked(nil, raw)
			got, err := Unpack(packed)
			require.NoError(t, err)
			require.True(t, bytes.Equal(raw, got), "%d bytes in periods of %d", size, period)
		}
	}
	n := maxRatio * len(s2.Encode(nil, make([]byte, maxRatio)))
	require.Equal(t, byte(packedS2), AppendPacked(nil, make([]byte, n))[0])
	require.Equal(t, byte(packedPlain), AppendPacked(nil, make([]byte, 1<<20))[0])
}

// Changes that do not get smaller stay as they are: they are read without a copy.
func TestIncompressibleChangesStayPlain(t *testing.T) {
	raw := make([]byte, 100_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(raw)
	packed := AppendPacked(nil, raw)
	require.Equal(t, append([]byte{packedPlain}, raw...), packed)
	got, err := Unpack(packed)
	require.NoError(t, err)
	require.Same(t, &packed[1], &got[0])
	require.Equal(t, []byte{packedPlain}, AppendPacked(nil, nil))
}

func TestOutboxComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) OutboxRecord {
			return OutboxRecord{
				Service: rapid.StringMatching(`[a-z]{1,9}/[a-z]{1,9}@[a-z]{1,9}`).Draw(t, "service"),
				Packed:  rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "packed"),
			}
		}), 0, 6).Draw(t, "records")
		var row []byte
		ends := []int{0}
		for _, o := range want {
			row = AppendOutbox(row, o.Service, o.Packed)
			ends = append(ends, len(row))
		}
		got, err := all(Outbox(row))
		require.NoError(t, err)
		require.Equal(t, want, append([]OutboxRecord{}, got...))
		// Cut off anywhere but between two records it is no whole row.
		if cut := rapid.IntRange(0, len(row)).Draw(t, "cut"); !slices.Contains(ends, cut) {
			got, err = all(Outbox(row[:cut]))
			require.ErrorIs(t, err, ErrMalformed)
			require.Equal(t, want[:len(got)], append([]OutboxRecord{}, got...))
		}
	})
	for name, row := range map[string][]byte{
		"no service": AppendOutbox(nil, "", []byte{1}), "no record": AppendOutbox(nil, "a/b@c", nil), "zeros": make([]byte, 10),
	} {
		_, err := all(Outbox(row))
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

// One outbox row over all of it: what decide appends is what deliver decodes.
func TestFromOutboxToChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[string][]Change{}
		var row []byte
		for i := range rapid.IntRange(0, 4).Draw(t, "services") {
			service := fmt.Sprintf("s%d/p@k", i)
			want[service] = rapid.SliceOfN(rapid.Custom(generated), 1, 5).Draw(t, service)
			row = AppendOutbox(row, service, AppendPacked(nil, binaryOf(want[service])))
		}
		got := map[string][]Change{}
		for o, err := range Outbox(row) {
			require.NoError(t, err)
			changes, err := all(DecodeAll(o.Packed))
			require.NoError(t, err)
			got[o.Service] = changes
		}
		require.Equal(t, want, got)
	})
}

// Whatever bytes stand in a topic or an outbox: they are changes, or malformed,
// and cost no more memory than their size allows.
func FuzzPacked(f *testing.F) {
	c := Change{Service: "a/b@c", Entity: "e", Op: Upsert, Version: NewVersion(1, 2), Content: Retracted(), Doc: []byte(`{"a":[1,2,3]}`)}
	f.Add(AppendPacked(nil, binaryOf([]Change{c})))
	packed := AppendPacked(nil, binaryOf(slices.Repeat([]Change{c}, 50)))
	f.Add(packed)
	f.Add(AppendOutbox(AppendOutbox(nil, "a/b@c", packed), "a/b@d", []byte{packedPlain}))
	f.Add(binary.AppendUvarint([]byte{packedS2}, maxUnpacked))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 { // what it may stand for takes seconds to go through
			t.Skip()
		}
		for o, err := range Outbox(b) {
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				continue
			}
			require.NotEmpty(t, o.Service)
			require.LessOrEqual(t, len(o.Service)+len(o.Packed), len(b))
		}
		raw, err := Unpack(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			_, err = all(DecodeAll(b))
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		require.LessOrEqual(t, len(raw), maxRatio*len(b))
		again, err := Unpack(AppendPacked(nil, raw))
		require.NoError(t, err)
		require.True(t, bytes.Equal(raw, again))
		changes, err := all(DecodeAll(b))
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		back, err := all(DecodeAll(AppendPacked(nil, binaryOf(changes))))
		require.NoError(t, err)
		require.Equal(t, changes, back)
	})
}
