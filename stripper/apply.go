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
		var next []*state
		var removed bool
		if digits(name) {
			next, _ = advance(nil, states, name, false)
		} else {
			next, removed = advance(nil, states, name, true)
		}
		if removed {
			return true
		}
		states = next
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
// name, or by the element of that index. It reports whether the value reached is
// to be removed.
func advance(set []*state, states []*state, name string, member bool) (next []*state, removed bool) {
	for _, s := range states {
		if s.loops {
			set = enter(set, s)
		}
		if member {
			set = enter(set, s.names[name])
			removed = removed || accepts(s.names[name])
		}
		set = enter(set, s.numbers[name])
		set = enter(set, s.any)
		removed = removed || accepts(s.numbers[name]) || accepts(s.any)
	}
	return set, removed && member
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
			next, _ := advance(buf[:0], states, strconv.Itoa(i), false)
			if hit(v, next) {
				return true
			}
		}
		return false
	}
	for name, v := range n.Members() {
		next, removed := advance(buf[:0], states, name, true)
		if removed || hit(v, next) {
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
			next, _ := advance(buf[:0], states, strconv.Itoa(i), false)
			dst = appendStripped(dst, v, next)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	first := true
	for name, v := range n.Members() {
		next, removed := advance(buf[:0], states, name, true)
		if removed {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(canonicaltree.AppendString(dst, name), ':')
		dst = appendStripped(dst, v, next)
	}
	return append(dst, '}')
}
