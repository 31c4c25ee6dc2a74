package projections

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// crowd returns n projections of 8 fields, of which eight at most read the same path, and two documents that differ at changes of those paths.
func crowd(t testing.TB, n, changes int) (*Index, canonicaltree.Node, canonicaltree.Node) {
	var ps []*Projection
	for i := range n {
		s := Spec{Customer: "c", Name: fmt.Sprint(i)}
		for k := range 8 {
			s.Fields = append(s.Fields, Field{Out: fmt.Sprintf("f%d", k), Path: fmt.Sprintf("part%d.v%d", i/8, i%8+k)})
		}
		p, err := Compile(s)
		require.NoError(t, err)
		ps = append(ps, p)
	}
	a, b := []byte{'{'}, []byte{'{'}
	for part := range 50 {
		for _, doc := range []*[]byte{&a, &b} {
			if part > 0 {
				*doc = append(*doc, ',')
			}
			*doc = fmt.Appendf(*doc, `"part%d":{`, part)
			for v := range 16 {
				value := v
				if doc == &b && v == 7 && part < changes {
					value = -1
				}
				if v > 0 {
					*doc = append(*doc, ',')
				}
				*doc = fmt.Appendf(*doc, `"v%d":%d`, v, value)
			}
			*doc = append(*doc, '}')
		}
	}
	return NewIndex(ps), parseText(t, string(a)+"}"), parseText(t, string(b)+"}")
}

// Projections that no change touches cost nothing, however many there are.
func TestIndexVisitsOnlyWhatIsTouched(t *testing.T) {
	visits := func(n, changes int) int {
		index, a, b := crowd(t, n, changes)
		var set Set
		touchedBy(index, a, b, &set)
		assert.NotEmpty(t, set.List())
		return set.visits
	}
	few := visits(10, 1)
	for _, n := range []int{100, 1000, 10_000} {
		assert.Equal(t, few, visits(n, 1), n)
	}
	assert.Equal(t, 8*visits(10_000, 1), visits(10_000, 8), "the work grows with the changed paths")
}

// Nor do those whose filter requires another value.
func TestIndexVisitsOnlyWhatMayMatch(t *testing.T) {
	var ps []*Projection
	for i := range 5000 {
		ps = append(ps, compile(t, Spec{When: fmt.Sprintf(`doc.region in ["r%d", "all"] && doc.n > 0`, i), Fields: []Field{{Out: "n", Path: "n"}}}))
	}
	index := NewIndex(ps)
	var set Set
	touchedBy(index, parseText(t, `{"region":"r7","n":1}`), parseText(t, `{"region":"r8","n":2}`), &set)
	assert.ElementsMatch(t, []int{7, 8}, set.List())
	assert.LessOrEqual(t, set.visits, 4)
	set.Clear()
	touchedBy(index, parseText(t, `{"region":"all","n":1}`), parseText(t, `{"region":"all","n":2}`), &set)
	assert.Len(t, set.List(), 5000)
}

func BenchmarkIndexGrowth(b *testing.B) {
	for _, changes := range []int{1, 8} {
		for _, n := range []int{10, 100, 1000, 10_000} {
			index, x, y := crowd(b, n, changes)
			b.Run(fmt.Sprintf("changes=%d/projections=%d", changes, n), func(b *testing.B) {
				var set Set
				for b.Loop() {
					set.Clear()
					touchedBy(index, x, y, &set)
				}
			})
		}
	}
}
