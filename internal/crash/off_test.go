//go:build !crash

package crash_test

import (
	"debug/elf"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/testbinary"
	"github.com/stretchr/testify/require"
)

// The binary without the tag holds neither a point nor what runs only before a
// death: no function of theirs is left by the linker.
func TestNothingOfItIsInTheProduct(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary")
	}
	binary, err := testbinary.Build(t.TempDir())
	require.NoError(t, err)
	f, err := elf.Open(binary)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	product := 0
	for _, s := range symbols {
		if strings.Contains(s.Name, "weir/decide.") {
			product++
		}
		for _, name := range []string{"weir/internal/crash.", "dieWriting", "dieMigrating"} {
			require.NotContains(t, s.Name, name)
		}
	}
	require.Positive(t, product, "the symbols are there to be looked at")
}

// Every constant of points.go is a point of its own, and in exactly one of the
// lists; so it is in the crash matrix, which has all of them.
func TestEveryPointIsInOneList(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var named []string
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			require.Len(t, v.Values, 1, v.Names[0])
			name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			named = append(named, name)
		}
		return true
	})
	require.NotEmpty(t, named)
	require.ElementsMatch(t, named, crash.All())
	slices.Sort(named)
	require.Len(t, slices.Compact(named), len(crash.All()), "two points have one name")
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
