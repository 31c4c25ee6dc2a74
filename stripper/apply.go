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

// Covers reports whether a value at p is stripped from every document, because
// it or something that it stands in always matches. It leaves open what a
// number in p is: where a pattern removes members only, a number is taken for an
// index.
func (r *Rules) Covers(p canonicaltree.Path) bool {
	if r.Empty() {
		return false
	}
	states := r.root
	for _, name := range p {
		member := !digits(name)
		if member && removes(states, name) {
			return true
		}
		states = advance(nil, states, name, member)
	}
	return false
}

// enter adds s and what it leads to without a step.
func enter(set []*state, s *state) []*state {
	if s == nil || slices.Contains(set, s) {
		return set
	}
	set = append(set, s)
	return enter(set, s.deep)
}

// advance appends to set the states that a step leads to: by a member of that
// name, or by the element of that index.
func advance(set []*state, states []*state, name string, member bool) []*state {
	for _, s := range states {
		if s.loops {
			set = enter(set, s)
		}
		if member && s.names != nil {
			set = enter(set, s.names[name])
		}
		if s.numbers != nil {
			set = enter(set, s.numbers[name])
		}
		set = enter(set, s.any)
	}
	return set
}

// removes reports whether a member of that name is to be removed.
func removes(states []*state, name string) bool {
	for _, s := range states {
		if s.any != nil && s.any.accepts ||
			s.names != nil && accepts(s.names[name]) ||
			s.numbers != nil && accepts(s.numbers[name]) {
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
			if hit(v, advance(buf[:0], states, strconv.Itoa(i), false)) {
				return true
			}
		}
		return false
	}
	for name, v := range n.Members() {
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
			dst = appendStripped(dst, v, advance(buf[:0], states, strconv.Itoa(i), false))
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	first := true
	for name, v := range n.Members() {
		if removes(states, name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(canonicaltree.AppendString(dst, name), ':')
		if v.Len() == 0 {
			dst = append(dst, v.Raw()...)
			continue
		}
		dst = appendStripped(dst, v, advance(buf[:0], states, name, true))
	}
	return append(dst, '}')
}
