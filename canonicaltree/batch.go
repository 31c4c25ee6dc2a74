package canonicaltree

import (
	"unsafe"

	"github.com/seed-86dfc502/weir/internal/poison"
)

// Batch holds Trees that are released together, with the bytes that a Builder wrote: not
// even [Node.Raw] is valid afterwards. A nil Batch leaves Trees to the garbage collector. It
// is for one goroutine.
type Batch struct {
	trees []*Tree
	size  int
}

// Keep returns t, which b releases.
func (b *Batch) Keep(t *Tree) *Tree {
	if b == nil {
		return t.Keep()
	}
	b.trees = append(b.trees, t)
	b.size += t.size()
	t.held = len(b.trees)
	return t
}

// Drop releases the Tree of a value early, if the value is the root of a Tree of b.
func (b *Batch) Drop(n Node) {
	if b == nil || n.t == nil || n.i != 0 {
		return
	}
	if i := n.t.held - 1; i >= 0 && i < len(b.trees) && b.trees[i] == n.t {
		b.trees[i] = nil
		b.size -= n.t.size()
		n.t.recycle()
	}
}

// recycle is Release with the bytes that a Builder wrote.
func (t *Tree) recycle() {
	if t.owned {
		poison.Fill(t.data)
		if cap(t.data) <= pooledBytes {
			t.written = t.data[:0]
		}
	}
	t.Release()
}

// Size is about how much memory the Trees take, in bytes.
func (b *Batch) Size() int { return b.size }

// Release releases all Trees.
func (b *Batch) Release() {
	for _, t := range b.trees {
		if t != nil {
			t.recycle()
		}
	}
	clear(b.trees)
	b.trees, b.size = b.trees[:0], 0
}

// size is about how much memory t takes with its document, in bytes.
func (t *Tree) size() int {
	return len(t.data) + len(t.nodes)*int(unsafe.Sizeof(node{})) + 4*len(t.order) + len(t.text)
}
