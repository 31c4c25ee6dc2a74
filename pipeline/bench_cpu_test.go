package pipeline

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// cpu is processor time by who used it: "weir" is this process, the others are
// the shared test servers. Other users of those servers count too.
type cpu map[string]time.Duration

// ticks of /proc are hundredths of a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func usedCPU(b *testing.B, names ...string) cpu {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	used := cpu{"weir": time.Duration(u.Utime.Nano() + u.Stime.Nano())}
	if len(names) == 0 {
		return used
	}
	root, err := servers.Root()
	if err != nil {
		b.Fatal(err)
	}
	all := processes(b)
	for _, s := range names {
		text, err := os.ReadFile(filepath.Join(root, ".run", s+".pid"))
		if err != nil {
			continue // it is somewhere else: its time is not ours to see
		}
		pid, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		n, _ := strconv.Atoi(pid)
		used[s] = family(n, all)
	}
	return used
}

// processes returns the state of every process.
func processes(b *testing.B) (all []procfs.ProcStat) {
	b.Helper()
	procs, err := procfs.AllProcs()
	require.NoError(b, err)
	for _, p := range procs {
		if stat, err := p.Stat(); err == nil { // else it has ended
			all = append(all, stat)
		}
	}
	return all
}

// family sums a process, its children that live and those that have ended.
func family(pid int, all []procfs.ProcStat) (d time.Duration) {
	for _, s := range all {
		if s.PID == pid {
			d += time.Duration(int(s.UTime+s.STime)+s.CUTime+s.CSTime) * tick
		}
		if s.PPID == pid {
			d += family(s.PID, all)
		}
	}
	return d
}

// resident returns the most memory that a process has had, in MiB.
func resident(b *testing.B, pid int) float64 {
	b.Helper()
	p, err := procfs.NewProc(pid)
	require.NoError(b, err)
	status, err := p.NewStatus()
	require.NoError(b, err)
	return float64(status.VmHWM) / (1 << 20)
}
