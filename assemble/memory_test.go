package assemble

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/config"
)

func TestDefaultMemory(t *testing.T) {
	for available, memory := range map[int64]int64{0: 256 << 20, 1_000_000: 128 << 20, 1 << 30: 256 << 20, 2 << 30: 512 << 20, 64 << 30: 512 << 20} {
		require.Equal(t, memory, defaultMemory(available), available)
	}
	require.Positive(t, AvailableMemory(), "of this machine or its control group")
}

func TestFixedMemory(t *testing.T) {
	c := &config.Config{Sources: config.Sources{{MaxEvent: 1 << 20}, {MaxEvent: 8 << 20}}}
	require.EqualValues(t, 64<<20, FixedMemory(c))
}
