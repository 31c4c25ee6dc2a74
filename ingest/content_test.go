package ingest

import (
	"testing"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/stretchr/testify/require"
)

// One id for events about several entities, as a transaction's, must not make
// the second one a repetition of the first.
func TestOneEventIDForTwoEntities(t *testing.T) {
	a := contentOf(&inbox.Event{Entity: "a", Op: inbox.Upsert}, canonicaltree.Digest{})
	require.NotEqual(t, a, contentOf(&inbox.Event{Entity: "b", Op: inbox.Upsert}, canonicaltree.Digest{}))
	require.NotEqual(t, a, contentOf(&inbox.Event{Entity: "a", Op: inbox.Delete}, canonicaltree.Digest{}))
	require.NotEqual(t, a, contentOf(&inbox.Event{Entity: "a", Op: inbox.Upsert}, canonicaltree.Digest{1}))
	require.Equal(t, a, contentOf(&inbox.Event{Entity: "a", Op: inbox.Upsert}, canonicaltree.Digest{}))
}
