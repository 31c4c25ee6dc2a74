package canonicaltree

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// alike checks that all methods of two trees return the same.
func alike(t require.TestingT, want, got Node) {
	require.Equal(t, want.Kind(), got.Kind())
	require.Equal(t, want.Len(), got.Len())
	require.Equal(t, string(want.Raw()), string(got.Raw()))
	require.Equal(t, string(want.Name()), string(got.Name()))
	require.Equal(t, want.AppendEncoding(nil, Decimal), got.AppendEncoding(nil, Decimal))
	require.Equal(t, string(want.AppendCanonical(nil)), string(got.AppendCanonical(nil)))
	wantText, wantIs := want.Text()
	gotText, gotIs := got.Text()
	require.Equal(t, wantIs, gotIs)
	require.Equal(t, wantText, gotText)
	require.True(t, Equal(want, got, Literal))
	require.Empty(t, differences(want, got))
	var children []Node
	for child := range got.Children() {
		children = append(children, child)
	}
	i := 0
	for child := range want.Children() {
		alike(t, child, children[i])
		if want.Kind() == Object {
			require.Equal(t, children[i], got.Get(string(child.Name())))
			require.Equal(t, children[i], got.GetBytes(child.Name()))
		} else {
			require.Equal(t, children[i], got.At(i))
		}
		i++
	}
	require.Len(t, children, i)
	sorted := []string{}
	for child := range want.SortedChildren() {
		sorted = append(sorted, string(child.Raw()))
	}
	for child := range got.SortedChildren() {
		require.Equal(t, sorted[0], string(child.Raw()))
		sorted = sorted[1:]
	}
}

// drawBuild builds n again, of copies of values of n or of other trees.
func drawBuild(t *rapid.T, b *Builder, n Node) {
	switch way := rapid.IntRange(0, 3).Draw(t, "way"); {
	case way == 0 || n.Kind() < Array:
		b.Value(n)
		return
	case way == 1:
		b.Value(mustParse(t, " "+string(n.Raw())))
		return
	}
	if n.Kind() == Object {
		b.BeginObject()
	} else {
		b.BeginArray()
	}
	for child := range n.Children() {
		if n.Kind() == Object {
			b.Name(child.Name())
		}
		drawBuild(t, b, child)
	}
	b.End()
}

func TestBuiltTreesAreLikeParsedOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := mustParse(t, drawValue(t, 4).write(t))
		b := NewBuilder(0)
		drawBuild(t, b, n)
		tree, err := b.Tree()
		require.NoError(t, err)
		require.True(t, Equal(n, tree.Root(), Literal))
		alike(t, mustParse(t, string(tree.Root().Raw())), tree.Root())
	})
}

func encodeAll(e *Encoder, n Node, whole func() bool) {
	if n.Kind() < Array || whole() {
		e.Value(n)
		return
	}
	if n.Kind() == Object {
		e.BeginObject()
	} else {
		e.BeginArray()
	}
	for child := range n.SortedChildren() {
		if n.Kind() == Object {
			e.Name(child.Name())
		}
		switch {
		case child.Kind() == Number && whole():
			e.Number(child.Raw())
		default:
			encodeAll(e, child, whole)
		}
	}
	e.End()
}

func TestEncoderTakesTheDigestOfTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, numbers := mustParse(t, drawValue(t, 4).write(t)), drawNumbers(t)
		e := NewEncoder(numbers)
		defer e.Release()
		encodeAll(e, n, func() bool { return rapid.Bool().Draw(t, "whole") })
		d, err := e.Sum()
		require.NoError(t, err)
		require.Equal(t, n.Sum(numbers), d)
	})
}

func TestEncoderTakesBack(t *testing.T) {
	e := NewEncoder(Literal)
	defer e.Release()
	e.BeginObject()
	e.Name([]byte("a"))
	e.BeginArray()
	e.Number([]byte("1"))
	e.Discard()
	e.Name([]byte("b"))
	e.BeginObject()
	require.Zero(t, e.Len())
	e.End()
	require.Equal(t, 1, e.Len())
	e.End()
	d, err := e.Sum()
	require.NoError(t, err)
	require.Equal(t, parse(t, `{"b":{}}`).Sum(Literal), d)
}

// A composition is refused exactly where its text would be.
func TestCompositionsKeepTheDepthLimit(t *testing.T) {
	for _, inside := range []int{1, 10, DefaultDepth - 1} {
		doc := strings.Repeat(`{"a":`, inside) + "1" + strings.Repeat("}", inside)
		beside := fmt.Sprintf(`{"deep":%s,"flat":[1]}`, doc)
		for _, n := range []Node{parse(t, doc), parse(t, beside).Get("deep")} {
			for _, around := range []int{DefaultDepth - inside, DefaultDepth - inside + 1} {
				b, e := NewBuilder(0), NewEncoder(Literal)
				for range around {
					b.BeginArray()
					e.BeginArray()
				}
				b.Value(n)
				e.Value(n)
				for range around {
					b.End()
					e.End()
				}
				_, err := b.Tree()
				_, sumErr := e.Sum()
				text := strings.Repeat("[", around) + doc + strings.Repeat("]", around)
				_, want := Parse([]byte(text))
				require.Equal(t, want == nil, err == nil)
				require.Equal(t, want == nil, sumErr == nil)
				if limit := (*LimitError)(nil); errors.As(err, &limit) {
					require.Equal(t, "depth", limit.Limit)
				}
				e.Release()
			}
		}
	}
	b := NewBuilder(0)
	for range DefaultDepth + 1 {
		b.BeginArray()
	}
	_, err := b.Tree()
	require.Error(t, err)
}

func TestBuilderRefusesDuplicateNames(t *testing.T) {
	for _, names := range []string{"a a", "b a b", "aaaaaaaa1 aaaaaaaa2 aaaaaaaa1"} {
		b := NewBuilder(0)
		b.BeginObject()
		for _, name := range strings.Fields(names) {
			b.Name([]byte(name))
			b.Value(parse(t, "1"))
		}
		b.End()
		_, err := b.Tree()
		require.ErrorContains(t, err, "member name occurs twice")
	}
}

func TestValueAt(t *testing.T) {
	n := parse(t, ` {"a": [1, {"b":"c"}]} `).Get("a")
	for offset, want := range map[int]string{1: `{"a": [1, {"b":"c"}]}`, 7: `[1, {"b":"c"}]`, 8: "1", 11: `{"b":"c"}`, 16: `"c"`} {
		require.Equal(t, want, string(n.ValueAt(offset).Raw()))
	}
	for _, offset := range []int{-1, 0, 2, 12, 30} {
		require.False(t, n.ValueAt(offset).Exists(), offset)
	}
}
