package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every promise of docs/guarantees.md and every invariant of docs/architecture.md has tests in
// testdata/promises.txt, and everything that the list and the pages name exists.
func TestEachPromiseHasATest(t *testing.T) {
	text, err := os.ReadFile("testdata/promises.txt")
	require.NoError(t, err)
	shownBy := map[string][]string{}
	title := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, is := strings.CutPrefix(line, "  "); is {
			shownBy[title] = append(shownBy[title], name)
		} else if line != "" && !strings.HasPrefix(line, "#") {
			title = line
			shownBy[title] = nil
		}
	}

	all := pages(t)
	promised := promises(all["docs/guarantees.md"])
	for _, m := range regexp.MustCompile(`(?m)^\| (I\d+) \| ([^|]+) \|`).FindAllStringSubmatch(all["docs/architecture.md"], -1) {
		promised = append(promised, m[1]+" "+m[2])
	}
	require.Greater(t, len(promised), 80)
	var listed []string
	for title := range shownBy {
		if !strings.HasPrefix(title, "fault: ") {
			listed = append(listed, title)
		}
	}
	assert.ElementsMatch(t, promised, listed, "the titles of promises.txt and the promises of the pages")

	tests, cases := namesOfTests(t)
	for title, names := range shownBy {
		assert.NotEmpty(t, names, "%s has no test", title)
		for _, name := range names {
			if start, is := strings.CutPrefix(name, "conformance: "); is {
				assert.True(t, strings.Contains(cases, `{"`+strings.TrimSuffix(start, " …")), "%s: store/storetest has no case %s", title, start)
				continue
			}
			assert.True(t, tests[name[strings.LastIndex(name, ".")+1:]], "%s: there is no %s", title, name)
		}
	}
	for page, text := range all {
		for _, m := range regexp.MustCompile("`(?:[a-z/]+\\.)?((?:Test|Fuzz|Benchmark)\\w+)").FindAllStringSubmatch(text, -1) {
			assert.True(t, tests[m[1]], "%s: there is no %s", page, m[1])
		}
	}
}

// promises are the titles of a page's promises: the bold beginnings of the points under "What
// happens when …", and the first cells of the table of layers.
func promises(page string) (found []string) {
	linked := regexp.MustCompile(`\[([^]]+)\]\([^)]*\)`)
	section := ""
	for line := range strings.Lines(page) {
		if name, is := strings.CutPrefix(line, "## "); is {
			section = strings.TrimSpace(name)
		}
		point := regexp.MustCompile(`^- \*\*(.+?)\*\*`).FindStringSubmatch(line)
		row := regexp.MustCompile(`^\| ([^|]+) \|`).FindStringSubmatch(line)
		switch {
		case point != nil && section == "What happens when …":
			found = append(found, linked.ReplaceAllString(point[1], "$1"))
		case row == nil || row[1] == "---" || row[1] == "layer":
		case section == "The layers":
			found = append(found, "layer "+row[1])
		}
	}
	return found
}

// namesOfTests returns the names of all tests, fuzz targets and benchmarks of the repository, and
// the text of the stores' conformance suite.
func namesOfTests(t *testing.T) (names map[string]bool, conformance string) {
	t.Helper()
	names = map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if d != nil && generated(path, d) {
			return filepath.SkipDir
		}
		suite := strings.Contains(filepath.ToSlash(path), "/store/storetest/")
		if err != nil || !strings.HasSuffix(path, ".go") || !suite && !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		if suite {
			conformance += string(text)
		}
		return err
	}))
	return names, conformance
}
