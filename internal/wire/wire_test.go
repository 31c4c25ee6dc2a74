package wire_test

import (
	"encoding/binary"
	"testing"

	"github.com/seed-86dfc502/weir/internal/wire"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A cut input fails at every length, and reads as zero from there on.
func TestReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, number := rapid.String().Draw(t, "text"), rapid.Int64().Draw(t, "number")
		b := binary.AppendUvarint(binary.AppendVarint(wire.Append([]byte{7}, text), number), uint64(number))
		b = binary.BigEndian.AppendUint64(b, uint64(number))
		r := wire.Reader{Rest: b}
		require.Equal(t, byte(7), r.Byte())
		require.Equal(t, text, r.Text())
		require.Equal(t, number, r.Varint())
		require.Equal(t, uint64(number), r.Uvarint())
		require.Equal(t, uint64(number), r.Uint64())
		require.Empty(t, r.Rest)
		require.False(t, r.Failed)

		r = wire.Reader{Rest: b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]}
		r.Byte()
		r.Text()
		r.Varint()
		r.Uvarint()
		require.Zero(t, r.Uint64())
		require.True(t, r.Failed)
		require.Zero(t, r.Varint())
		require.Zero(t, r.Uvarint())
		require.Empty(t, r.Text())
	})
}

func TestCountIsBounded(t *testing.T) {
	r := wire.Reader{Rest: []byte{3, 0, 0}}
	require.Zero(t, r.Count())
	require.True(t, r.Failed)
}
