package harness

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/testbinary"
	"go.uber.org/goleak"
)

// binary is the pipeline under test, built by Main.
var binary string

// Binary returns the path of the pipeline under test. With -short the test is
// skipped: a process for each would be most of its time.
func Binary(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the pipeline as a process")
	}
	return binary
}

// Main is TestMain of a package that runs the pipeline: it builds the binary
// with the given build tags (with -short nothing runs it), runs the tests, looks for goroutines that they left,
// and ends the process.
func Main(m *testing.M, tags ...string) {
	flag.Parse()
	os.Exit(runTests(m, tags))
}

func runTests(m *testing.M, tags []string) int {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err == nil && !testing.Short() {
		binary, err = testbinary.Build(dir, tags...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return Ended(m.Run(), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// Ended returns the exit status of tests that ended with a code: 1 if they passed
// and left goroutines other than those that may stay. Those of libraries end a
// moment after their owner was closed, which is no short one on a busy
// machine; a leaked one is there after any time.
func Ended(code int, left ...goleak.Option) int {
	if code != 0 {
		return code
	}
	var err error
	for start := time.Now(); time.Since(start) < Patience; {
		if err = goleak.Find(left...); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
