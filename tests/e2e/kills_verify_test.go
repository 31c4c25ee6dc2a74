//go:build verify

package e2e

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I1, I2, I4, I5: kill -9 at random moments loses nothing, repeats nothing in
// the files and keeps the order.
func TestEmbeddedSurvivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	p := harness.Generate(t, 2, 300, 6000)
	random := rand.New(rand.NewPCG(2, 2))
	for range 5 {
		run := p.Start("run --until-idle")
		// The moments are spread over opening, the load and its end.
		select {
		case <-run.Done:
			require.Zero(t, run.Code)
		case <-time.After(time.Duration(100+random.IntN(1400)) * time.Millisecond):
			run.Kill()
		}
	}
	p.Drain()
	harness.CheckGenerated(p)
	require.Zero(t, p.Drain().Read)
}
