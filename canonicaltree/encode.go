package canonicaltree

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// Digest is SHA-256 over the encoding of a value.
type Digest [sha256.Size]byte

// Numbers says when two numbers are equal.
type Numbers uint8

const (
	// Literal compares numbers by how they are written: 1, 1.0 and 1e0 are
	// three numbers, 0 and -0 are two.
	Literal Numbers = iota
	// Decimal compares numbers by their exact decimal value: 1, 1.0 and 1e0 are
	// one, and 0 equals -0. Exponents are never expanded.
	Decimal
)

// The encoding is CBOR (RFC 8949) of a few types, with a length in the initial
// byte if it is below 24 and in the shortest form otherwise.
const (
	tagNumber = 2 << 5 // byte string: the literal
	tagString = 3 << 5 // text string
	tagArray  = 4 << 5
	tagObject = 5 << 5 // map; its keys are text strings
	tagFalse  = 7<<5 | 20
	tagTrue   = 7<<5 | 21
	tagNull   = 7<<5 | 22
)

// Sum parses data under the default limits and gives the digest of its value.
// It does not allocate once it is warm. Errors are those of [Parse].
func Sum(data []byte, numbers Numbers) (Digest, error) {
	t := trees.Get().(*Tree)
	if err := t.parse(data, Limits{}); err != nil {
		t.Release()
		return Digest{}, err
	}
	t.encoding = t.appendEncoding(t.encoding[:0], 0, numbers)
	d := Digest(sha256.Sum256(t.encoding))
	t.Release()
	return d, nil
}

// buffers holds encodings of Node.Sum: a Tree is read by many at a time, so it
// cannot lend its own.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Sum gives the digest of the value: of a Tree's root the same as [Sum] of its
// document. An absent value has the digest of an empty encoding, which no value
// shares.
func (n Node) Sum(numbers Numbers) Digest {
	buf := buffers.Get().(*[]byte)
	*buf = n.AppendEncoding((*buf)[:0], numbers)
	d := Digest(sha256.Sum256(*buf))
	if cap(*buf) <= pooledSize {
		buffers.Put(buf)
	}
	return d
}

// AppendEncoding appends what is hashed: an encoding that two values share if
// and only if they are equal under numbers. docs/structural-hash.md specifies
// it. It appends nothing for an absent value.
func (n Node) AppendEncoding(dst []byte, numbers Numbers) []byte {
	if n.t == nil {
		return dst
	}
	return n.t.appendEncoding(dst, n.i, numbers)
}

// appendEncoding encodes the value at index i without its name.
func (t *Tree) appendEncoding(dst []byte, i uint32, numbers Numbers) []byte {
	// Content never grows on its way here, except that a number's normal form
	// may have an exponent where the literal has a point. Besides, every node
	// has at most two heads.
	perNode := 2 * maxHead
	if numbers == Decimal {
		perNode += maxExponent
	}
	n := &t.nodes[i]
	need := int(n.end-n.start) + int(n.next-i)*perNode + overshoot
	dst = slices.Grow(dst, need)
	return dst[:t.encode(dst[:cap(dst)], len(dst), i, n.next, nil, isMember, numbers)]
}

const (
	maxHead     = 5
	maxExponent = 12 // "e-" and the digits of 2^31
	overshoot   = 32 // bytes that block copies, however few are wanted
	shortHead   = 24 // lengths below stand in the initial byte
)

// tags and contents say by kind with what an encoding begins, and whether its
// number is that of content bytes that follow.
var (
	tags     = [8]byte{Null: tagNull, False: tagFalse, True: tagTrue, Number: tagNumber, String: tagString, Array: tagArray, Object: tagObject}
	contents = [8]uint32{Number: ^uint32(0), String: ^uint32(0)}
)

// encode writes to dst[p:], which has room for it, and gives the offset behind.
// It writes the nodes from c up to end, or instead of them those that are
// listed, each with all that is inside it. Of the first one's flags it ignores
// those in without.
//
// What the document has in the right order goes by in one loop with few
// branches to guess. Objects with unordered members call encode for the list of
// them, and that for each container. Short content is copied as a block,
// whatever stands behind it, which is cheaper than a call.
func (t *Tree) encode(dst []byte, p int, c, end uint32, listed []uint32, without flags, numbers Numbers) int {
	nodes, data := t.nodes, t.data
	last := len(data) - overshoot
	for k := 0; ; k++ {
		if listed == nil {
			if c >= end {
				break
			}
		} else {
			if k >= len(listed) {
				break
			}
			c = listed[k]
		}
		n := &nodes[c]
		has := n.flags &^ without
		without = 0
		if has&isMember != 0 {
			if size := n.nameLen; size < shortHead && has&nameEscaped == 0 && int(n.name) <= last {
				dst[p] = tagString | byte(size)
				block(dst[p+1:], data[n.name:])
				p += 1 + int(size)
			} else {
				p = len(append(appendHead(dst[:p], tagString, int(size)), t.nameOf(n)...))
			}
		}
		if n.count < shortHead && has&(escaped|unordered|unplain) == 0 && int(n.order) <= last {
			kind := n.kind & 7
			dst[p] = tags[kind] | byte(n.count)
			block(dst[p+1:], data[n.order:])
			p += 1 + int(n.count&contents[kind])
		} else {
			p = t.encodeOther(dst, p, n, numbers)
		}
		c++
		switch {
		case has&unordered != 0:
			p = t.encode(dst, p, c, n.next, t.order[n.order:n.order+n.count], 0, numbers)
			c = n.next
		case listed != nil && n.next != c:
			p = t.encode(dst, p, c, n.next, nil, 0, numbers)
		}
	}
	return p
}

// block copies overshoot bytes, which both must have.
func block(dst, source []byte) {
	to, from := (*[overshoot]byte)(dst), (*[overshoot]byte)(source)
	binary.LittleEndian.PutUint64(to[0:], binary.LittleEndian.Uint64(from[0:]))
	binary.LittleEndian.PutUint64(to[8:], binary.LittleEndian.Uint64(from[8:]))
	binary.LittleEndian.PutUint64(to[16:], binary.LittleEndian.Uint64(from[16:]))
	binary.LittleEndian.PutUint64(to[24:], binary.LittleEndian.Uint64(from[24:]))
}

// encodeOther writes a value, or the head of a container, in any case.
func (t *Tree) encodeOther(dst []byte, p int, n *node, numbers Numbers) int {
	dst = dst[:p]
	switch {
	case n.kind == Number && numbers == Decimal && n.flags&unplain != 0:
		dst = appendDecimal(dst, t.data[n.start:n.end])
	case n.kind == Number || n.kind == String:
		dst = append(appendHead(dst, tags[n.kind], int(n.count)), t.textOf(n)...)
	case n.kind >= Array:
		dst = appendHead(dst, tags[n.kind], int(n.count))
	default:
		dst = append(dst, tags[n.kind])
	}
	return len(dst)
}

// appendHead appends an initial byte and the length or count that belongs to it.
func appendHead(dst []byte, tag byte, n int) []byte {
	switch {
	case n < shortHead:
		return append(dst, tag|byte(n))
	case n <= 0xFF:
		return append(dst, tag|24, byte(n))
	case n <= 0xFFFF:
		return binary.BigEndian.AppendUint16(append(dst, tag|25), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(dst, tag|26), uint32(n))
	}
}
