package postgres

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// ours and theirs are the types of a connection with arrays and without.
func oursAndTheirs() (ours, theirs *pgtype.Map) {
	ours, theirs = pgtype.NewMap(), pgtype.NewMap()
	registerArrays(ours)
	return ours, theirs
}

// Lists have pgx's encoding, after any content of the buffer.
func TestArraysAreThoseOfPgx(t *testing.T) {
	ours, theirs := oursAndTheirs()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOf(rapid.String()).Draw(t, "texts")
		some := rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOfN(rapid.Byte(), 1, 2000))
		parts := rapid.SliceOf(some).Draw(t, "bytes")
		for _, c := range []struct {
			oid   uint32
			value any
		}{
			{pgtype.TextArrayOID, texts}, {pgtype.TextArrayOID, parts}, {pgtype.ByteaArrayOID, parts},
			{pgtype.TextArrayOID, []string(nil)}, {pgtype.ByteaArrayOID, [][]byte(nil)},
		} {
			want, err := theirs.Encode(c.oid, pgtype.BinaryFormatCode, c.value, []byte("before"))
			require.NoError(t, err)
			got, err := ours.Encode(c.oid, pgtype.BinaryFormatCode, c.value, []byte("before"))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

// A list makes room once, where pgx makes room again and again, and more for every element.
func TestArraysMakeRoomOnce(t *testing.T) {
	ours, _ := oursAndTheirs()
	var list any = slicesOf(1000, 700)
	made := testing.AllocsPerRun(10, func() {
		if _, err := ours.Encode(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, list, nil); err != nil {
			panic(err)
		}
	})
	require.Less(t, made, 10.0) // 1, but for those of the race detector
}

func slicesOf(n, size int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = bytes.Repeat([]byte{'x'}, size)
	}
	return list
}

func BenchmarkArrays(b *testing.B) {
	ours, theirs := oursAndTheirs()
	var list any = slicesOf(1000, 700)
	for name, m := range map[string]*pgtype.Map{"ours": ours, "pgx": theirs} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Encode(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, list, make([]byte, 0, 256)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
