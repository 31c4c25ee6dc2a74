package api

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// The requests of docs/http-ingest.md get the answers it shows: the page's
// configuration runs, and its requests are sent, in their order.
func TestDocumentedRequests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "http-ingest.md"))
	require.NoError(t, err)
	const documented = "127.0.0.1:9601"
	blocks := regexp.MustCompile("(?ms)^```(yaml|console servers)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	files := map[string]string{}
	var commands [][]string // a command and the lines that it prints
	for _, b := range blocks {
		if b[1] == "yaml" {
			name, _, _ := strings.Cut(strings.TrimPrefix(b[2], "# "), "\n")
			files[name] = b[2]
			continue
		}
		for line := range strings.Lines(b[2]) {
			line = strings.TrimSpace(line)
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands = append(commands, []string{command})
			} else {
				last := len(commands) - 1
				commands[last] = append(commands[last], line)
			}
		}
	}
	require.GreaterOrEqual(t, len(commands), 9)
	files["weir.yaml"] = harness.ReplaceOnce(t, files["weir.yaml"], documented, "127.0.0.1:0") + "admin: {listen: \"127.0.0.1:0\"}\n"
	run := harness.NewProject(t, files).Start("run")
	run.Ready(200)
	for _, c := range commands {
		line := harness.ReplaceOnce(t, c[0], documented, run.Address("ingest"))
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail; "+line).CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		printed := strings.Split(string(out), "\n")
		for _, want := range c[1:] {
			parts := strings.Split(want, "…")
			for i := range parts {
				parts[i] = regexp.QuoteMeta(parts[i])
			}
			pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "\r?$")
			for len(printed) > 0 && !pattern.MatchString(printed[0]) {
				printed = printed[1:]
			}
			require.NotEmpty(t, printed, "$ %s\nprinted\n%s\nwithout %s", c[0], out, want)
			printed = printed[1:]
		}
	}
}
