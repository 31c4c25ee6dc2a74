package clickhouse

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A sequence takes a real server a tenth of a second. A flag on the
	// command line prevails; `SUITE=sinks make verify` says more.
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
