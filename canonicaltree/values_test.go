package canonicaltree

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The count before parsing is that of the tree, and one
// more for each array and object that is empty.
func TestValuesAreThoseOfTheTree(t *testing.T) {
	check := func(t require.TestingT, text string) {
		tree, err := Parse([]byte(text))
		require.NoError(t, err, text)
		defer tree.Release()
		want := len(tree.nodes)
		for _, n := range tree.nodes {
			if n.kind >= Array && n.count == 0 {
				want++
			}
		}
		all, outer := Values([]byte(text))
		require.Equal(t, want, all, text)
		if root := tree.Root(); root.Kind() >= Array {
			require.Equal(t, max(1, root.Len()), outer, text)
		}
	}
	for _, text := range []string{
		`0`, `"a,b[c{d"`, `[]`, `{}`, `[0]`, `[[],[],{}]`, `{"a,\"b":[1,2,{"c":"]}"}],"d":{}}`, `["\\",1,"\\\"",2]`, "[1,\n 2]",
	} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, drawValue(t, 4).write(t)) })
}

// A string that is never closed hides nothing on the lines behind it.
func TestValuesBehindABrokenLine(t *testing.T) {
	all, _ := Values([]byte("\"\n[" + strings.Repeat("0,", 1000) + "0]"))
	require.Equal(t, 1002, all)
	all, _ = Values([]byte(`"\`)) // no JSON at all
	require.Equal(t, 1, all)
}
