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

// Each direct dependency has its reason, and no reason is left of a removed one.
func TestDependenciesHaveReasons(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(text)
	}
	_, list, found := strings.Cut(read("docs/decisions/0004-libraries.md"), "## Every direct dependency")
	require.True(t, found)
	var direct, reasons []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+\.\S+/\S+|\S+/\S+) v\S+$`).FindAllStringSubmatch(read("go.mod"), -1) {
		direct = append(direct, m[1])
	}
	for _, row := range regexp.MustCompile(`(?m)^\| `+"(`.*`)"+` \|`).FindAllStringSubmatch(list, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			reasons = append(reasons, m[1])
		}
	}
	assert.ElementsMatch(t, direct, reasons)
}
