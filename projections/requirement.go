package projections

import (
	"github.com/expr-lang/expr/ast"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// requirement is the first condition of a filter, if that compares a path of doc with
// literals: where it is not met, the filter does not match.
type requirement struct {
	steps  []step
	number int   // among the paths of the projection
	values []any // string, bool or a number in its form
	whole  bool  // the filter has no other condition
}

// requirementOf returns the requirement of a filter, or nil if its first condition is another.
func requirementOf(node ast.Node) *requirement {
	b, ok := node.(*ast.BinaryNode)
	if !ok {
		return nil
	}
	switch b.Operator {
	case "and", "&&":
		if r := requirementOf(b.Left); r != nil {
			r.whole = false
			return r
		}
	case "==":
		if steps, ok := stepsOf(b.Left); ok {
			return requirementFor(steps, b.Right)
		}
		if steps, ok := stepsOf(b.Right); ok {
			return requirementFor(steps, b.Left)
		}
	case "in":
		list, isList := b.Right.(*ast.ArrayNode)
		if steps, ok := stepsOf(b.Left); ok && isList {
			return requirementFor(steps, list.Nodes...)
		}
	}
	return nil
}

func requirementFor(steps []step, literals ...ast.Node) *requirement {
	r := &requirement{steps: steps, whole: true}
	for _, n := range literals {
		switch n := n.(type) {
		case *ast.StringNode:
			r.values = append(r.values, n.Value)
		case *ast.BoolNode:
			r.values = append(r.values, n.Value)
		case *ast.IntegerNode:
			r.values = append(r.values, n.Value)
		case *ast.FloatNode:
			r.values = append(r.values, normal(n.Value))
		default:
			return nil
		}
	}
	return r
}

// stepsOf returns the steps of a node that is doc, or fixed members and elements of it.
func stepsOf(node ast.Node) ([]step, bool) {
	switch n := node.(type) {
	case *ast.IdentifierNode:
		return []step{}, n.Value == "doc"
	case *ast.ChainNode:
		return stepsOf(n.Node)
	case *ast.MemberNode:
		steps, ok := stepsOf(n.Node)
		switch property := n.Property.(type) {
		case *ast.StringNode:
			return append(steps, step{name: property.Value, index: -1}), ok
		case *ast.IntegerNode:
			return append(steps, step{index: property.Value}), ok && property.Value >= 0
		}
	}
	return nil, false
}

// met reports whether doc meets the requirement.
func (r *requirement) met(doc source) bool {
	v := doc.scalar(r.number, r.steps)
	var number any
	for _, want := range r.values {
		switch want := want.(type) {
		case string:
			if text, ok := v.TextBytes(); ok && string(text) == want {
				return true
			}
		case bool:
			if want && v.Kind() == canonicaltree.True || !want && v.Kind() == canonicaltree.False {
				return true
			}
		default:
			if v.Kind() == canonicaltree.Number && number == nil {
				number = toValue(v)
			}
			if number != nil && equal(number, want) {
				return true
			}
		}
	}
	return false
}

// readers are projections, grouped by the values that their filters require.
type readers struct {
	any []int // without a requirement
	of  []*requiring
}

// requiring are the projections whose filters require a value at one path.
type requiring struct {
	place  int32
	texts  map[string][]int
	others map[any][]int // by bool or number, of which equal ones have one form
}

// add adds projection i. Calls come in ascending order. places are the places of its paths.
func (r *readers) add(i int, p *Projection, places []int32) {
	if p.filter == nil || p.filter.required == nil {
		r.any = appendOnce(r.any, i)
		return
	}
	required := p.filter.required
	place := places[required.number]
	var of *requiring
	for _, known := range r.of {
		if known.place == place {
			of = known
		}
	}
	if of == nil {
		of = &requiring{place: place, texts: map[string][]int{}, others: map[any][]int{}}
		r.of = append(r.of, of)
	}
	for _, value := range required.values {
		if text, ok := value.(string); ok {
			of.texts[text] = appendOnce(of.texts[text], i)
		} else {
			of.others[value] = appendOnce(of.others[value], i)
		}
	}
}

func appendOnce(list []int, i int) []int {
	if n := len(list); n > 0 && list[n-1] == i {
		return list
	}
	return append(list, i)
}

// meeting returns the projections whose requirement doc may meet.
func (r *requiring) meeting(doc *Document) []int {
	v := doc.at(r.place).value
	if text, ok := v.TextBytes(); ok {
		return r.texts[string(text)]
	}
	switch v.Kind() {
	case canonicaltree.True, canonicaltree.False, canonicaltree.Number:
		if len(r.others) > 0 {
			return r.others[toValue(v)]
		}
	}
	return nil
}
