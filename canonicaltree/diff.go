package canonicaltree

import (
	"bytes"
	"slices"
	"strconv"
)

// Path leads from a value to one inside it: unescaped member names, and the
// indexes of array elements as decimal numbers.
type Path []string

// String writes the path in the syntax of gjson: parts joined by dots, everything with a meaning
// there (dots, backslashes, wildcards and other punctuation) escaped by a backslash. It is empty
// for the root.
func (p Path) String() string {
	var s []byte
	for i, part := range p {
		if i > 0 {
			s = append(s, '.')
		}
		for k := range len(part) {
			if !safeInPath(part[k]) {
				s = append(s, '\\')
			}
			s = append(s, part[k])
		}
	}
	return string(s)
}

func safeInPath(c byte) bool {
	return c <= ' ' || c > '~' || c == '_' || c == '-' || c == ':' ||
		'0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// Equal reports whether a and b are structurally equal. An absent value equals only another
// absent one. Bytes that are the same in both documents are not looked into. It does not
// allocate.
func Equal(a, b Node, numbers Numbers) bool {
	if !a.Exists() || !b.Exists() {
		return a.Exists() == b.Exists()
	}
	d := differ{a: a.t, b: b.t, numbers: numbers}
	return d.values(a.i, b.i, agreement{})
}

// Diff calls visit for every deepest path at which a and b differ, numbers compared by their
// literal: members in the order of their names, elements by index. A member or element that only
// one has is one visit, with the zero Node for the other. Visit returns false to stop, and must
// keep neither p nor its array after it returns. The work is linear in the size of both. Values
// with the same bytes in both are skipped.
func Diff(a, b Node, visit func(p Path, a, b Node) bool) {
	if !a.Exists() || !b.Exists() {
		if a.Exists() != b.Exists() {
			visit(nil, a, b)
		}
		return
	}
	d := differ{a: a.t, b: b.t, visit: visit}
	d.values(a.i, b.i, agreement{})
}

// differ compares values of two trees. Its methods report whether to go on.
type differ struct {
	a, b    *Tree
	numbers Numbers
	visit   func(p Path, a, b Node) bool // nil: stop at the first difference

	steps []step // the way to the values being compared
	path  Path   // the steps already converted to text

	examined int // bytes compared, for the growth tests
}

// step is a member of a tree, or an element of both.
type step struct {
	t     *Tree // nil for an element
	child uint32
	index int
}

// agreement is what comparing two values' bytes has found out: with b shifted against a, they
// agree before offset until of a, and differ there. It saves comparing the bytes of inner values
// again. The zero value knows nothing.
type agreement struct {
	until int
	shift int
	known bool
}

// values compares the value at index a with that at index b.
func (d *differ) values(a, b uint32, g agreement) bool {
	x, y := &d.a.nodes[a], &d.b.nodes[b]
	start, end, shift := int(x.start), int(x.end), int(y.start)-int(x.start)
	if end+shift == int(y.end) {
		if !g.known || g.shift != shift || g.until < start {
			same := commonPrefix(d.a.data[start:end], d.b.data[y.start:y.end])
			d.examined += same
			g = agreement{until: start + same, shift: shift, known: true}
		}
		if g.until >= end {
			return true
		}
	}
	switch {
	case x.kind != y.kind:
	case x.kind == Object:
		return d.objects(a, b, g)
	case x.kind == Array:
		return d.arrays(a, b, g)
	case x.kind == String:
		if bytes.Equal(d.a.textOf(x), d.b.textOf(y)) {
			return true
		}
	case x.kind == Number:
		if d.equalNumbers(x, y) {
			return true
		}
	default:
		return true
	}
	return d.report(a, b)
}

// equalNumbers compares two literals whose bytes may differ.
func (d *differ) equalNumbers(x, y *node) bool {
	p, q := d.a.data[x.start:x.end], d.b.data[y.start:y.end]
	if d.numbers == Literal || (x.flags|y.flags)&unplain == 0 {
		return bytes.Equal(p, q)
	}
	var bufP, bufQ [64]byte
	return bytes.Equal(AppendDecimal(bufP[:0], p), AppendDecimal(bufQ[:0], q))
}

func (d *differ) objects(a, b uint32, g agreement) bool {
	if d.visit == nil && d.a.nodes[a].count != d.b.nodes[b].count {
		return false
	}
	p, q := d.a.walk(a), d.b.walk(b)
	for p.more() || q.more() {
		order := 0
		switch {
		case !q.more():
			order = -1
		case !p.more():
			order = 1
		default:
			order = bytes.Compare(p.name(), q.name())
		}
		var goOn bool
		switch {
		case order < 0:
			d.push(step{t: d.a, child: p.child})
			goOn = d.report(p.child, absent)
			p.step()
		case order > 0:
			d.push(step{t: d.b, child: q.child})
			goOn = d.report(absent, q.child)
			q.step()
		default:
			d.push(step{t: d.a, child: p.child})
			goOn = d.values(p.child, q.child, g)
			p.step()
			q.step()
		}
		d.pop()
		if !goOn {
			return false
		}
	}
	return true
}

func (d *differ) arrays(a, b uint32, g agreement) bool {
	if d.visit == nil && d.a.nodes[a].count != d.b.nodes[b].count {
		return false
	}
	p, q := d.a.walk(a), d.b.walk(b)
	for i := 0; p.more() || q.more(); i++ {
		d.push(step{index: i})
		var goOn bool
		switch {
		case !q.more():
			goOn = d.report(p.child, absent)
		case !p.more():
			goOn = d.report(absent, q.child)
		default:
			goOn = d.values(p.child, q.child, g)
		}
		d.pop()
		if !goOn {
			return false
		}
		if p.more() {
			p.step()
		}
		if q.more() {
			q.step()
		}
	}
	return true
}

// absent is the index of a missing value.
const absent = ^uint32(0)

// report tells the visitor of a difference at the current path.
func (d *differ) report(a, b uint32) bool {
	if d.visit == nil {
		return false
	}
	for _, s := range d.steps[len(d.path):] {
		part := strconv.Itoa(s.index)
		if s.t != nil {
			part = string(s.t.nameOf(&s.t.nodes[s.child]))
		}
		d.path = append(d.path, part)
	}
	var x, y Node
	if a != absent {
		x = Node{d.a, a}
	}
	if b != absent {
		y = Node{d.b, b}
	}
	return d.visit(slices.Clip(d.path), x, y)
}

// Without a visitor no path is needed.
func (d *differ) push(s step) {
	if d.visit != nil {
		d.steps = append(d.steps, s)
	}
}

func (d *differ) pop() {
	if d.visit != nil {
		d.steps = d.steps[:len(d.steps)-1]
		d.path = d.path[:min(len(d.path), len(d.steps))]
	}
}
