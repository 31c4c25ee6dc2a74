package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// processOverhead is what a process needs besides what limits.memory bounds, in bytes:
// code, stacks, clients, and garbage that is not collected yet.
const processOverhead = 128 << 20

// setMemoryLimit tells Go how much memory is meant to be used: what the configuration
// says, and less where a control group would end the process before. It collects
// garbage rather than to use more, and fails at nothing. Whoever sets GOMEMLIMIT
// decides otherwise; 0 then.
func setMemoryLimit(configured int64) (limit int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit = configured + processOverhead
	if group := memoryLimit(os.DirFS("/")); group > 0 {
		limit = min(limit, group)
	}
	debug.SetMemoryLimit(limit)
	return limit
}

// memoryLimit returns nine tenths of the least limit of the process's control group
// (version 2) and those around it; 0 where there is none.
func memoryLimit(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	group := ""
	for line := range strings.Lines(string(text)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok {
			group = own
		}
	}
	least := int64(math.MaxInt64)
	for {
		if text, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", group, "memory.max")); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else "max"
				least = min(least, n)
			}
		}
		if group == "" || group == "." {
			break
		}
		group = path.Dir(group)
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least / 10 * 9
}
