package crashtest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

var (
	full  = flag.Bool("crash.full", false, "the whole matrix")
	table = flag.String("crash.table", "", "write the table to this file")
)

// binary is the pipeline with its crash points, built once.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "weir-crash-")
	if err == nil && !testing.Short() {
		binary = filepath.Join(dir, "pipeline")
		build := exec.Command("go", "build", "-tags", "crash", "-o", binary, "../cmd/pipeline")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the pipeline:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
