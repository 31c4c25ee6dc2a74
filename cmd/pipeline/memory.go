package main

import (
	"os"
	"runtime/debug"

	"github.com/seed-86dfc502/weir/assemble"
)

// processOverhead is the memory of a process beyond limits.memory, in bytes: code, stacks,
// clients, and garbage that is not collected yet.
const processOverhead = 128 << 20

// setMemoryLimit sets the memory limit of the Go runtime: that of the configuration, or less
// within a smaller control group. Beyond it Go collects garbage. No allocation fails. It returns
// 0 and does nothing if GOMEMLIMIT is set.
func setMemoryLimit(configured int64) (limit int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit = configured + processOverhead
	if group := assemble.GroupMemory(); group > 0 {
		limit = min(limit, group/10*9)
	}
	debug.SetMemoryLimit(limit)
	return limit
}
