package pipeline

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/servers"
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
	parents := processes()
	for _, s := range names {
		text, err := os.ReadFile(filepath.Join(root, ".run", s+".pid"))
		if err != nil {
			continue // it is somewhere else: its time is not ours to see
		}
		pid, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		n, _ := strconv.Atoi(pid)
		used[s] = family(n, parents)
	}
	return used
}

// processes returns the children of every process.
func processes() map[int][]int {
	children := map[int][]int{}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, f := range folders {
		pid, _ := strconv.Atoi(filepath.Base(f))
		if fields := stat(pid); fields != nil {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}

// stat returns the fields of /proc/PID/stat behind the name: state, parent, …
func stat(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil // it has ended
	}
	return strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
}

// family sums a process, its children that live and those that have ended.
func family(pid int, children map[int][]int) (d time.Duration) {
	if fields := stat(pid); len(fields) > 14 {
		for _, f := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(f)
			d += time.Duration(n) * tick
		}
	}
	for _, c := range children[pid] {
		d += family(c, children)
	}
	return d
}
