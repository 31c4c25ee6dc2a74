package canonicaltree

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// object writes an object of n members whose names come from name, in the given
// order.
func object(n int, order []int, name func(i int) string) []byte {
	var s strings.Builder
	s.WriteByte('{')
	for k := range n {
		if k > 0 {
			s.WriteByte(',')
		}
		i := k
		if order != nil {
			i = order[k]
		}
		fmt.Fprintf(&s, "%q:%d", name(i), i)
	}
	s.WriteByte('}')
	return []byte(s.String())
}

func shuffled(n int) []int { return rand.New(rand.NewPCG(1, 2)).Perm(n) }

func reversed(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = n - 1 - i
	}
	return order
}

// steps counts the comparisons of names, and the moves in place of them, that
// ordering the members of doc takes a fresh Tree.
func steps(t *testing.T, doc []byte) int {
	t.Helper()
	tree := new(Tree)
	require.NoError(t, tree.parse(doc, Limits{}))
	return tree.steps
}

func TestSortingGrowsWithNLogN(t *testing.T) {
	const n = 20_000
	for name, form := range map[string]func(int) string{
		"short names":    func(i int) string { return fmt.Sprint(i) },
		"equal prefixes": func(i int) string { return fmt.Sprintf("%s%06d", strings.Repeat("x", 40), i) },
		"equal but for the length": func(i int) string {
			return strings.Repeat("y", i%60) + fmt.Sprintf("%06d", i)
		},
	} {
		for order, of := range map[string]func(int) []int{"shuffled": shuffled, "reversed": reversed} {
			t.Run(name+" "+order, func(t *testing.T) {
				half := steps(t, object(n/2, of(n/2), form))
				whole := steps(t, object(n, of(n), form))
				assert.Less(t, whole, 3*half)
				assert.Less(t, whole, n*(8+17), "a pass per byte of the keys, and n log n")
			})
		}
	}
}

func TestMembersInOrderCostOneComparison(t *testing.T) {
	const n = 100_000
	name := func(i int) string { return fmt.Sprintf("item_%06d", i) }
	t.Run("sorted", func(t *testing.T) {
		assert.Equal(t, n, steps(t, object(n, nil, name)))
	})
	t.Run("as the last time", func(t *testing.T) {
		doc := object(n, shuffled(n), name)
		tree := new(Tree)
		require.NoError(t, tree.parse(doc, Limits{}))
		first := tree.Root().Sum(Literal)
		require.NoError(t, tree.parse(doc, Limits{}))
		assert.LessOrEqual(t, tree.steps, n+10)
		assert.Equal(t, first, tree.Root().Sum(Literal))
	})
	t.Run("not as the last time", func(t *testing.T) {
		tree := new(Tree)
		require.NoError(t, tree.parse(object(1000, shuffled(1000), name), Limits{}))
		require.NoError(t, tree.parse(object(900, reversed(900), name), Limits{}))
		assert.Equal(t, parse(t, string(object(900, nil, name))).Sum(Literal), tree.Root().Sum(Literal))
	})
}

func TestWideAccess(t *testing.T) {
	const n = 100_000
	name := func(i int) string { return fmt.Sprintf("item_%06d", i) }
	for _, order := range [][]int{nil, shuffled(n)} {
		root := parse(t, string(object(n, order, name)))
		for i := range n {
			if got := string(root.Get(name(i)).Raw()); got != strconv.Itoa(i) {
				require.Equal(t, i, got)
			}
		}
	}
	for _, element := range []string{`7`, `[7]`} {
		doc := "[" + strings.Repeat(element+",", n-1) + element + "]"
		root := parse(t, doc)
		for i := range n {
			if got := string(root.At(i).Raw()); got != element {
				require.Equal(t, element, got, i)
			}
		}
	}
}

// 100,000 brackets are given up at the limit: the index has no more nodes than
// it has levels.
func TestBracketsStopAtTheLimit(t *testing.T) {
	tree := new(Tree)
	require.Error(t, tree.parse([]byte(strings.Repeat("[", 100_000)), Limits{}))
	assert.Less(t, cap(tree.nodes), 2*DefaultDepth)
	assert.Len(t, tree.stack, DefaultDepth)
}

// Nested documents that differ only at the innermost place must not be compared
// once a level.
func TestDiffIsLinear(t *testing.T) {
	examined := func(a, b string) int {
		x, y := parse(t, a), parse(t, b)
		visits := 0
		d := differ{a: x.t, b: y.t, visit: func(Path, Node, Node) bool { visits++; return true }}
		d.values(x.i, y.i, agreement{})
		require.Equal(t, 1, visits)
		return d.examined
	}
	const depth = 500
	long := strings.Repeat("z", 1000)
	open := strings.Repeat(`{"a":"`+long+`","b":[`, depth/2)
	end := strings.Repeat(`],"c":"`+long+`"}`, depth/2)
	a, b := open+"1"+end, open+"2"+end
	assert.LessOrEqual(t, examined(a, b), len(a))
	b = open + "23" + end
	assert.LessOrEqual(t, examined(a, b), len(a))
	swapped := strings.Repeat(`{"b":[`, depth/2) + "2" + strings.Repeat(`],"c":"`+long+`","a":"`+long+`"}`, depth/2)
	assert.LessOrEqual(t, examined(a, swapped), len(a))
}
