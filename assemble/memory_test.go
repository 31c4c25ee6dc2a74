package assemble

import (
	"testing"
	"testing/fstest"

	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

func TestAvailableMemory(t *testing.T) {
	const machine = "MemTotal:        8388608 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files     map[string]string
		available int64
		memory    int64 // the default of limits.memory
	}{
		"nothing is known":  {map[string]string{}, 0, 256 << 20},
		"a machine":         {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n"}, 8 << 30, 2 << 30},
		"a large machine":   {map[string]string{"proc/meminfo": "MemTotal: 67108864 kB\n"}, 64 << 30, 4 << 30},
		"no limit":          {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 8 << 30, 2 << 30},
		"a container":       {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, 1 << 30, 256 << 20},
		"a small container": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000000\n"}, 1_000_000, 128 << 20},
		"less around it": {map[string]string{
			"proc/self/cgroup": "1:cpu:/x\n0::/system.slice/weir.service\n", "sys/fs/cgroup/system.slice/weir.service/memory.max": "max\n",
			"sys/fs/cgroup/system.slice/memory.max": "1073741824\n",
		}, 1 << 30, 256 << 20},
		"version 1":           {map[string]string{"proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1073741824\n"}, 1 << 30, 256 << 20},
		"version 1, no limit": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8 << 30, 2 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			require.Equal(t, c.available, availableMemory(root))
			require.Equal(t, c.memory, defaultMemory(c.available))
		})
	}
}

func TestFixedMemory(t *testing.T) {
	c := &config.Config{Sources: config.Sources{{MaxEvent: 1 << 20}, {MaxEvent: 8 << 20}}}
	require.EqualValues(t, 64<<20, FixedMemory(c))
}
