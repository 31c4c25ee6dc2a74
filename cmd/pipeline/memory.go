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

// heedMemory lets Go collect garbage, and give up what it keeps for later, before
// the control group's limit ends the process. Whoever sets GOMEMLIMIT decides
// otherwise.
func heedMemory() (limit int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	if limit = memoryLimit(os.DirFS("/")); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit
}

// memoryLimit gives nine tenths of the least limit of the process's control group
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
