//go:build !race

// The race detector makes sync.Pool forget at random, so allocations cannot be
// counted under it.

package stripper

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

func TestSumAllocatesNothingOnceWarm(t *testing.T) {
	doc := parseText(t, `{"updated_at":1,"items":[{"seen_at":1,"k":[{"trace_id":1}]},{"trace_id":2}],"a":{"b":1}}`)
	r, err := Compile([]string{"updated_at", "items.*.seen_at", "**.trace_id", "a.b"})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(200, func() { _, _ = r.Sum(doc, canonicaltree.Decimal) }))
}
