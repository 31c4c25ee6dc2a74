package simulation

import (
	"testing"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
)

// The store that simulated processes share keeps those promises of the real ones that the stages rest on.
func TestMemoryConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) (store.Store, store.Store) {
		m := NewMemory()
		return m, m
	}, "Decide", "TakeOver", "Owners", "Poison", "Progress", "Retrying", "Frames", "Moved", "Purge", "SourceLogs")
}
