//go:build linux

package limits

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// inNamespace tells a test that it runs in a mount namespace made for it.
const inNamespace = "WEIR_TEST_MOUNT_NAMESPACE"

// onSmallDisk runs a test with a folder on a file system of its own. A user who may
// not mount gets a name space that allows it; where that is forbidden
// too, the test fails.
func onSmallDisk(t *testing.T, bytes int, test func(t *testing.T, disk smallDisk)) {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("weir-limits", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d", bytes))
	if errors.Is(err, syscall.EPERM) && os.Getenv(inNamespace) == "" {
		again := exec.Command("unshare", "--map-root-user", "--mount", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), inNamespace+"=1")
		out, err := again.CombinedOutput()
		require.NoError(t, err, "in a name space made by unshare --map-root-user --mount:\n%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	require.NoError(t, err, "this test needs a small file system: root, or user name spaces (unshare --map-root-user --mount)")
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	test(t, smallDisk{t, dir})
}

// smallDisk is a folder on a file system of its own.
type smallDisk struct {
	t   *testing.T
	dir string
}

func (d smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// leave fills the disk with a ballast until that many bytes are free.
func (d smallDisk) leave(bytes int64) {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(d.t, err)
	defer f.Close()
	page := make([]byte, 4096)
	for d.free() > bytes {
		if _, err := f.Write(page); err != nil {
			require.ErrorIs(d.t, err, syscall.ENOSPC)
			return
		}
	}
}

func (d smallDisk) free() int64 {
	var s syscall.Statfs_t
	require.NoError(d.t, syscall.Statfs(d.dir, &s))
	return int64(s.Bavail) * s.Bsize
}

// clear removes the ballast.
func (d smallDisk) clear() { require.NoError(d.t, os.Remove(d.ballast())) }

// heavy makes events of some 2 KiB, each another state of one of 100 entities.
func heavy(from, to int) string {
	random := rand.NewChaCha8([32]byte{byte(from)})
	var b strings.Builder
	noise := make([]byte, 1000)
	for n := from; n < to; n++ {
		_, _ = random.Read(noise) // it cannot fail
		b.WriteString(harness.Event(n, fmt.Sprint("E", n%100), hex.EncodeToString(noise)))
	}
	return b.String()
}

// arrive waits for that many changes in the output.
func arrive(t *testing.T, p harness.Project, n int) {
	t.Helper()
	out := lineCounter{path: p.Path("out/acme.jsonl")}
	harness.Eventually(t, "the changes", func() error { return harness.Want(out.count(t), n) })
}

// halts waits until a process is not ready because its disk is full. On a busy
// machine there may be another reason before: a store that took long to answer.
func halts(t *testing.T, run *harness.Process) {
	t.Helper()
	harness.Eventually(t, "it halts, and says why", func() error {
		status, why := run.Get("/readyz")
		return errors.Join(harness.Want(status, 503), harness.Want(strings.Contains(why, "disk is full"), true))
	})
	run.Says("disk is full")
}

// I1, I2, I8: when the disk of SQLite fills up under load, Weir halts, says why,
// and resumes by itself when there is room again.
func TestDiskFullOfTheStore(t *testing.T) {
	onSmallDisk(t, 64<<20, func(t *testing.T, disk smallDisk) {
		p := harness.Simple(t, fmt.Sprintf("data_dir: %q\n", disk.dir), map[string]string{"acme": harness.FileSink("acme")})
		run := p.Start("run")
		p.Append("events.jsonl", heavy(0, 1000))
		arrive(t, p, 1000)
		disk.leave(0)
		p.Append("events.jsonl", heavy(1000, 9000)) // more than what the files have inside
		halts(t, run)
		disk.clear()
		run.Ready(200)
		run.Says(".resumed")
		arrive(t, p, 9000)
		run.Terminate()
		run.Ok()
		require.NoError(t, os.Symlink(disk.dir, p.Path("data")))
		require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
	})
}
