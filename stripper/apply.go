package stripper

import (
	"slices"
	"strconv"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Strip returns doc without the stripped members as a tree of its own, or nil if nothing matches:
// the document itself is the result. The error is a *[canonicaltree.LimitError]: doc is nested
// deeper than the default limit. It may be called from any number of goroutines.
func (r *Rules) Strip(doc canonicaltree.Node) (*canonicaltree.Tree, error) {
	if r.Empty() || !hit(doc, r.root) {
		return nil, nil
	}
	b := canonicaltree.NewBuilder(len(doc.Raw()))
	compose(b, doc, r.root)
	return b.Tree()
}

// compose adds n without the stripped members to b.
func compose(b *canonicaltree.Builder, n canonicaltree.Node, states []*state) {
	if n.Len() == 0 || len(states) == 0 {
		b.Value(n)
		return
	}
	var buf [8]*state
	if n.Kind() == canonicaltree.Array {
		b.BeginArray()
		for i, v := range n.Elements() {
			compose(b, v, advance(buf[:0], states, index(i), false))
		}
	} else {
		b.BeginObject()
		for v := range n.Children() {
			if name := v.Name(); !removes(states, name) {
				b.Name(name)
				compose(b, v, advance(buf[:0], states, name, true))
			}
		}
	}
	b.End()
}

// index returns the step to an element.
func index(i int) []byte { return strconv.AppendInt(nil, int64(i), 10) }

// Covers reports whether a value at p is stripped from every document, because
// it or a container of it always matches. It leaves open whether a
// number in p is an index: where a pattern removes members only, a number is taken for an
// index.
func (r *Rules) Covers(p canonicaltree.Path) bool {
	if r.Empty() {
		return false
	}
	states := r.root
	for _, name := range p {
		member := !digits(name)
		if member && removes(states, []byte(name)) {
			return true
		}
		states = advance(nil, states, []byte(name), member)
	}
	return false
}

// enter adds s and the states that it reaches without a step.
func enter(set []*state, s *state) []*state {
	if s == nil || slices.Contains(set, s) {
		return set
	}
	set = append(set, s)
	return enter(set, s.deep)
}

// advance appends to set the states that a step leads to: by a member of that
// name, or by the element of that index.
func advance(set []*state, states []*state, name []byte, member bool) []*state {
	for _, s := range states {
		if s.loops {
			set = enter(set, s)
		}
		if member && s.names != nil {
			set = enter(set, s.names[string(name)])
		}
		if s.numbers != nil {
			set = enter(set, s.numbers[string(name)])
		}
		set = enter(set, s.any)
	}
	return set
}

// removes reports whether a member of that name is to be removed.
func removes(states []*state, name []byte) bool {
	for _, s := range states {
		if s.any != nil && s.any.accepts ||
			s.names != nil && accepts(s.names[string(name)]) ||
			s.numbers != nil && accepts(s.numbers[string(name)]) {
			return true
		}
	}
	return false
}

func accepts(s *state) bool { return s != nil && s.accepts }

// hit reports whether anything below n is to be removed.
func hit(n canonicaltree.Node, states []*state) bool {
	if n.Len() == 0 || len(states) == 0 {
		return false
	}
	if named(states) {
		return hitNamed(n, states)
	}
	var buf [8]*state
	if n.Kind() == canonicaltree.Array {
		for i, v := range n.Elements() {
			if v.Len() == 0 {
				continue
			}
			if hit(v, advance(buf[:0], states, index(i), false)) {
				return true
			}
		}
		return false
	}
	for v := range n.Children() {
		name := v.Name()
		if removes(states, name) || v.Len() > 0 && hit(v, advance(buf[:0], states, name, true)) {
			return true
		}
	}
	return false
}

// named reports whether names and indexes alone lead on: then the few values
// that they reach are looked up instead of walking over all of them.
func named(states []*state) bool {
	for _, s := range states {
		if s.loops || s.any != nil {
			return false
		}
	}
	return true
}

func hitNamed(n canonicaltree.Node, states []*state) bool {
	for _, s := range states {
		for name, next := range s.names {
			if v := n.Get(name); v.Exists() && (next.accepts || hit(v, enter(nil, next))) {
				return true
			}
		}
		for number, next := range s.numbers {
			v := n.Get(number)
			if v.Exists() && next.accepts {
				return true
			}
			if n.Kind() == canonicaltree.Array {
				i, _ := strconv.Atoi(number)
				v = n.At(i)
			}
			if v.Exists() && hit(v, enter(nil, next)) {
				return true
			}
		}
	}
	return false
}
