package canonicaltree

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
)

// Kind is the type of a value.
type Kind uint8

// The kinds of JSON. False and True are kinds of their own.
const (
	Invalid Kind = iota // of an absent Node
	Null
	False
	True
	Number
	String
	Array
	Object
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	names := [...]string{"invalid", "null", "false", "true", "number", "string", "array", "object"}
	if int(k) < len(names) {
		return names[k]
	}
	return names[Invalid]
}

// Node is a value in a [Tree]. It is cheap to copy and valid as long as the
// Tree. The zero Node represents an absent value: all its methods may be called
// and find nothing.
type Node struct {
	t *Tree
	i uint32
}

// Exists reports whether there is a value. A null exists.
func (n Node) Exists() bool { return n.t != nil }

// Kind returns the value's type, Invalid if it is absent.
func (n Node) Kind() Kind {
	if n.t == nil {
		return Invalid
	}
	return n.t.nodes[n.i].kind
}

// Raw returns the bytes of the value as in the document, without the
// white space around it. They are the document's own: do not modify them. It is
// nil for an absent value.
func (n Node) Raw() []byte {
	if n.t == nil {
		return nil
	}
	v := &n.t.nodes[n.i]
	return n.t.data[v.start:v.end:v.end]
}

// Len returns the number of members of an object or elements of an array, 0 for
// anything else.
func (n Node) Len() int {
	if n.Kind() < Array {
		return 0
	}
	return int(n.t.nodes[n.i].count)
}

// Text returns the unescaped content of a string, and false for anything else.
func (n Node) Text() (string, bool) {
	if n.Kind() != String {
		return "", false
	}
	return string(n.t.textOf(&n.t.nodes[n.i])), true
}

// TextBytes is [Node.Text] without a copy: do not modify it, nor use it after the Tree's
// release.
func (n Node) TextBytes() ([]byte, bool) {
	if n.Kind() != String {
		return nil, false
	}
	return n.t.textOf(&n.t.nodes[n.i]), true
}

// Get returns the member of that unescaped name, the zero Node if n is not an
// object that has it. It does not allocate. It looks through small objects and
// searches larger ones by halves.
func (n Node) Get(name string) Node { return get(n, name) }

// GetBytes is [Node.Get] for a name as [Node.Name] returns it.
func (n Node) GetBytes(name []byte) Node { return get(n, name) }

func get[T string | []byte](n Node, name T) Node {
	if n.Kind() != Object {
		return Node{}
	}
	t, v := n.t, &n.t.nodes[n.i]
	if v.count <= wide {
		for c := n.i + 1; c < v.next; c = t.nodes[c].next {
			if m := &t.nodes[c]; int(m.nameLen) == len(name) && string(t.nameOf(m)) == string(name) {
				return Node{t, c}
			}
		}
		return Node{}
	}
	low, high := uint32(0), v.count
	for low < high {
		mid := (low + high) / 2
		c := t.ranked(n.i, mid)
		switch got := t.nameOf(&t.nodes[c]); {
		case string(got) == string(name):
			return Node{t, c}
		case string(got) < string(name):
			low = mid + 1
		default:
			high = mid
		}
	}
	return Node{}
}

// ranked returns child k of a container that is flat or has a table: of an object
// by name, of an array by index.
func (t *Tree) ranked(i, k uint32) uint32 {
	v := &t.nodes[i]
	if v.flags&tabled != 0 {
		return t.order[v.order+k]
	}
	return i + 1 + k
}

// At returns element i of an array, counted from 0, the zero Node if there is
// none.
func (n Node) At(i int) Node {
	if n.Kind() != Array || i < 0 || i >= n.Len() {
		return Node{}
	}
	t := n.t
	if t.nodes[n.i].flags&tabled != 0 || t.flat(n.i) {
		return Node{t, t.ranked(n.i, uint32(i))}
	}
	c := n.i + 1
	for ; i > 0; i-- {
		c = t.nodes[c].next
	}
	return Node{t, c}
}

// Name returns the unescaped name of a member, and nil for anything else. It is not
// a copy: do not modify it, nor use it after the Tree's release.
func (n Node) Name() []byte {
	if n.t == nil || n.t.nodes[n.i].flags&isMember == 0 {
		return nil
	}
	name := n.t.nameOf(&n.t.nodes[n.i])
	return name[:len(name):len(name)]
}

// Children yields the members of an object or the elements of an array as the
// document has them, and nothing for anything else. With [Node.Name] it is the
// way over members that copies no names.
func (n Node) Children() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		if n.Kind() < Array {
			return
		}
		for c := n.i + 1; c < n.t.nodes[n.i].next; c = n.t.nodes[c].next {
			if !yield(Node{n.t, c}) {
				return
			}
		}
	}
}

// SortedChildren is [Node.Children] in the order of [Node.Sorted], and of the
// index for an array.
func (n Node) SortedChildren() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		if n.Kind() < Array {
			return
		}
		for w := n.t.walk(n.i); w.more(); w.step() {
			if !yield(Node{n.t, w.child}) {
				return
			}
		}
	}
}

// ValueAt returns the value of n's document whose first byte is at offset, in bytes from the
// beginning of the document. The zero Node if none does.
func (n Node) ValueAt(offset int) Node {
	if n.t == nil {
		return Node{}
	}
	t := n.t
	i, found := slices.BinarySearchFunc(t.nodes, offset, func(n node, offset int) int { return int(n.start) - offset })
	if !found {
		return Node{}
	}
	return Node{t, uint32(i)}
}

// Elements yields the index and value of every element of an array in order,
// and nothing for anything else.
func (n Node) Elements() iter.Seq2[int, Node] {
	return func(yield func(int, Node) bool) {
		if n.Kind() != Array {
			return
		}
		t, k := n.t, 0
		for c := n.i + 1; c < t.nodes[n.i].next; c = t.nodes[c].next {
			if !yield(k, Node{t, c}) {
				return
			}
			k++
		}
	}
}

// Members yields the unescaped name and value of every member of an object as
// the document has them, and nothing for anything else. Each name is a copy.
func (n Node) Members() iter.Seq2[string, Node] {
	return func(yield func(string, Node) bool) {
		if n.Kind() != Object {
			return
		}
		t := n.t
		for c := n.i + 1; c < t.nodes[n.i].next; c = t.nodes[c].next {
			if !yield(string(t.nameOf(&t.nodes[c])), Node{t, c}) {
				return
			}
		}
	}
}

// Sorted is [Node.Members] in the order of the bytes of the unescaped names,
// which is also the order of their code points.
func (n Node) Sorted() iter.Seq2[string, Node] {
	return func(yield func(string, Node) bool) {
		if n.Kind() != Object {
			return
		}
		for w := n.t.walk(n.i); w.more(); w.step() {
			if !yield(string(n.t.nameOf(&n.t.nodes[w.child])), Node{n.t, w.child}) {
				return
			}
		}
	}
}

// walker goes over the children of a container: of an object by name, of an
// array by index.
type walker struct {
	t     *Tree
	table []uint32 // nil: in document order
	child uint32
	end   uint32
}

func (t *Tree) walk(i uint32) walker {
	v := &t.nodes[i]
	w := walker{t: t, child: i + 1, end: v.next}
	if v.flags&unordered != 0 {
		w.table = t.order[v.order : v.order+v.count]
		w.child = w.table[0]
	}
	return w
}

func (w *walker) more() bool { return w.child < w.end }

func (w *walker) step() {
	switch {
	case w.table == nil:
		w.child = w.t.nodes[w.child].next
	case len(w.table) > 1:
		w.table = w.table[1:]
		w.child = w.table[0]
	default:
		w.child = w.end
	}
}

// name returns the unescaped name of the child, which must be a member.
func (w *walker) name() []byte { return w.t.nameOf(&w.t.nodes[w.child]) }

// AppendCanonical appends the value as compact JSON with its members sorted and
// its strings escaped as little as possible. Number literals stay as they are.
// It differs from RFC 8785 in this, and in ordering names by their UTF-8 bytes
// instead of UTF-16. It appends nothing for an absent value.
func (n Node) AppendCanonical(dst []byte) []byte {
	if n.t == nil {
		return dst
	}
	return n.t.appendCanonical(dst, n.i)
}

func (t *Tree) appendCanonical(dst []byte, i uint32) []byte {
	v := &t.nodes[i]
	switch v.kind {
	case Array:
		dst = append(dst, '[')
		for w := t.walk(i); w.more(); w.step() {
			if w.child != i+1 {
				dst = append(dst, ',')
			}
			dst = t.appendCanonical(dst, w.child)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		first := true
		for w := t.walk(i); w.more(); w.step() {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = AppendString(dst, w.name())
			dst = append(dst, ':')
			dst = t.appendCanonical(dst, w.child)
		}
		return append(dst, '}')
	case String:
		return AppendString(dst, t.textOf(v))
	default:
		return append(dst, t.data[v.start:v.end]...)
	}
}

// AppendString appends s as a JSON string with the fewest escapes: quote,
// backslash and control characters, the latter by letter where there is one.
// s must be valid UTF-8; [Parse] refuses the result otherwise.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// commonPrefix returns the number of bytes that a and b begin with alike.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)>>3
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
