package assemble

import (
	"math"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/seed-86dfc502/weir/config"
)

// Bounds of limits.memory where the configuration has none, in bytes: it is a quarter of the
// available memory. A larger cache gains little (docs/performance.md), and the process does not
// return memory below the limit.
const (
	memoryShare = 4
	leastMemory = 128 << 20
	mostMemory  = 512 << 20
)

// AvailableMemory returns the memory of the machine, or the least limit of the process's control
// groups if that is less, in bytes, or 0 where neither can be read. It is read once.
var AvailableMemory = sync.OnceValue(func() int64 {
	machine, group := memory(memlimit.FromSystem), GroupMemory()
	if group > 0 && (machine == 0 || group < machine) {
		return group
	}
	return machine
})

// defaultMemory is limits.memory of a configuration without one. It does not depend on the
// services: these may change while the process runs, settings of the main file may not.
func defaultMemory(available int64) int64 {
	if available == 0 {
		return 2 * leastMemory
	}
	return min(max(available/memoryShare, leastMemory), mostMemory)
}

// GroupMemory returns the least limit of the process's control groups, in bytes, or 0 without
// control groups.
func GroupMemory() int64 { return memory(memlimit.FromCgroup) }

func memory(of memlimit.Provider) int64 {
	n, err := of()
	if err != nil || n > math.MaxInt64>>1 {
		return 0
	}
	return int64(n)
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

// CachedEntities estimates how many entities the cache holds in one process, of 1 KiB of
// documents each.
func CachedEntities(c *config.Config) int64 {
	const documents, besides, state = 1 << 10, 600, 40 // bytes; besides: ids, fence, the map's entry
	return c.CacheMemory() / (documents + besides + state*int64(len(c.Services())))
}
