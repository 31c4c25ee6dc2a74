//go:build verify

package linearizable

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
)

// The checker's own test: it refuses every store that is broken on purpose.
func TestBrokenStoresAreFound(t *testing.T) {
	const rounds = 20
	for _, d := range []defect{blindSwap, noWatermark, noFence, noToken, oldMemory} {
		t.Run(string(d), func(t *testing.T) {
			for round := range rounds {
				if result := runBroken(t, d); result == porcupine.Illegal {
					t.Logf("found in round %d", round+1)
					return
				}
			}
			t.Errorf("not found in %d rounds", rounds)
		})
	}
}

func runBroken(t *testing.T, d defect) porcupine.CheckResult {
	t.Helper()
	w := newWorld(t, settings{Seed: rand.Uint64(), Records: 80, Clients: 12, Calls: 30, Pace: 30, Defect: d, Together: 3})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var children []*child
	for n := range w.base.Together {
		s := w.base
		s.Process = n
		children = append(children, w.start(ctx, s))
	}
	for _, c := range children {
		assert.NoError(t, c.wait())
	}
	h := collect(t, w.store, w.logs, w.inbox)
	return porcupine.CheckOperationsTimeout(model, h.operations, searching/6)
}
