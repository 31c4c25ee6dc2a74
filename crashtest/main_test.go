package crashtest

import (
	"flag"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/harness"
)

var (
	full  = flag.Bool("crash.full", false, "the whole matrix")
	table = flag.String("crash.table", "", "write the table to this file")
)

func TestMain(m *testing.M) { harness.Main(m, "-tags", "crash") }
