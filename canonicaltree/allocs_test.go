//go:build !race

// The race detector makes sync.Pool forget at random, so allocations cannot be
// counted under it.

package canonicaltree

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNothingIsAllocatedOnceWarm(t *testing.T) {
	doc := []byte(`{"id":"b-007","\u0061":[1.50,-2,{"x":"\n"},[true,false,null]],"name":"🍌",
		"long":1234567890123456789012345678901234567890.10,"empty":{}}`)
	other := []byte(`{"name":"🍌","id":"b-007","a":[15e-1,-2.0,{"x":"\u000a"},[true,false,null]],
		"empty":{},"long":12345678901234567890123456789012345678901e-1}`)
	a, b := parse(t, string(doc)), parse(t, string(other))
	require.True(t, Equal(a, b, Decimal))
	for name, f := range map[string]func(){
		"Sum literal":    func() { _, _ = Sum(doc, Literal) },
		"Sum decimal":    func() { _, _ = Sum(doc, Decimal) },
		"Node.Sum":       func() { a.Sum(Decimal) },
		"Equal":          func() { Equal(a, b, Decimal) },
		"Get, At":        func() { a.Get("a").At(2).Get("x") },
		"Parse, Release": func() { tree, _ := Parse(doc); tree.Release() },
		"Name, Children": func() { nameBytes(a) },
		"Encoder": func() {
			e := NewEncoder(Literal)
			encodeAll(e, a, func() bool { return false })
			_, _ = e.Sum()
			e.Release()
		},
	} {
		assert.Zero(t, testing.AllocsPerRun(200, f), name)
	}
}

// nameBytes counts the bytes of all names.
func nameBytes(n Node) (bytes int) {
	for child := range n.Children() {
		bytes += len(child.Name()) + nameBytes(child)
	}
	for child := range n.SortedChildren() {
		bytes += len(child.Name())
	}
	return bytes
}
