package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each direct dependency has its reason beside it.
func TestDependenciesHaveReasons(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	direct := regexp.MustCompile(`(?m)^\t(\S+/\S+) v\S+(.*)$`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, direct)
	for _, m := range direct {
		assert.Regexp(t, `^ // \S`, m[2], m[1])
	}
}
