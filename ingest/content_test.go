package ingest

import (
	"testing"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
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

// TestMembersAgreeWithPaths: a member that is read of the tree is what gjson reads.
func TestMembersAgreeWithPaths(t *testing.T) {
	for _, text := range []string{`{"a":{"b":1,"0":"x"},"b":null,"c":true,"d":"\u0042","e":[1,{"b":2}],"":3}`, `[{"a":1}]`, `1`, `"a"`, `null`, `{"a":[{"b":1}]}`} {
		tree, err := canonicaltree.Parse([]byte(text))
		require.NoError(t, err)
		for _, path := range []string{"a", "a.b", "a.0", "b", "b.x", "c", "d", "d.x", "e", "e.0", "e.1.b", "e.b", "0", "0.a", "x", "x.y", "a.", ".a", "a-b", "é", "a*"} {
			v, ok := member(tree.Root(), path)
			if got := gjson.Get(text, path); ok && (v.Exists() != got.Exists() || string(v.Raw()) != got.Raw) {
				t.Errorf("%s of %s: %q instead of %q", path, text, v.Raw(), got.Raw)
			}
		}
	}
}
