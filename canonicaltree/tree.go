package canonicaltree

import (
	"math"
	"sync"

	"github.com/seed-86dfc502/weir/internal/poison"
)

// Scheme is the number of the encoding that digests are made of. Digests of
// different schemes must not be compared. structural-hash.md specifies it.
const Scheme uint8 = 1

// DefaultDepth is the deepest allowed nesting of arrays and objects
// when [Limits] does not say otherwise.
const DefaultDepth = 512

// Limits bounds the cost of a document. The zero value means the defaults.
// Memory is proportional to the size of the document: at most about 30 times
// its bytes (a document of nothing but single digits), usually below 4 times.
type Limits struct {
	// Depth is the deepest allowed nesting of arrays and objects.
	// Defaults to DefaultDepth. Reading a Tree takes stack in proportion to it.
	Depth int
	// Size is the largest accepted document in bytes. Defaults to, and is never
	// more than, 2 GiB less one byte.
	Size int
}

// Tree is the index of one document. It is immutable until [Tree.Release], so
// any number of goroutines may read it. It refers to the bytes that it was
// parsed from, which must not change while it is in use.
type Tree struct {
	data  []byte
	nodes []node
	// order lists nodes: the members of objects by name, where the document has them in another
	// order or there are many. The elements of long arrays.
	order []uint32
	// text holds the content of every string and name that is written with
	// escapes.
	text []byte
	// depth is at least the number of arrays and objects inside one another.
	depth int
	owned bool // data was written by a Builder
	held  int  // place in a Batch, from 1

	scratch
}

// scratch holds the buffers that parsing and hashing need besides the index. It stays with the
// Tree so that one pool serves both.
type scratch struct {
	stack    []frame
	entries  []entry  // the members of all open objects
	spare    []entry  // room for sorting
	ordinals []uint32 // parallel to order: the places in the document, to guess the next one's
	encoding []byte
	written  []byte // room for a Builder's text
	steps    int    // of ordering members, for the growth tests
}

// node is one value. The nodes of a document are in document order, so the
// first child of a container follows it directly.
type node struct {
	start, end uint32 // the value's bytes in data
	name       uint32 // of the member's name: its offset in data or text
	nameLen    uint32
	next       uint32 // the node after this value and all that is inside it
	count      uint32 // number of members or elements; for a string or number its length
	order      uint32 // offset in order; for a string or number, in data or text
	kind       Kind
	flags      flags
}

type flags uint8

const (
	isMember    flags = 1 << iota // the value has a name
	nameEscaped                   // the name stands in text
	escaped                       // string: the content stands in text
	tabled                        // container: its children are listed in order
	unordered                     // object: the document does not have it by name
	unplain                       // number: the literal is not its own normal form
)

// wide is the number of children above which a container gets a table, so that
// Get and At need not walk from sibling to sibling.
const wide = 16

// Larger trees are left to the garbage collector: a giant must not stay in the
// pool, nor hold the index of a small document that is kept.
const (
	pooledNodes = 1 << 15 // 1 MiB
	pooledBytes = 1 << 20
)

var trees = sync.Pool{New: func() any { return new(Tree) }}

// Parse indexes data, which must be exactly one JSON text, under the default
// limits. It keeps data. The error is a [*SyntaxError] or a [*LimitError].
func Parse(data []byte) (*Tree, error) {
	return ParseLimits(data, Limits{})
}

// ParseLimits is [Parse] under the given limits.
func ParseLimits(data []byte, l Limits) (*Tree, error) {
	t := trees.Get().(*Tree)
	if err := t.parse(data, l); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// Root returns the document's value. It always exists.
func (t *Tree) Root() Node {
	return Node{t, 0}
}

// Release returns the index for reuse. Neither t nor any of its Nodes may be
// used afterwards. Calling it is optional, and at most once.
func (t *Tree) Release() {
	if poison.Enabled {
		*t = Tree{} // every use fails from now on
		return
	}
	t.data, t.owned, t.held = nil, false, 0
	if cap(t.nodes) <= pooledNodes && cap(t.text) <= pooledBytes && cap(t.encoding) <= pooledBytes {
		trees.Put(t)
	}
}

// Keep declares that t stays in use for long or is never released, so that the next tree may
// reuse its parsing buffers. It returns t.
func (t *Tree) Keep() *Tree {
	if cap(t.nodes) <= pooledNodes && cap(t.encoding) <= pooledBytes {
		trees.Put(&Tree{scratch: t.scratch})
	}
	t.scratch = scratch{}
	return t
}

// clear makes t an index of nothing and keeps its room.
func (t *Tree) clear() {
	t.data, t.nodes, t.order, t.text, t.depth = nil, t.nodes[:0], t.order[:0], t.text[:0], 0
	t.stack, t.entries, t.steps = t.stack[:0], t.entries[:0], 0
}

func (l Limits) withDefaults() Limits {
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	if l.Size <= 0 || l.Size > math.MaxInt32 {
		l.Size = math.MaxInt32
	}
	return l
}

// nameOf returns the unescaped name of a member.
func (t *Tree) nameOf(n *node) []byte {
	if n.flags&nameEscaped != 0 {
		return t.text[n.name : n.name+n.nameLen]
	}
	return t.data[n.name : n.name+n.nameLen]
}

// textOf returns the unescaped content of a string.
func (t *Tree) textOf(n *node) []byte {
	if n.flags&escaped != 0 {
		return t.text[n.order : n.order+n.count]
	}
	return t.data[n.order : n.order+n.count]
}

// flat reports whether the children of the container at i have no children
// themselves, so that they are adjacent.
func (t *Tree) flat(i uint32) bool {
	n := &t.nodes[i]
	return n.next-i-1 == n.count
}
