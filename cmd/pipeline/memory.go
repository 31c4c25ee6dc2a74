package main

import (
	"os"
	"runtime/debug"

	"github.com/seed-86dfc502/weir/assemble"
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
	if group := assemble.GroupMemory(); group > 0 {
		limit = min(limit, group/10*9)
	}
	debug.SetMemoryLimit(limit)
	return limit
}
