//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// Without brokers a process listens where its configuration says, and nowhere else:
// there is no port of a broker inside, which anybody on the machine could send to.
func TestEmbeddedListensOnNothingElse(t *testing.T) {
	t.Parallel()
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	p.Append("events.jsonl", harness.Many(10, 0, 2))
	run := p.Start("run")
	run.Ready(200)
	proc := fmt.Sprintf("/proc/%d/", run.Cmd.Process.Pid)
	files, err := filepath.Glob(proc + "fd/*")
	require.NoError(t, err)
	sockets := map[string]bool{}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "socket:[") {
			sockets[strings.Trim(to, "socket:[]")] = true
		}
	}
	require.NotEmpty(t, sockets)
	// local_address rem_address st … inode; 0A is LISTEN.
	entry := regexp.MustCompile(`^\s*\d+: \S+ \S+ 0A (?:\S+\s+){5}(\d+)`)
	listening := 0
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		text, err := os.ReadFile(proc + table)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if m := entry.FindStringSubmatch(line); m != nil && sockets[m[1]] {
				listening++
			}
		}
	}
	require.Equal(t, 1, listening, "the operators' listener")
	run.Terminate()
	run.Ok()
	all, err := os.ReadDir(p.Path("data"))
	require.NoError(t, err)
	for _, f := range all {
		require.True(t, strings.HasPrefix(f.Name(), "state.db"), f.Name())
	}
}
