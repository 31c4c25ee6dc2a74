package ingest

import (
	"testing"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/stretchr/testify/require"
)

// One id for events about several entities, as a transaction's, must not make
// the second one a repetition of the first.
func TestOneEventIDForTwoEntities(t *testing.T) {
	a := contentOf(&change.Event{Entity: "a", Op: change.Upsert}, canonicaltree.Digest{})
	require.NotEqual(t, a, contentOf(&change.Event{Entity: "b", Op: change.Upsert}, canonicaltree.Digest{}))
	require.NotEqual(t, a, contentOf(&change.Event{Entity: "a", Op: change.Delete}, canonicaltree.Digest{}))
	require.NotEqual(t, a, contentOf(&change.Event{Entity: "a", Op: change.Upsert}, canonicaltree.Digest{1}))
	require.Equal(t, a, contentOf(&change.Event{Entity: "a", Op: change.Upsert}, canonicaltree.Digest{}))
}
