package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page of the architecture lists every folder of code and no other, and its
// picture shows the packages of the flow, by their names.
func TestTheTreeIsTheTree(t *testing.T) {
	page := pages(t)["docs/architecture.md"]
	_, list, ok := strings.Cut(page, "```text\n")
	require.True(t, ok)
	list, _, ok = strings.Cut(list, "```")
	require.True(t, ok)
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9/]+) +\S`).FindAllStringSubmatch(list, -1) {
		info, err := os.Stat(filepath.Join(root, m[1]))
		assert.True(t, err == nil && info.IsDir(), "%s is listed and no folder", m[1])
		listed[m[1]] = true
	}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir() || path == ".":
			return err
		case generated(path, d), d.Name() == "testdata" && path != d.Name():
			return fs.SkipDir
		case !strings.Contains(path, "/"):
			if path != "cmd" && path != "api" {
				assert.True(t, listed[path], "%s is not listed", path)
			}
			return nil
		}
		if part := parts.MatchString(path); !part && holdsCode(t, path) {
			assert.True(t, listed[path], "%s is not listed", path)
		}
		return nil
	}))

	_, picture, ok := strings.Cut(page, "```mermaid\n")
	require.True(t, ok)
	picture, _, _ = strings.Cut(picture, "```")
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:^|[ \t])([a-z]+)(?:\[|\s*-->|\s*<-->|\n)`).FindAllStringSubmatch(picture, -1) {
		if m[1] != "end" {
			assert.True(t, listed[m[1]], "%s is in the picture and no package", m[1])
			shown[m[1]] = true
		}
	}
	flow := strings.Split(list, "\n\n")[1]
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+) `).FindAllStringSubmatch(flow, -1) {
		assert.True(t, shown[m[1]], "%s is part of the flow and not in the picture", m[1])
	}
}

// parts are packages that belong to the one above them: internals, suites, helpers of
// tests, examples.
var parts = regexp.MustCompile(`(^|/)internal/|^tests/|[a-z]test$|^examples/`)

func holdsCode(t *testing.T, path string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, path, "*.go"))
	require.NoError(t, err)
	return len(files) > 0
}
