package merge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/stretchr/testify/require"
)

// The mistake that this catches: a value is said to come from a source that lost.
func TestPartsTellWhoWins(t *testing.T) {
	p := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "a"}, {Name: "b"}, {Name: "lab", Mount: canonicaltree.Path{"x", "lab"}}}})
	docs := map[string]canonicaltree.Node{}
	for source, text := range map[string]string{"a": `{"id":1,"o":{"p":1,"q":{"r":2}},"l":[1]}`, "b": `{"id":2,"o":{"p":2,"s":3},"l":{"no":1},"only":{"deep":{"er":1}}}`, "lab": `{"level":3}`} {
		tree, err := canonicaltree.Parse([]byte(text))
		require.NoError(t, err)
		docs[source] = tree.Root()
	}
	var got []string
	p.Parts(docs, func(part merge.Part) bool {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", part.Path, part.Value.Raw(), part.Source, strings.Join(part.Over, ","))))
		return true
	})
	require.Equal(t, []string{
		`id 1 a b`, `o.p 1 a b`, `o.q {"r":2} a`, `o.s 3 b`, `l [1] a b`, `only {"deep":{"er":1}} b`, `x.lab {"level":3} lab`,
	}, got)
	n := 0
	p.Parts(docs, func(merge.Part) bool { n++; return n < 2 })
	require.Equal(t, 2, n)
}
