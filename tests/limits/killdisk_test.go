//go:build verify && linux

package limits

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// I1, I2: a process that is killed while its disk is full, with the free space inside its files used
// up, loses nothing, and one that starts on the full disk writes nothing wrong.
func TestKilledOnAFullDisk(t *testing.T) {
	onSmallDisk(t, 128<<20, func(t *testing.T, disk smallDisk) {
		p := harness.Simple(t, fmt.Sprintf("data_dir: %q\n", disk.dir+"/data"), map[string]string{"acme": harness.FileSink("acme")})
		out := lineCounter{path: p.Path("out/acme.jsonl")}
		run := p.Start("run")
		p.Append("events.jsonl", heavy(0, 1000))
		arrive(t, p, 1000)

		disk.leave(0)
		events := 1000
		harness.Eventually(t, "it halts", func() error {
			if out.count(t) == events {
				p.Append("events.jsonl", heavy(events, events+1000))
				events += 1000
			}
			status, _ := run.Get("/readyz")
			return harness.Want(status, 503)
		})
		run.Kill()
		again := p.Start("run")
		harness.Eventually(t, "a start on a full disk ends, or halts", func() error {
			return harness.Want(again.Ended() || strings.Contains(again.Log.String(), "disk is full"), true)
		})
		again.Kill()
		disk.clear()
		run = p.Start("run")
		arrive(t, p, events)
		run.Terminate()
		run.Ok()
		require.NoError(t, os.Symlink(disk.dir+"/data", p.Path("data")))
		require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
	})
}
