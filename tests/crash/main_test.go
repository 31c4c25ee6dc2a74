package crash

import (
	"flag"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
)

func TestMain(m *testing.M) {
	// A world mostly waits, for groups to know that a member
	// died. The command line's value holds.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	harness.Main(m, "crash")
}
