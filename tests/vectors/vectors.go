// Package vectors finds test vectors that other projects publish. They are not
// part of this repository: a test that runs against them has a table of its own
// for the same classes of input, which runs everywhere.
package vectors

import (
	"os"
	"path/filepath"
	"testing"
)

// Published lists the files that match a pattern in shared/data beside the
// repository, or in data/ of the folder that WEIR_SHARED names. The test is
// skipped when there are none.
func Published(t testing.TB, pattern string) []string {
	t.Helper()
	folder := os.Getenv("WEIR_SHARED")
	if folder == "" {
		module := "."
		for _, err := os.Stat("go.mod"); err != nil && len(module) < 30; _, err = os.Stat(filepath.Join(module, "go.mod")) {
			module = filepath.Join("..", module)
		}
		folder = filepath.Join(module, "..", "shared")
	}
	files, err := filepath.Glob(filepath.Join(folder, "data", pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("vectors of another project, not here: no data/%s in %s (WEIR_SHARED names another folder); the table beside this test covers the same classes", pattern, folder)
	}
	return files
}
