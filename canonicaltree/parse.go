package canonicaltree

import (
	"bytes"
	"encoding/binary"
)

// frame is an array or object that is still open.
type frame struct {
	node      uint32
	count     uint32
	kind      Kind // Invalid outside the root
	unordered bool
	last      uint32 // object: the member before, and the key of its name
	key       uint64
}

// parse fills t. The open containers are kept in t.stack, not on the
// goroutine's, so nesting costs 32 bytes a level.
func (t *Tree) parse(data []byte, l Limits) error {
	l = l.withDefaults()
	t.data, t.nodes, t.order, t.text = data, t.nodes[:0], t.order[:0], t.text[:0]
	t.stack, t.compared = t.stack[:0], 0
	if len(data) > l.Size {
		return &LimitError{Limit: "size", Max: int64(l.Size), Offset: int64(l.Size)}
	}
	if bytes.HasPrefix(data, []byte("\xEF\xBB\xBF")) {
		return &SyntaxError{0, "byte-order mark"}
	}

	var f frame
	i := 0
	for {
		i = skipSpace(data, i)
		n := node{}
		if f.kind == Object {
			var err error
			if i, err = t.member(i, &f, &n); err != nil {
				return err
			}
		}
		if i >= len(data) {
			return unexpected(data, i, "value")
		}
		n.start = uint32(i)
		switch c := data[i]; c {
		case '"':
			end, isEscaped, text, err := t.scanString(i + 1)
			if err != nil {
				return err
			}
			n.kind = String
			if isEscaped {
				n.flags |= escaped
				n.order, n.count = uint32(text), uint32(len(t.text)-text)
			}
			i = end + 1
		case '{', '[':
			if len(t.stack) == l.Depth {
				return &LimitError{Limit: "depth", Max: int64(l.Depth), Offset: int64(i)}
			}
			t.stack = append(t.stack, f)
			f = frame{node: uint32(len(t.nodes)), kind: Array}
			closing := byte(']')
			if c == '{' {
				f.kind, closing = Object, '}'
			}
			n.kind = f.kind
			t.nodes = append(t.nodes, n)
			if i = skipSpace(data, i+1); i < len(data) && data[i] == closing {
				break
			}
			continue
		case 't', 'f', 'n':
			word, kind := "true", True
			if c == 'f' {
				word, kind = "false", False
			} else if c == 'n' {
				word, kind = "null", Null
			}
			if len(data)-i < len(word) || string(data[i:i+len(word)]) != word {
				return &SyntaxError{int64(i), "unknown word, want true, false or null"}
			}
			n.kind = kind
			i += len(word)
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end, isPlain, err := scanNumber(data, i)
			if err != nil {
				return err
			}
			n.kind = Number
			if isPlain {
				n.flags |= plain
			}
			i = end
		default:
			return unexpected(data, i, "value")
		}
		if n.kind < Array {
			n.end = uint32(i)
			t.nodes = append(t.nodes, n)
			t.nodes[len(t.nodes)-1].next = uint32(len(t.nodes))
			f.count++
		}

		// Behind a value, or at the end of an empty container.
		for {
			i = skipSpace(data, i)
			if f.kind == Invalid {
				if i < len(data) {
					return &SyntaxError{int64(i), "trailing bytes"}
				}
				return nil
			}
			if i >= len(data) {
				return unexpected(data, i, "',' or the end of the array or object")
			}
			c := data[i]
			i++
			if c == ',' {
				break
			}
			if f.kind == Object && c != '}' || f.kind == Array && c != ']' {
				return unexpected(data, i-1, "',' or the end of the array or object")
			}
			if err := t.close(&f, i); err != nil {
				return err
			}
			f = t.stack[len(t.stack)-1]
			t.stack = t.stack[:len(t.stack)-1]
			f.count++
		}
	}
}

// member reads a name and its colon at i into n, and gives the offset of the
// value. It compares the name with the one before: members that come in order
// cost this one comparison.
func (t *Tree) member(i int, f *frame, n *node) (int, error) {
	data := t.data
	if i >= len(data) || data[i] != '"' {
		return 0, unexpected(data, i, "member name")
	}
	end, isEscaped, text, err := t.scanString(i + 1)
	if err != nil {
		return 0, err
	}
	n.flags = isMember
	if isEscaped {
		n.flags |= nameEscaped
		n.name, n.nameLen = uint32(text), uint32(len(t.text)-text)
	} else {
		n.name, n.nameLen = uint32(i+1), uint32(end-i-1)
	}
	if !f.unordered {
		name := t.nameOf(n)
		key := keyOf(name)
		if f.count > 0 {
			t.compared++
			f.unordered = key < f.key ||
				key == f.key && bytes.Compare(name, t.nameOf(&t.nodes[f.last])) <= 0
		}
		f.key, f.last = key, uint32(len(t.nodes))
	}
	i = skipSpace(data, end+1)
	if i >= len(data) || data[i] != ':' {
		return 0, unexpected(data, i, "':'")
	}
	return skipSpace(data, i+1), nil
}

// close completes the container f, which ends before offset i.
func (t *Tree) close(f *frame, i int) error {
	n := &t.nodes[f.node]
	n.end, n.next, n.count = uint32(i), uint32(len(t.nodes)), f.count
	switch {
	case f.unordered:
		n.flags |= unordered | tabled
		return t.sortMembers(f.node)
	case f.count > wide && !t.flat(f.node):
		n.flags |= tabled
		n.order = uint32(len(t.order))
		for c := f.node + 1; c < n.next; c = t.nodes[c].next {
			t.order = append(t.order, c)
		}
	}
	return nil
}

// keyOf gives the first eight bytes of a name as a number: names are ordered as
// their keys where those differ. A shorter name is filled up with zero bytes.
func keyOf(name []byte) uint64 {
	if len(name) >= 8 {
		return binary.BigEndian.Uint64(name)
	}
	var key uint64
	for k, c := range name {
		key |= uint64(c) << (56 - 8*k)
	}
	return key
}
