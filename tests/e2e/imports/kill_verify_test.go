//go:build verify

package imports

import (
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
)

// TestKilledAnywhere kills the process that imports at each point.
func TestKilledAnywhere(t *testing.T) {
	for on, source := range map[string]string{embedded: "orders", onServers: "lab"} {
		for _, point := range append(crash.ImportPoints(), crash.FrontBegun, crash.FrontAppended) {
			t.Run(on+"/"+point, func(t *testing.T) {
				if on == onServers && testing.Short() {
					t.Skip("needs servers")
				}
				t.Parallel()
				killed(t, on, point, source)
			})
		}
	}
}
