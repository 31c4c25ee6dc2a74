package projections

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections/merge"
)

// drawMerge draws the merging of three sources, some of them mounted.
func drawMerge(t *rapid.T) (*merge.Plan, []string) {
	sources := []string{"s1", "s2", "s3"}
	spec := merge.Spec{Precedence: rapid.Permutation(sources).Draw(t, "precedence")}
	for _, name := range sources {
		s := merge.Source{Name: name}
		if rapid.IntRange(0, 3).Draw(t, "mounted") == 0 {
			s.Mount = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "0", "#"}), 1, 2).Draw(t, "mount")
		}
		spec.Sources = append(spec.Sources, s)
	}
	return merge.Compile(spec), sources
}

// requireSame: the projections say the same of the layers as of the composed document.
func requireSame(t *rapid.T, d *Document, ps []*Projection, composed canonicaltree.Node) {
	for i, p := range ps {
		want, match, err := p.Project(nil, composed)
		got, gotMatch, gotErr := d.Project(nil, i)
		require.Equal(t, fmt.Sprint(string(want), match, err), fmt.Sprint(string(got), gotMatch, gotErr), "%+v of %s", p.Spec(), composed.Raw())
		sum, _, err := p.Sum(composed)
		gotSum, _, gotErr := d.Sum(i)
		require.Equal(t, fmt.Sprint(sum, err), fmt.Sprint(gotSum, gotErr), "%+v of %s", p.Spec(), composed.Raw())
	}
}

// TestLayersAgreeWithComposedDocument: projections read the same through the layers and of the
// composed document, and a projection that the change of one source's document does not touch
// says the same before and after.
func TestLayersAgreeWithComposedDocument(t *testing.T) {
	pruned, touched := 0, 0
	var before, after Document // which are used again
	rapid.Check(t, func(t *rapid.T) {
		plan, sources := drawMerge(t)
		docs := map[string]canonicaltree.Node{}
		var values []any
		draw := func() any {
			if len(values) > 0 && rapid.IntRange(0, 2).Draw(t, "near") > 0 {
				return drawChange(t, rapid.SampledFrom(values).Draw(t, "of"), 3)
			}
			return drawDocument(t)
		}
		for _, s := range sources {
			if rapid.IntRange(0, 4).Draw(t, "has") > 0 {
				values = append(values, draw())
				docs[s] = parseText(t, drawText(t, values[len(values)-1]))
			}
		}
		source, then := rapid.SampledFrom(sources).Draw(t, "source"), maps.Clone(docs)
		if delete(then, source); rapid.IntRange(0, 4).Draw(t, "delete") > 0 {
			then[source] = parseText(t, drawText(t, draw()))
		}
		if len(docs) == 0 || len(then) == 0 {
			return
		}
		ps := make([]*Projection, rapid.IntRange(1, 4).Draw(t, "projections"))
		for i := range ps {
			var err error
			ps[i], err = Compile(drawSpec(t, rapid.SampledFrom(append(values, any(nil))).Draw(t, "from")))
			require.NoError(t, err)
		}
		x := NewIndex(ps)
		compose := func(d *Document, docs map[string]canonicaltree.Node) canonicaltree.Node {
			layers, complete, err := plan.Layers(nil, docs)
			require.NoError(t, err)
			require.True(t, complete)
			d.Reset(x, layers)
			doc, _, err := plan.Compose(nil, docs)
			require.NoError(t, err)
			return doc
		}
		a, b := compose(&before, docs), compose(&after, then)
		requireSame(t, &before, ps, a)
		var set Set
		layers, _, _ := plan.Layers(nil, then)
		plan.Differences(layers, source, docs[source], then[source], func(p canonicaltree.Path) { x.TouchedBy(p, &before, &after, &set) })
		requireSame(t, &after, ps, b)
		for i, p := range ps {
			if set.Has(i) {
				touched++
				continue
			}
			pruned++
			require.Equal(t, compared(t, p, a), compared(t, p, b), "reads %v\n%s\na %s\nb %s\nspec %+v", p.ReadSet(), source, a.Raw(), b.Raw(), p.Spec())
		}
	})
	require.Positive(t, pruned, "nothing was ever pruned: the property says nothing")
	require.Positive(t, touched)
}

// TestDepthOfMounts: mounts that make the merged document too deep are found without
// composing it, and hidden ones do not count.
func TestDepthOfMounts(t *testing.T) {
	deep := func(levels int) canonicaltree.Node {
		text := "1"
		for range levels {
			text = `{"a":` + text + "}"
		}
		return parseText(t, text)
	}
	plan := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "first"}, {Name: "mounted", Mount: canonicaltree.Path{"m", "n"}}}})
	for levels, ok := range map[int]bool{canonicaltree.DefaultDepth - 2: true, canonicaltree.DefaultDepth - 1: false} {
		docs := map[string]canonicaltree.Node{"mounted": deep(levels)}
		_, _, err := plan.Layers(nil, docs)
		require.Equal(t, ok, err == nil, levels)
		docs["first"] = parseText(t, `{"m":1}`)
		_, _, err = plan.Layers(nil, docs)
		require.NoError(t, err, "it is hidden")
	}
}
