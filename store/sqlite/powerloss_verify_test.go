//go:build verify

package sqlite

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	lossRounds = flag.Int("storage.rounds", 1000, "schedules of power losses")
	lossFrom   = flag.Uint64("storage.from", 1000, "seed of the first one")
)

// TestPowerLoss, for long.
func TestPowerLossForLong(t *testing.T) {
	losses, faults := powerLossRounds(t, *lossFrom, *lossRounds)
	t.Logf("%d schedules from %d: %d power losses, %d failed calls", *lossRounds, *lossFrom, losses, faults)
	require.Greater(t, losses, *lossRounds)
}
