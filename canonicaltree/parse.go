package canonicaltree

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// frame is an array or object that is still open.
type frame struct {
	node      uint32
	count     uint32
	kind      Kind // Invalid outside the root
	unordered bool
}

// usualNodes is the node capacity that suffices for most texts of size bytes.
func usualNodes(size int) int { return min(size/16+8, 512) }

// parse fills t. The open containers are kept in t.stack, not on the
// goroutine's, so nesting costs a frame a level.
//
// The common case of everything is in line here, since calls cost about as
// much as the work on a short string; rare cases are left to other functions.
func (t *Tree) parse(data []byte, l Limits) error {
	l = l.withDefaults()
	t.clear()
	t.data = data
	if t.nodes == nil {
		t.nodes = make([]node, 0, usualNodes(len(data)))
	}
	if len(data) > l.Size {
		return &LimitError{Limit: "size", Max: int64(l.Size), Offset: int64(l.Size)}
	}
	if bytes.HasPrefix(data, []byte("\xEF\xBB\xBF")) {
		return &SyntaxError{0, "byte-order mark"}
	}

	var f frame
	nodes, entries := t.nodes, t.entries
	i := 0
	for {
		// A member or a value starts here.
		i = skipSpace(data, i)
		if len(nodes) == cap(nodes) {
			nodes = slices.Grow(nodes, max(len(nodes)/2, 16))
			t.nodes = nodes
		}
		at := uint32(len(nodes))
		nodes = nodes[:at+1]
		n := &nodes[at]
		n.flags = 0

		if f.kind == Object {
			if i >= len(data) || data[i] != '"' {
				return unexpected(data, i, "member name")
			}
			i++
			n.flags = isMember
			var key uint64
			end := simpleEnd(data, i)
			if end >= 0 {
				n.name, n.nameLen = uint32(i), uint32(end-i)
				key = keyAt(data, i, end-i)
			} else {
				text, err := 0, error(nil)
				if end, text, err = t.scanString(i); err != nil {
					return err
				}
				n.name, n.nameLen = uint32(i), uint32(end-i)
				if text >= 0 {
					n.flags |= nameEscaped
					n.name, n.nameLen = uint32(text), uint32(len(t.text)-text)
				}
				key = keyOf(t.nameOf(n))
			}
			// Members that come in order cost this one comparison.
			if f.count > 0 && !f.unordered {
				last := &entries[len(entries)-1]
				if key <= last.key && (key < last.key || bytes.Compare(t.nameOf(n), t.nameOf(&nodes[last.node])) <= 0) {
					f.unordered = true
					t.steps += int(f.count)
				}
			}
			entries = append(entries, entry{key, at, f.count})
			i = end + 1
			if i >= len(data) || data[i] != ':' {
				if i = skipSpace(data, i); i >= len(data) || data[i] != ':' {
					return unexpected(data, i, "':'")
				}
			}
			i = skipSpace(data, i+1)
		}

		if i >= len(data) {
			return unexpected(data, i, "value")
		}
		n.start = uint32(i)
		switch c := data[i]; c {
		case '"':
			n.kind = String
			i++
			end := simpleEnd(data, i)
			if end >= 0 {
				n.order, n.count = uint32(i), uint32(end-i)
			} else {
				text, err := 0, error(nil)
				if end, text, err = t.scanString(i); err != nil {
					return err
				}
				n.order, n.count = uint32(i), uint32(end-i)
				if text >= 0 {
					n.flags |= escaped
					n.order, n.count = uint32(text), uint32(len(t.text)-text)
				}
			}
			i = end + 1
		case '{', '[':
			if len(t.stack) == l.Depth {
				return &LimitError{Limit: "depth", Max: int64(l.Depth), Offset: int64(i)}
			}
			t.stack = append(t.stack, f)
			t.depth = max(t.depth, len(t.stack))
			f = frame{node: at, kind: Array}
			if c == '{' {
				f.kind = Object
			}
			n.kind, n.order = f.kind, 0
			i = skipSpace(data, i+1)
			// The closing bracket is two behind the opening one in ASCII.
			if i < len(data) && data[i] == c+2 {
				goto closing
			}
			continue
		case 't', 'f', 'n':
			word := "true"
			n.kind = True
			if c == 'f' {
				word, n.kind = "false", False
			} else if c == 'n' {
				word, n.kind = "null", Null
			}
			if len(data)-i < len(word) || string(data[i:i+len(word)]) != word {
				return &SyntaxError{int64(i), "unknown word, want true, false or null"}
			}
			n.order, n.count = 0, 0
			i += len(word)
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end, isPlain, err := scanNumber(data, i)
			if err != nil {
				return err
			}
			n.kind = Number
			if !isPlain {
				n.flags |= unplain
			}
			n.order, n.count = uint32(i), uint32(end-i)
			i = end
		default:
			return unexpected(data, i, "value")
		}
		n.end, n.next = uint32(i), at+1
		f.count++

	closing:
		// Behind a value, or at the closing bracket of an empty container.
		for {
			i = skipSpace(data, i)
			if f.kind == Invalid {
				if i < len(data) {
					return &SyntaxError{int64(i), "trailing bytes"}
				}
				t.nodes, t.entries = nodes, entries
				return nil
			}
			if i >= len(data) {
				return unexpected(data, i, "',' or the end of the array or object")
			}
			c := data[i]
			if c == ',' {
				i++
				break
			}
			if f.kind == Object && c != '}' || f.kind == Array && c != ']' {
				return unexpected(data, i, "',' or the end of the array or object")
			}
			i++
			n := &nodes[f.node]
			n.end, n.next, n.count = uint32(i), uint32(len(nodes)), f.count
			if f.unordered || f.count > wide {
				t.nodes, t.entries = nodes, entries
				if err := t.list(f.node, f.unordered); err != nil {
					return err
				}
			}
			if f.kind == Object {
				entries = entries[:len(entries)-int(f.count)]
			}
			f = t.stack[len(t.stack)-1]
			t.stack = t.stack[:len(t.stack)-1]
			f.count++
		}
	}
}

// list writes the table of the container at index i, if it needs one.
func (t *Tree) list(i uint32, isUnordered bool) error {
	n := &t.nodes[i]
	if isUnordered {
		n.flags |= unordered | tabled
		if twice := t.sortMembers(i); twice != 0 {
			return t.duplicate(twice)
		}
		return nil
	}
	t.steps += int(n.count)
	if t.flat(i) {
		return nil
	}
	n.flags |= tabled
	n.order = uint32(len(t.order))
	for c := i + 1; c < n.next; c = t.nodes[c].next {
		t.order = append(t.order, c)
	}
	return nil
}

// keyOf returns the first eight bytes of a name as a number: names are ordered as
// their keys where those differ. A shorter name is filled up with zero bytes.
func keyOf(name []byte) uint64 {
	return keyAt(name, 0, len(name))
}

// keyAt is keyOf for the name of n bytes at offset i.
func keyAt(data []byte, i, n int) uint64 {
	if i+8 <= len(data) {
		key := binary.BigEndian.Uint64(data[i:])
		if n < 8 {
			key &^= 1<<(64-8*n) - 1
		}
		return key
	}
	var key uint64
	for k, c := range data[i : i+n] {
		key |= uint64(c) << (56 - 8*k)
	}
	return key
}
