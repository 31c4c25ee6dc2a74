package e2e

import (
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I1, I2, I4, I6, I11: the output is the model's, once and in
// order; a second run finds nothing to do.
func TestEmbeddedDeliversWhatTheModelSays(t *testing.T) {
	t.Parallel()
	p := harness.Generate(t, 1, 300, 4000)
	first := p.Drain()
	require.EqualValues(t, 4000, first.Read)
	require.Positive(t, first.Repeated)
	require.Positive(t, first.Stale)
	require.Positive(t, first.Noise)
	require.Zero(t, first.Dead)
	harness.CheckGenerated(p)

	second := p.Drain()
	require.Zero(t, second.Read)
	require.Zero(t, second.Delivered())
	harness.CheckGenerated(p)
}
