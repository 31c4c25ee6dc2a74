//go:build verify

package chaos

import (
	"flag"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
)

// The default seed is one with half-open connections to the store, during a
// rolling restart, and to Kafka.
var (
	rounds = flag.Int("chaos.rounds", 6, "rounds of random faults; six have every kind")
	only   = flag.Int("chaos.only", 0, "run this round of the plan alone, to reduce a failure")
	seed   = flag.Uint64("chaos.seed", 8, "what the faults are drawn from")
)

func TestMain(m *testing.M) { harness.Main(m) }
