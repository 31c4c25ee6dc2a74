package canonicaltree_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// A tree that is kept shares nothing with those that are made later in the room
// a pool returned, for any order of their members.
func TestKeptTreesStayWhatTheyAre(t *testing.T) {
	const members = 40 // more than are ranked without room
	document := func(n int) string {
		names := rand.Perm(members)
		parts := make([]string, members)
		for i, m := range names {
			parts[i] = fmt.Sprintf(`"member_%d":{"n":%d,"t":"\u0041%d","l":[%d,%d]}`, m, n, n, m, n)
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	sum := func(n int) canonicaltree.Digest {
		tree, err := canonicaltree.Parse([]byte(document(n)))
		require.NoError(t, err)
		defer tree.Release()
		return tree.Root().Sum(canonicaltree.Literal)
	}
	var kept []*canonicaltree.Tree
	for n := range 100 {
		tree, err := canonicaltree.Parse([]byte(document(n)))
		require.NoError(t, err)
		if n%2 == 0 {
			require.Equal(t, sum(n), tree.Root().Sum(canonicaltree.Literal))
		}
		kept = append(kept, tree.Keep())
		b := canonicaltree.NewBuilder(100)
		b.Value(tree.Root())
		built, err := b.Tree()
		require.NoError(t, err)
		kept = append(kept, built.Keep())
	}
	for i, tree := range kept {
		require.Equal(t, sum(i/2), tree.Root().Sum(canonicaltree.Literal))
		for m := range members {
			require.True(t, tree.Root().Get(fmt.Sprintf("member_%d", m)).Exists())
		}
	}
}
