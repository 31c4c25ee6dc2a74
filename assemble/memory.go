package assemble

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-86dfc502/weir/config"
)

// Bounds of limits.memory where the configuration has none, in bytes: it is a quarter of
// the available memory.
const (
	memoryShare = 4
	leastMemory = 128 << 20
	mostMemory  = 4 << 30
)

// AvailableMemory returns the memory of the machine, or the least limit of the process's
// control groups if that is less, in bytes; 0 where neither can be read. It is read once.
var AvailableMemory = sync.OnceValue(func() int64 { return availableMemory(os.DirFS("/")) })

func availableMemory(root fs.FS) int64 {
	available := groupMemory(root)
	if total := machineMemory(root); total > 0 && (available == 0 || total < available) {
		available = total
	}
	return available
}

// defaultMemory is limits.memory of a configuration without one.
func defaultMemory(available int64) int64 {
	if available == 0 {
		return 2 * leastMemory
	}
	return min(max(available/memoryShare, leastMemory), mostMemory)
}

// GroupMemory returns the least limit of the process's control groups, in bytes; 0 where
// there is none.
func GroupMemory() int64 { return groupMemory(os.DirFS("/")) }

func groupMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if group, ok := strings.CutPrefix(line, "0::/"); ok {
			least = min(least, leastLimit(root, "sys/fs/cgroup", group, "memory.max"))
		} else if fields := strings.SplitN(line, ":", 3); len(fields) == 3 && fields[1] == "memory" {
			least = min(least, leastLimit(root, "sys/fs/cgroup/memory", strings.TrimPrefix(fields[2], "/"), "memory.limit_in_bytes"))
		}
	}
	if least >= math.MaxInt64>>1 { // version 1 writes a page less than the largest number
		return 0
	}
	return least
}

// leastLimit returns the least limit of a control group and those around it.
func leastLimit(root fs.FS, hierarchy, group, file string) int64 {
	least := int64(math.MaxInt64)
	for {
		if text, err := fs.ReadFile(root, path.Join(hierarchy, group, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else "max"
				least = min(least, n)
			}
		}
		if group == "" || group == "." {
			return least
		}
		group = path.Dir(group)
	}
}

func machineMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// Needs of a process that do not depend on limits.memory, in bytes.
const (
	// serviceMemory is the memory of an idle service: worker, lanes, sink and metrics. Measured
	// among 10,000: 25 KiB.
	serviceMemory = 32 << 10
	// eventFactor is how often the largest event is in memory while it is ingested and decided.
	eventFactor = 8
)

// FixedMemory returns the part of limits.memory that does not depend on it, in bytes: its
// services without changes, and the largest event on its way.
func FixedMemory(c *config.Config) int64 {
	largest := int64(0)
	for i := range c.Sources {
		largest = max(largest, int64(c.Sources[i].MaxEvent))
	}
	return int64(len(c.Services()))*serviceMemory + eventFactor*largest
}
