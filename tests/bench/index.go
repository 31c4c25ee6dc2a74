package main

import (
	"fmt"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
)

// crowd returns the index of n projections of 8 fields. At most 8 of them read the
// same path.
func crowd(n int) (*projections.Index, error) {
	ps := make([]*projections.Projection, n)
	for i := range ps {
		spec := projections.Spec{Customer: "c", Name: fmt.Sprint(i)}
		for k := range fields {
			spec.Fields = append(spec.Fields, projections.Field{Out: fmt.Sprintf("f%d", k), Path: fmt.Sprintf("part%d.v%d", i/8, i%8+k)})
		}
		var err error
		if ps[i], err = projections.Compile(spec); err != nil {
			return nil, err
		}
	}
	return projections.NewIndex(ps), nil
}

// document returns a document of one source for an index.
func document(x *projections.Index, doc canonicaltree.Node) *projections.Document {
	const source = "s"
	plan := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: source}}})
	layers, _, _ := plan.Layers(nil, map[string]canonicaltree.Node{source: doc}) // a mount alone fails
	d := new(projections.Document)
	d.Reset(x, layers)
	return d
}

// pairs returns two documents of 20 objects with 16 members each that differ at the
// given number of paths.
func pairs(changed int) (before, after canonicaltree.Node, err error) {
	doc := func(value func(part, v int) string) (canonicaltree.Node, error) {
		var parts []member
		for part := range 20 {
			var members []member
			for v := range 16 {
				members = append(members, member{fmt.Sprintf("v%d", v), literal(value(part, v))})
			}
			parts = append(parts, member{fmt.Sprintf("part%d", part), members})
		}
		tree, err := canonicaltree.Parse(appendValue(nil, parts, nil))
		if err != nil {
			return canonicaltree.Node{}, err
		}
		return tree.Root(), nil
	}
	if before, err = doc(func(_, v int) string { return fmt.Sprint(v) }); err != nil {
		return before, after, err
	}
	after, err = doc(func(part, v int) string {
		if v == 7 && part < changed {
			return "-1"
		}
		return fmt.Sprint(v)
	})
	return before, after, err
}
