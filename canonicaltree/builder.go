package canonicaltree

import (
	"bytes"
	"math"
	"slices"
)

// Builder puts a Tree together from values of other Trees: their bytes are copied side by side,
// with commas and brackets between them, and their part of the index is moved along. Nothing is
// scanned again. The result is that of [Parse] for the same text, which is the Root's [Node.Raw].
//
// Calls come in the order of the value: Begin and End around arrays and objects,
// in objects a Name before each value, each name once. It is for one goroutine
// and for one Tree.
type Builder struct {
	t     *Tree
	f     frame
	texts []source
	err   error

	named        bool // the next value has a name
	name, length uint32
	nameFlags    flags
	key          uint64
}

// source is a Tree whose unescaped text was copied, and how far it moved.
type source struct {
	t     *Tree
	shift uint32
}

// NewBuilder returns a Builder that expects a text of about size bytes.
func NewBuilder(size int) *Builder {
	t := trees.Get().(*Tree)
	t.clear()
	t.data, t.written, t.owned = slices.Grow(t.written[:0], size), nil, true
	if t.nodes == nil {
		t.nodes = make([]node, 0, usualNodes(size))
	}
	return &Builder{t: t}
}

// Name names the next member. It is written with as few escapes as possible.
func (b *Builder) Name(name []byte) {
	b.comma()
	t := b.t
	at := len(t.data) + 1
	t.data = AppendString(t.data, name)
	b.named, b.nameFlags = true, isMember
	b.name, b.length, b.key = uint32(at), uint32(len(name)), keyOf(name)
	if len(t.data)-at != len(name)+1 {
		b.nameFlags |= nameEscaped
		b.name = uint32(len(t.text))
		t.text = append(t.text, name...)
	}
	t.data = append(t.data, ':')
}

// Value adds a copy of n, with all that is in it, as it is written. It must
// exist.
func (b *Builder) Value(n Node) {
	raw := n.Raw()
	if b.err != nil || !b.fits(len(raw)+len(n.t.text)) {
		return
	}
	if n.TooDeep(b.level()) {
		b.tooDeep()
		return
	}
	if !b.named {
		b.comma()
	}
	t, from := b.t, n.t.nodes[n.i:n.t.nodes[n.i].next]
	t.depth = max(t.depth, b.level()+n.t.depth)
	at := uint32(len(t.nodes))
	moved := at - n.i
	shift := uint32(len(t.data)) - from[0].start
	textShift := b.textOf(n.t)
	t.data = append(t.data, raw...)
	t.nodes = append(t.nodes, from...)
	nodes := t.nodes[at:]
	for i := range nodes {
		v := &nodes[i]
		v.start += shift
		v.end += shift
		v.next += moved
		if v.flags&nameEscaped != 0 {
			v.name += textShift
		} else {
			v.name += shift
		}
		switch {
		case v.flags&escaped != 0:
			v.order += textShift
		case v.kind == String || v.kind == Number:
			v.order += shift
		case v.flags&tabled != 0:
			table := n.t.order[v.order : v.order+v.count]
			v.order = uint32(len(t.order))
			for _, c := range table {
				t.order = append(t.order, c+moved)
			}
		}
	}
	b.place(at)
}

// BeginObject opens an object.
func (b *Builder) BeginObject() { b.begin(Object, '{') }

// BeginArray opens an array.
func (b *Builder) BeginArray() { b.begin(Array, '[') }

// End closes the array or object that was opened last.
func (b *Builder) End() {
	if b.err != nil {
		return
	}
	t, f := b.t, b.f
	if f.kind == Object {
		t.data = append(t.data, '}')
	} else {
		t.data = append(t.data, ']')
	}
	n := &t.nodes[f.node]
	n.end, n.next, n.count = uint32(len(t.data)), uint32(len(t.nodes)), f.count
	if f.unordered || f.count > wide {
		b.err = t.list(f.node, f.unordered)
	}
	if f.kind == Object {
		t.entries = t.entries[:len(t.entries)-int(f.count)]
	}
	b.f = t.stack[len(t.stack)-1]
	t.stack = t.stack[:len(t.stack)-1]
}

// Tree returns the value built, which must be exactly one. The Builder must not be
// used afterwards. The error is a [*LimitError] if the value is nested deeper
// than [DefaultDepth] or its text is too large, as Parse would find, and a
// [*SyntaxError] if one object has a name twice.
func (b *Builder) Tree() (*Tree, error) {
	if b.err != nil {
		b.t.Release()
		return nil, b.err
	}
	return b.t, nil
}

func (b *Builder) begin(kind Kind, bracket byte) {
	if b.err != nil || !b.fits(0) {
		return
	}
	t := b.t
	if !b.named {
		b.comma()
	}
	if b.level() == DefaultDepth {
		b.tooDeep()
		return
	}
	at := uint32(len(t.nodes))
	t.nodes = append(t.nodes, node{start: uint32(len(t.data)), kind: kind})
	t.data = append(t.data, bracket)
	b.place(at)
	t.stack = append(t.stack, b.f)
	t.depth = max(t.depth, len(t.stack))
	b.f = frame{node: at, kind: kind}
}

// level is the number of open arrays and objects.
func (b *Builder) level() int { return len(b.t.stack) }

func (b *Builder) comma() {
	if b.f.count > 0 {
		b.t.data = append(b.t.data, ',')
	}
}

// place makes the node at index at the next child of the open container.
func (b *Builder) place(at uint32) {
	n := &b.t.nodes[at]
	n.flags &^= isMember | nameEscaped
	if b.named {
		b.named = false
		n.flags |= b.nameFlags
		n.name, n.nameLen = b.name, b.length
		t := b.t
		if b.f.count > 0 && !b.f.unordered {
			last := &t.entries[len(t.entries)-1]
			if b.key <= last.key && (b.key < last.key || bytes.Compare(t.nameOf(n), t.nameOf(&t.nodes[last.node])) <= 0) {
				b.f.unordered = true
			}
		}
		t.entries = append(t.entries, entry{b.key, at, b.f.count})
	}
	b.f.count++
}

// textOf copies the unescaped text of t, once, and returns how far it moved.
func (b *Builder) textOf(t *Tree) (shift uint32) {
	if len(t.text) == 0 {
		return 0
	}
	i := slices.IndexFunc(b.texts, func(s source) bool { return s.t == t })
	if i < 0 {
		i = len(b.texts)
		b.texts = append(b.texts, source{t, uint32(len(b.t.text))})
		b.t.text = append(b.t.text, t.text...)
	}
	return b.texts[i].shift
}

// fits reports whether offsets still fit their type after more bytes.
func (b *Builder) fits(more int) bool {
	if len(b.t.data)+len(b.t.text)+more >= math.MaxInt32 {
		b.err = &LimitError{Limit: "size", Max: math.MaxInt32, Offset: math.MaxInt32}
	}
	return b.err == nil
}

func (b *Builder) tooDeep() {
	b.err = &LimitError{Limit: "depth", Max: DefaultDepth, Offset: int64(len(b.t.data))}
}
