package projections

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// viaText is what Sum must give: the digest of the text, as it is compared.
func viaText(p *Projection, doc canonicaltree.Node) (d canonicaltree.Digest, match bool, err error) {
	text, match, err := p.project(nil, source{root: doc}, true)
	if err != nil || !match {
		return d, match, err
	}
	if p.same {
		if text, err = p.normal(text); err != nil {
			return d, false, err
		}
	}
	d, err = canonicaltree.Sum(text, p.Numbers())
	return d, err == nil, err
}

func TestSumIsTheDigestOfTheText(t *testing.T) {
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		v := drawDocument(t)
		doc := parseText(t, drawText(t, v))
		spec := drawSpec(t, v)
		if rapid.Bool().Draw(t, "decimal") {
			spec.Numbers = canonicaltree.Decimal
		}
		p, err := Compile(spec)
		require.NoError(t, err)
		want, wantMatch, wantErr := viaText(p, doc)
		got, match, err := p.Sum(doc)
		require.Equal(t, wantErr, err)
		require.Equal(t, wantMatch, match, "spec %+v of %s", spec, doc.Raw())
		require.Equal(t, want, got, "spec %+v of %s", spec, doc.Raw())
		if text, whole, err := p.Project(nil, doc); match && err == nil {
			require.True(t, whole)
			content, err := p.Content(text)
			require.NoError(t, err)
			require.Equal(t, want, content, "an output that a target holds has the content of the change: %s", text)
			matched++
		}
	})
	require.Positive(t, matched)
}

func TestSumKnowsEveryShapeOfOutput(t *testing.T) {
	doc := parseText(t, `{"z":1.0,"a":[{"b":[1,2.50],"c":{"d":null}},{"b":[]},{"c":3}],"s":"","o":{},"n":null,"t":"x"}`)
	var many []Field
	for i := range 40 {
		many = append(many, Field{Out: fmt.Sprintf("f%d", i), Path: "t"})
	}
	for name, fields := range map[string][]Field{
		"out of order":  {{Out: "z", Path: "t"}, {Out: "b.y", Path: "z"}, {Out: "b.x", Path: "o"}, {Out: "a", Path: "s"}},
		"empty groups":  {{Out: "g.h.i", Path: "gone"}, {Out: "k", Path: "z"}},
		"all gone":      {{Out: "g", Path: "gone"}},
		"counts":        {{Out: "g", Path: "a.#"}, {Out: "h", Path: "a.#.b.#"}, {Out: "i", Path: "a.#.b.#.q"}},
		"hashes":        {{Out: "g", Path: "a.#.b"}, {Out: "h", Path: "a.#.c.d"}, {Out: "i", Path: "a.#.none"}, {Out: "j", Path: "a.0.b.#"}},
		"each":          {{Out: "g", Path: "a", Each: []Field{{Out: "y", Path: "b.0"}, {Out: "x", Path: "c"}}}},
		"each of these": {{Out: "g", Path: "a.#.b", Each: []Field{{Out: "y", Path: "0"}}}},
		"defaults":      {{Out: "g", Path: "n", Default: []byte(`[1.0]`)}, {Out: "h", Path: "gone", Default: []byte(`{"b":1,"a":2}`)}, {Out: "i", Const: []byte(`{"b":1e0,"a":2}`)}},
		"gjson":         {{Out: "g", Path: "a.@reverse"}, {Out: "h", Path: "a.#(c==3)"}, {Out: "i", Path: "{z,s}"}},
		"many":          many,
	} {
		for _, omit := range []bool{false, true} {
			for _, numbers := range []canonicaltree.Numbers{canonicaltree.Literal, canonicaltree.Decimal} {
				p, err := Compile(Spec{Fields: fields, OmitEmpty: omit, Numbers: numbers})
				require.NoError(t, err)
				want, _, err := viaText(p, doc)
				require.NoError(t, err)
				got, match, err := p.Sum(doc)
				require.NoError(t, err)
				require.True(t, match)
				require.Equal(t, want, got, name)
			}
		}
	}
}

// An output that is nested too deep to be a document has no digest either.
func TestSumKeepsTheDepthLimit(t *testing.T) {
	for _, depth := range []int{canonicaltree.DefaultDepth - 2, canonicaltree.DefaultDepth - 1, canonicaltree.DefaultDepth} {
		doc := parseText(t, `{"a":`+strings.Repeat("[", depth-1)+strings.Repeat("]", depth-1)+"}")
		p, err := Compile(Spec{Fields: []Field{{Out: "g.h", Path: "a"}}})
		require.NoError(t, err)
		want, _, wantErr := viaText(p, doc)
		got, _, err := p.Sum(doc)
		require.Equal(t, wantErr, errors.Unwrap(err))
		require.Equal(t, want, got)
	}
}
