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

// I1, I2, I8: when the disk of the whole embedded mode fills up under load, Weir
// halts, says why, and resumes by itself when there is room again, also if it is
// killed meanwhile.
func TestDiskFull(t *testing.T) {
	onSmallDisk(t, 128<<20, func(t *testing.T, disk smallDisk) {
		p := harness.Simple(t, fmt.Sprintf("data_dir: %q\n", disk.dir+"/data"), map[string]string{"acme": harness.FileSink("acme")})
		out := lineCounter{path: p.Path("out/acme.jsonl")}
		run := p.Start("run")
		p.Append("events.jsonl", heavy(0, 1000))
		arrive(t, p, 1000)
		run.Ready(200)

		disk.leave(1 << 20)
		run.Ready(200)
		p.Append("events.jsonl", heavy(1000, 9000))
		halts(t, run)
		status, _ := run.Get("/healthz")
		require.Equal(t, 200, status)

		disk.clear()
		run.Ready(200)
		run.Says(".resumed")
		arrive(t, p, 9000)

		// Not a byte is left, and the free space inside the files is used up: the process is killed.
		disk.leave(0)
		events := 9000
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
