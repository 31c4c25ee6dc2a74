package checkhttp_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	versionPattern = regexp.MustCompile(`version":\s?(\d+)`)
	keyPattern     = regexp.MustCompile(`idempotency_key":"(\w+)"`)
)

// The commands of docs/check-api.md have the answers of the page, in their order. An invented
// version or key of the page replaces the returned one, the same each time.
func TestDocumentedRequests(t *testing.T) {
	w := newWorld(t).start()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "check-api.md"))
	require.NoError(t, err)
	came := map[string]string{} // by what the page shows
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```console[^\n]*\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		lines := strings.Split(strings.TrimSpace(block[1]), "\n")
		for len(lines) > 0 {
			command, is := strings.CutPrefix(lines[0], "$ ")
			require.True(t, is, "output without a command: %s", lines[0])
			require.Greater(t, len(lines), 1, "%s has no output", command)
			shown := lines[1]
			lines = lines[2:]
			command = strings.ReplaceAll(command, "http://127.0.0.1:9601", w.url)
			for was, is := range came {
				command = strings.ReplaceAll(command, was, is)
			}
			output, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput()
			require.NoError(t, err, "%s: %s", command, output)
			got := strings.TrimSpace(string(output))
			for _, pattern := range []*regexp.Regexp{versionPattern, keyPattern} {
				was, is := pattern.FindAllStringSubmatch(shown, -1), pattern.FindAllStringSubmatch(got, -1)
				require.Len(t, is, len(was), "%s\nprinted\n%s", command, got)
				for i := range was {
					if known, again := came[was[i][1]]; again {
						require.Equal(t, known, is[i][1], "%s\nprinted\n%s", command, got)
					}
					came[was[i][1]] = is[i][1]
				}
			}
			for was, is := range came {
				shown = strings.ReplaceAll(shown, was, is)
			}
			require.Equal(t, shown, got, command)
			commands++
		}
	}
	require.Greater(t, commands, 5)
}
