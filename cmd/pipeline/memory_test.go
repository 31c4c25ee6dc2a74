package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no control groups": {map[string]string{}, 0},
		"no limit":          {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"a container":       {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000000\n"}, 900_000},
		"a service": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/weir.service\n", "sys/fs/cgroup/system.slice/weir.service/memory.max": "2000000\n",
		}, 1_800_000},
		"less around it": {map[string]string{
			"proc/self/cgroup": "1:cpu:/x\n0::/system.slice/weir.service\n", "sys/fs/cgroup/system.slice/weir.service/memory.max": "max\n",
			"sys/fs/cgroup/system.slice/memory.max": "1000\n",
		}, 900},
		"version 1": {map[string]string{"proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			require.Equal(t, c.want, memoryLimit(root))
		})
	}
}
