//go:build verify

package e2e

import (
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
)

// I1, I2, I8: a store that keeps its connections and says nothing is down like
// any other.
func TestSilentStoreIsNotReady(t *testing.T) {
	const entities = 20
	p, store, run := onOwnStore(t, entities, 5)

	store.Pause()
	p.Append("events.jsonl", harness.Many(entities, 5, 10))
	run.Ready(503)

	store.Resume()
	endsWell(t, p, run, entities, "r9")
}
