package postgres

import (
	"bytes"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// The parameters of a statement are those of pgx until it is sent, after any statements
// before it, and take no memory once the connection has room for them.
func TestArraysShareTheRoomOfAConnection(t *testing.T) {
	ours, theirs := oursAndTheirs()
	statement := &pgconn.StatementDescription{ParamOIDs: []uint32{pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.ByteaArrayOID, pgtype.Int8ArrayOID, pgtype.ByteaArrayOID}}
	var mine, other pgx.ExtendedQueryBuilder
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 300).Draw(t, "rows")
		size := rapid.SampledFrom([]int{0, 1, 100, 9000}).Draw(t, "size")
		args := []any{slices.Repeat([]string{"id"}, n), make([]int64, n), slicesOf(n, size), make([]int64, 3*n), slicesOf(n, 10)}
		require.NoError(t, mine.Build(ours, statement, args))
		require.NoError(t, other.Build(theirs, statement, args))
		require.Equal(t, other.ParamValues, mine.ParamValues)
	})
	args := []any{[]string{"id"}, []int64{1}, slicesOf(1000, 700), []int64{1}, slicesOf(1000, 100)}
	made := testing.AllocsPerRun(10, func() {
		if err := mine.Build(ours, statement, args); err != nil {
			panic(err)
		}
	})
	require.Less(t, made, 15.0) // of 256 bytes, and of the race detector
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
