//go:build !crash

package crash_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/stretchr/testify/require"
)

// The binary without the tag holds neither a point nor what runs only before a
// death: no function of theirs is left by the linker.
func TestNothingOfItIsInTheProduct(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "pipeline")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/pipeline")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := elf.Open(binary)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	product := 0
	for _, s := range symbols {
		if strings.Contains(s.Name, "weir/dam.") {
			product++
		}
		for _, name := range []string{"weir/internal/crash.", "dieHalfway", "dieWriting", "dieMigrating"} {
			require.NotContains(t, s.Name, name)
		}
	}
	require.Positive(t, product, "the symbols are there to be looked at")
}

func TestPointsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range slices.Concat(crash.Points(), crash.OperatorPoints(), crash.FrontPoints(), crash.ImportPoints(), crash.OutboxPoints()) {
		require.False(t, seen[p], p)
		seen[p] = true
	}
}

// The two benchmarks take the same time. They count by themselves: b.Loop keeps
// calls in its body from being inlined, and that they vanish then is the point.
func BenchmarkPassing(b *testing.B) {
	place := b.Name()
	for range b.N {
		crash.At(crash.Writing, place)
		if crash.Enabled && crash.Due(crash.WriteHalf, place) {
			crash.Die()
		}
	}
}

func BenchmarkEmptyLoop(b *testing.B) {
	for range b.N {
	}
}
