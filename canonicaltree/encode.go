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
	return dst[:t.encode(dst[:cap(dst)], len(dst), i, numbers)]
}

const (
	maxHead     = 5
	maxExponent = 12 // "e-" and the digits of 2^31
	overshoot   = 32 // room for put
)

// tags and contents say by kind with what an encoding begins, and whether its
// number is that of content bytes that follow.
var (
	tags     = [8]byte{Null: tagNull, False: tagFalse, True: tagTrue, Number: tagNumber, String: tagString, Array: tagArray, Object: tagObject}
	contents = [8]uint32{Number: ^uint32(0), String: ^uint32(0)}
)

// encode writes the value at index i to dst[p:], which has room for it, and
// gives the offset behind it. What stands in the document as it is encoded goes
// by in one loop, with few branches that the processor has to guess; only an
// object with unordered members calls itself for each.
func (t *Tree) encode(dst []byte, p int, i uint32, numbers Numbers) int {
	nodes, data := t.nodes, t.data
	end := nodes[i].next
	for c := i; c < end; c++ {
		n := &nodes[c]
		if n.flags&isMember != 0 && c != i {
			p = t.encodeName(dst, p, n)
		}
		source := data
		if n.flags&(escaped|unordered|unplain) != 0 {
			switch {
			case n.kind == Object:
				p = t.encodeByName(dst, p, n, numbers)
				c = n.next - 1
				continue
			case n.kind == String:
				source = t.text
			case numbers == Decimal:
				p = len(appendDecimal(dst[:p], data[n.start:n.end]))
				continue
			}
		}
		kind := n.kind & 7
		p = putHead(dst, p, tags[kind], n.count)
		p = put(dst, p, source, n.order, n.count&contents[kind])
	}
	return p
}

// encodeByName writes an object that the document has in another order.
func (t *Tree) encodeByName(dst []byte, p int, n *node, numbers Numbers) int {
	p = putHead(dst, p, tagObject, n.count)
	for _, m := range t.order[n.order : n.order+n.count] {
		p = t.encodeName(dst, p, &t.nodes[m])
		p = t.encode(dst, p, m, numbers)
	}
	return p
}

func (t *Tree) encodeName(dst []byte, p int, n *node) int {
	source := t.data
	if n.flags&nameEscaped != 0 {
		source = t.text
	}
	p = putHead(dst, p, tagString, n.nameLen)
	return put(dst, p, source, n.name, n.nameLen)
}

// putHead writes an initial byte and the length or count that belongs to it.
func putHead(dst []byte, p int, tag byte, n uint32) int {
	if n < 24 {
		dst[p] = tag | byte(n)
		return p + 1
	}
	return len(appendHead(dst[:p], tag, int(n)))
}

// put copies n bytes of source at offset from to dst[p:]. Most are few, and
// cheaper to copy as a block, whatever stands behind them, than by a call.
func put(dst []byte, p int, source []byte, from, n uint32) int {
	if n <= overshoot && int(from)+overshoot <= len(source) {
		*(*[overshoot]byte)(dst[p:]) = *(*[overshoot]byte)(source[from:])
	} else {
		copy(dst[p:], source[from:from+n])
	}
	return p + int(n)
}

// appendHead appends an initial byte and the length or count that belongs to it.
func appendHead(dst []byte, tag byte, n int) []byte {
	switch {
	case n < 24:
		return append(dst, tag|byte(n))
	case n <= 0xFF:
		return append(dst, tag|24, byte(n))
	case n <= 0xFFFF:
		return binary.BigEndian.AppendUint16(append(dst, tag|25), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(dst, tag|26), uint32(n))
	}
}
