package canonicaltree

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// One Tree is read, and others are parsed and released, by many at a time. The
// race detector looks on.
func TestTreeIsReadByMany(t *testing.T) {
	doc := samples(entity, anyOrder, 1)[0]
	root := parse(t, string(doc))
	want := root.Sum(Decimal)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				own, err := Parse(doc)
				assert.NoError(t, err)
				assert.True(t, Equal(root, own.Root(), Literal))
				Diff(root, own.Root(), func(Path, Node, Node) bool { return false })
				own.Release()
				digest, err := Sum(doc, Decimal)
				assert.NoError(t, err)
				assert.Equal(t, want, digest)
				assert.Equal(t, want, root.Sum(Decimal))
				assert.Equal(t, "EC", string(root.Get("event").Get("farm").Get("country").Raw()[1:3]))
			}
		})
	}
	group.Wait()
}
