package stripper

import (
	"slices"
	"strconv"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Apply appends the JSON text of doc without the stripped members to dst and
// reports that something was removed. If nothing matches it appends nothing and
// changed is false: the document's own text is the result. It may be called from
// any number of goroutines.
func (r *Rules) Apply(dst []byte, doc canonicaltree.Node) (out []byte, changed bool) {
	if r.Empty() || !hit(doc, r.root) {
		return dst, false
	}
	return appendStripped(dst, doc, r.root), true
}

// Strip returns doc without the stripped members as a tree of its own, whose text is what Apply
// returns, without that text being parsed, or nil if nothing matches. The error is a
// *[canonicaltree.LimitError]: doc is nested deeper than the default limit. It may be called from
// any number of goroutines.
func (r *Rules) Strip(doc canonicaltree.Node) (*canonicaltree.Tree, error) {
	if r.Empty() || !hit(doc, r.root) {
		return nil, nil
	}
	b := canonicaltree.NewBuilder(len(doc.Raw()))
	compose(b, doc, r.root, false)
	return b.Tree()
}

// Sum returns the digest of doc without the stripped members: stripped members are left out while
// hashing, and nothing is written. It does not allocate once it is warm, except for patterns of
// more than eight alternatives at one place. It may be called from any number of goroutines. The
// error is that of Strip.
func (r *Rules) Sum(doc canonicaltree.Node, numbers canonicaltree.Numbers) (canonicaltree.Digest, error) {
	if r.Empty() {
		return doc.Sum(numbers), nil
	}
	e := canonicaltree.NewEncoder(numbers)
	defer e.Release()
	compose(e, doc, r.root, true)
	return e.Sum()
}

// composer receives the remaining members of a document.
type composer interface {
	BeginObject()
	BeginArray()
	Name(name []byte)
	Value(n canonicaltree.Node)
	End()
}

// compose hands n without the stripped members to c, members sorted or in
// document order.
func compose(c composer, n canonicaltree.Node, states []*state, sorted bool) {
	switch {
	case n.Len() == 0 || len(states) == 0:
		c.Value(n)
		return
	case n.Kind() == canonicaltree.Array:
		c.BeginArray()
		for i, v := range n.Elements() {
			var index [20]byte
			below(c, v, states, strconv.AppendInt(index[:0], int64(i), 10), false, sorted)
		}
	case sorted:
		c.BeginObject()
		for v := range n.SortedChildren() {
			member(c, v, states, sorted)
		}
	default:
		c.BeginObject()
		for v := range n.Children() {
			member(c, v, states, sorted)
		}
	}
	c.End()
}

func member(c composer, v canonicaltree.Node, states []*state, sorted bool) {
	if name := v.Name(); !removes(states, name) {
		c.Name(name)
		below(c, v, states, name, true, sorted)
	}
}

func below(c composer, v canonicaltree.Node, states []*state, name []byte, isMember, sorted bool) {
	if v.Len() == 0 {
		c.Value(v)
		return
	}
	var buf [8]*state
	compose(c, v, advance(buf[:0], states, name, isMember), sorted)
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

func appendStripped(dst []byte, n canonicaltree.Node, states []*state) []byte {
	if n.Len() == 0 || len(states) == 0 {
		return append(dst, n.Raw()...)
	}
	var buf [8]*state
	if n.Kind() == canonicaltree.Array {
		dst = append(dst, '[')
		for i, v := range n.Elements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if v.Len() == 0 {
				dst = append(dst, v.Raw()...)
				continue
			}
			dst = appendStripped(dst, v, advance(buf[:0], states, index(i), false))
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	first := true
	for v := range n.Children() {
		name := v.Name()
		if removes(states, name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(canonicaltree.AppendString(dst, string(name)), ':')
		if v.Len() == 0 {
			dst = append(dst, v.Raw()...)
			continue
		}
		dst = appendStripped(dst, v, advance(buf[:0], states, name, true))
	}
	return append(dst, '}')
}
