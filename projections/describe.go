package projections

import (
	"iter"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Unsent says why a change from one output to another is not sent: which rules make them the
// same, or that only carried fields moved. It returns nothing for outputs that are equal.
func (p *Projection) Unsent(before, after []byte) string {
	a, errA := canonicaltree.Parse(before)
	b, errB := canonicaltree.Parse(after)
	if errA != nil || errB != nil {
		return "" // projections write JSON
	}
	rules, carried := p.unsent(p.outputs, a.Root(), b.Root())
	switch {
	case len(rules) > 0:
		return "equal by same: " + strings.Join(rules, ", ")
	case carried:
		return "only carried fields moved"
	}
	return ""
}

func (p *Projection) unsent(outputs []*output, a, b canonicaltree.Node) (rules []string, carried bool) {
	for _, o := range outputs {
		x, y := a.Get(o.name), b.Get(o.name)
		switch {
		case x.Exists() == y.Exists() && (!x.Exists() || canonicaltree.Equal(x, y, p.spec.Numbers)):
		case o.field == nil:
			below, moved := p.unsent(o.group, x, y)
			rules, carried = append(rules, below...), carried || moved
		case o.field.carried:
			carried = true
		default:
			rules = append(rules, o.field.rules()...)
		}
	}
	return rules, carried
}

// rules lists the rules of sameness of a field and of the fields of its elements, as a file
// has them.
func (f *field) rules() (all []string) {
	if f.same != nil {
		all = append(all, f.out+" ("+f.same.String()+")")
	}
	for _, o := range f.each {
		for _, below := range append([]*output{o}, o.group...) {
			if below.field != nil {
				for _, rule := range below.field.rules() {
					all = append(all, f.out+"."+rule)
				}
			}
		}
	}
	return all
}

// Uncompared describes the rules of sameness and the carried fields, due to which equal contents
// may have different outputs.
func (p *Projection) Uncompared() (rules, carried []string) {
	for _, o := range p.outputs {
		for _, o := range append([]*output{o}, o.group...) {
			if o.field != nil {
				rules = append(rules, o.field.rules()...)
			}
		}
	}
	for _, f := range p.spec.Carry {
		carried = append(carried, f.Out)
	}
	return rules, carried
}

// Fields yields the output path of every field, also of the fields of elements, and whether an
// output has it.
func (p *Projection) Fields(out []byte) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		var root canonicaltree.Node
		if tree, err := canonicaltree.Parse(out); err == nil {
			root = tree.Root()
		}
		fieldsOf(p.outputs, "", []canonicaltree.Node{root}, yield)
	}
}

func fieldsOf(outputs []*output, above string, in []canonicaltree.Node, yield func(string, bool) bool) bool {
	for _, o := range outputs {
		var values []canonicaltree.Node
		for _, n := range in {
			if v := n.Get(o.name); v.Exists() {
				values = append(values, v)
			}
		}
		f := o.field
		if f == nil {
			if !fieldsOf(o.group, above, values, yield) {
				return false
			}
			continue
		}
		if !yield(above+f.out, len(values) > 0) {
			return false
		}
		var elements []canonicaltree.Node
		for _, v := range values {
			for _, e := range v.Elements() {
				elements = append(elements, e)
			}
		}
		if !fieldsOf(f.each, above+f.out+".", elements, yield) {
			return false
		}
	}
	return true
}

// CanFail reports whether documents may exist on which the filter or a computed field fails.
func (p *Projection) CanFail() bool {
	if p.filter != nil && (p.filter.required == nil || !p.filter.required.whole) {
		return true
	}
	return failing(p.outputs)
}

func failing(outputs []*output) bool {
	return slices.ContainsFunc(outputs, func(o *output) bool {
		f := o.field
		return f == nil && failing(o.group) || f != nil && (f.expr != nil && !f.fallback.Exists() || failing(f.each))
	})
}
