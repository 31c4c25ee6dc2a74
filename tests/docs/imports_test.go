package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/seed-86dfc502/weir/"

// The page of the architecture says in one line which way imports point. A package
// of internal counts as its own imports: it may not lead back up.
func TestImportsPointOneWay(t *testing.T) {
	_, line, ok := strings.Cut(pages(t)["docs/architecture.md"], "\n> cmd ")
	require.True(t, ok)
	line, _, _ = strings.Cut(line, "\n")
	rank := map[string]int{}
	for i, level := range strings.Split("cmd "+line, " → ") {
		for _, folder := range strings.Split(level, " · ") {
			rank[folder] = i
		}
	}

	imports := importsOfCode(t)
	var reached func(from string, seen map[string]bool) []string
	reached = func(from string, seen map[string]bool) (found []string) {
		for _, to := range imports[from] {
			switch {
			case !strings.HasPrefix(to, "internal/"):
				found = append(found, to)
			case !seen[to]:
				seen[to] = true
				found = append(found, reached(to, seen)...)
			}
		}
		return found
	}
	for from := range imports {
		folder, _, _ := strings.Cut(from, "/")
		level, listed := rank[folder]
		if !listed {
			assert.Contains(t, []string{"internal", "tests", "deploy", "examples"}, folder, "%s is not in the line", from)
			continue
		}
		for _, to := range reached(from, map[string]bool{}) {
			target, _, _ := strings.Cut(to, "/")
			below, known := rank[target]
			assert.True(t, target == folder || known && below > level, "%s imports %s", from, to)
		}
	}
}

// importsOfCode returns what each folder imports of this module, without tests and
// without the conformance suites, which only tests import.
func importsOfCode(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if path != "." && (generated(path, d) || strings.HasSuffix(path, "test")) {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		for _, spec := range file.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if to, ours := strings.CutPrefix(to, module); ours && !slices.Contains(found[folder], to) {
				found[folder] = append(found[folder], to)
			}
		}
		return nil
	}))
	return found
}
