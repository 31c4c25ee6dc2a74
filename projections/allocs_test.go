//go:build !race

// The race detector makes sync.Pool forget at random, so allocations cannot be
// counted under it.

package projections

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSumAllocatesNothingOnceWarm(t *testing.T) {
	doc := parseText(t, `{"a":[{"b":1,"c":"x"},{"b":2.50}],"z":{"y":"\u0061"}}`)
	p := compile(t, Spec{OmitEmpty: true, Fields: []Field{
		{Out: "n", Path: "a.#"}, {Out: "g.b", Path: "a.#.b"}, {Out: "e", Path: "a", Each: []Field{{Out: "c", Path: "c"}}},
		{Out: "g.y", Path: "z.y"}, {Out: "k", Const: []byte("1")}, {Out: "d", Path: "gone", Default: []byte("[]")},
	}})
	assert.Zero(t, testing.AllocsPerRun(200, func() { _, _, _ = p.Sum(doc) }))
}
