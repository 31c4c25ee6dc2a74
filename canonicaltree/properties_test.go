package canonicaltree

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawNumbers(t *rapid.T) Numbers {
	return rapid.SampledFrom([]Numbers{Literal, Decimal}).Draw(t, "numbers")
}

func mustParse(t require.TestingT, doc string) Node {
	tree, err := Parse([]byte(doc))
	require.NoError(t, err, "%q", doc)
	return tree.Root()
}

func TestSpellingDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 4)
		docA, docB := v.write(t), v.write(t)
		a, b := mustParse(t, docA), mustParse(t, docB)
		for _, numbers := range []Numbers{Literal, Decimal} {
			require.True(t, Equal(a, b, numbers))
			require.Equal(t, a.Sum(numbers), b.Sum(numbers))
			want, err := referenceEncoding([]byte(docA), numbers)
			require.NoError(t, err)
			require.Equal(t, want, a.AppendEncoding(nil, numbers))
			require.Equal(t, want, b.AppendEncoding(nil, numbers))
		}
		require.Empty(t, differences(a, b))
		require.Equal(t, string(a.AppendCanonical(nil)), string(b.AppendCanonical(nil)))
	})
}

func TestAnyChangeMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 4)
		a, b := mustParse(t, v.write(t)), mustParse(t, v.change(t).write(t))
		for _, numbers := range []Numbers{Literal, Decimal} {
			require.False(t, Equal(a, b, numbers))
			require.NotEqual(t, a.Sum(numbers), b.Sum(numbers))
		}
		require.NotEmpty(t, differences(a, b))
	})
}

// What Diff visits turns one document into the other; nothing is visited twice,
// and nothing that is equal.
func TestDiffIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 4)
		w := v
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			w = w.change(t)
		}
		a, b := mustParse(t, v.write(t)), mustParse(t, w.write(t))
		result, paths := generic(t, a), []string{}
		Diff(a, b, func(p Path, x, y Node) bool {
			require.False(t, Equal(x, y, Literal))
			require.True(t, x.Kind() != y.Kind() || x.Kind() < Array, "%s can be entered", p)
			require.Equal(t, x, follow(a, p))
			require.Equal(t, y, follow(b, p))
			paths = append(paths, p.String())
			result = apply(t, result, p, y)
			return true
		})
		require.Equal(t, generic(t, b), result)
		slices.Sort(paths)
		require.Len(t, slices.Compact(slices.Clone(paths)), len(paths))
		require.Equal(t, len(paths) == 0, Equal(a, b, Literal))
	})
}

func follow(n Node, p Path) Node {
	for _, part := range p {
		if n.Kind() == Object {
			n = n.Get(part)
		} else {
			i, _ := strconv.Atoi(part)
			n = n.At(i)
		}
	}
	return n
}

func generic(t require.TestingT, n Node) any {
	d := json.NewDecoder(bytes.NewReader(n.AppendCanonical(nil)))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	return v
}

func apply(t require.TestingT, doc any, p Path, n Node) any {
	if len(p) == 0 {
		return generic(t, n)
	}
	switch doc := doc.(type) {
	case map[string]any:
		if len(p) == 1 && !n.Exists() {
			delete(doc, p[0])
		} else {
			doc[p[0]] = apply(t, doc[p[0]], p[1:], n)
		}
		return doc
	case []any:
		i, err := strconv.Atoi(p[0])
		require.NoError(t, err)
		switch {
		case i >= len(doc) && !n.Exists(): // behind the end already
		case len(p) == 1 && !n.Exists():
			doc = doc[:i]
		case i == len(doc):
			doc = append(doc, generic(t, n))
		default:
			doc[i] = apply(t, doc[i], p[1:], n)
		}
		return doc
	}
	require.Fail(t, "path leads nowhere")
	return nil
}

// Nodes return the value that the document was written from.
func TestNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 4)
		doc := v.write(t)
		root := mustParse(t, doc)
		require.Equal(t, string(bytes.TrimSpace([]byte(doc))), string(root.Raw()))
		checkNode(t, v, root)
	})
}

func checkNode(t *rapid.T, v *value, n Node) {
	require.True(t, n.Exists())
	require.Equal(t, v.kind, n.Kind())
	text, isText := n.Text()
	require.Equal(t, v.kind == String, isText)
	require.Equal(t, v.text, text)
	require.Equal(t, len(v.values), n.Len())
	require.Equal(t, n.Sum(Literal), mustParse(t, string(n.Raw())).Sum(Literal))

	elements := 0
	for i, e := range n.Elements() {
		require.Equal(t, elements, i)
		require.Equal(t, e, n.At(i))
		checkNode(t, v.values[i], e)
		elements++
	}
	var inDocument, sorted []string
	for name, m := range n.Members() {
		require.Equal(t, m, n.Get(name))
		inDocument = append(inDocument, name)
	}
	for name, m := range n.Sorted() {
		require.Equal(t, m, n.Get(name))
		sorted = append(sorted, name)
	}
	for i, name := range v.names {
		checkNode(t, v.values[i], n.Get(name))
	}
	require.ElementsMatch(t, v.names, inDocument)
	slices.Sort(inDocument)
	require.Equal(t, inDocument, sorted)
	if v.kind != Array {
		require.Zero(t, elements)
	}
	require.False(t, n.Get("no such name").Exists())
	require.False(t, n.At(-1).Exists())
	require.False(t, n.At(elements).Exists())
}

func TestAbsentNode(t *testing.T) {
	var n Node
	require.False(t, n.Exists())
	require.Equal(t, Invalid, n.Kind())
	require.Equal(t, "invalid", n.Kind().String())
	require.Nil(t, n.Raw())
	require.Zero(t, n.Len())
	require.Equal(t, Node{}, n.Get(""))
	require.Equal(t, Node{}, n.At(0))
	require.Empty(t, n.AppendEncoding(nil, Literal))
	require.Empty(t, n.AppendCanonical(nil))
	_, ok := n.Text()
	require.False(t, ok)
	for range n.Members() {
		require.Fail(t, "no members")
	}
	for range n.Sorted() {
		require.Fail(t, "no members")
	}
	for range n.Elements() {
		require.Fail(t, "no elements")
	}
}

func TestIteratorsStop(t *testing.T) {
	root := parse(t, `{"b":[1,2],"a":3}`)
	for name := range root.Members() {
		require.Equal(t, "b", name)
		break
	}
	for name := range root.Sorted() {
		require.Equal(t, "a", name)
		break
	}
	for i, n := range root.Get("b").Elements() {
		require.Equal(t, 0, i)
		require.Equal(t, "1", string(n.Raw()))
		break
	}
}
