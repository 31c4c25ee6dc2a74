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

// Sum parses data under the default limits and returns the digest of its value.
// It does not allocate once it is warm. Errors are those of [Parse].
func Sum(data []byte, numbers Numbers) (Digest, error) {
	if d, ok := streamSum(data, numbers); ok {
		return d, nil
	}
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

// Sum returns the digest of the value: of a Tree's root the same as [Sum] of its
// document. An absent value has the digest of an empty encoding, which no value
// shares.
func (n Node) Sum(numbers Numbers) Digest {
	buf := buffers.Get().(*[]byte)
	*buf = n.AppendEncoding((*buf)[:0], numbers)
	d := Digest(sha256.Sum256(*buf))
	if cap(*buf) <= pooledBytes {
		buffers.Put(buf)
	}
	return d
}

// AppendEncoding appends the hashed form: an encoding that two values share if
// and only if they are equal under numbers. structural-hash.md specifies
// it. It appends nothing for an absent value.
func (n Node) AppendEncoding(dst []byte, numbers Numbers) []byte {
	if n.t == nil {
		return dst
	}
	if v := &n.t.nodes[n.i]; v.kind < Array && v.count < shortHead && v.flags&(escaped|unplain) == 0 {
		content := v.count & contents[v.kind&7]
		return append(append(dst, tags[v.kind&7]|byte(content)), n.t.data[v.order:v.order+content]...)
	}
	return n.t.appendEncoding(dst, n.i, numbers)
}

// appendEncoding encodes the value at index i without its name.
func (t *Tree) appendEncoding(dst []byte, i uint32, numbers Numbers) []byte {
	// An encoding is no longer than the text, except that a number's normal form may have an
	// exponent where the literal has a point. Besides, every node has at most two heads.
	perNode, rare := 2*maxHead, nameEscaped|escaped|unordered
	if numbers == Decimal {
		perNode += maxExponent
		rare |= unplain
	}
	n := &t.nodes[i]
	start := len(dst)
	dst = slices.Grow(dst, int(n.end-n.start)+int(n.next-i)*perNode+1+overshoot)
	p, c := t.encodeValue(dst[:cap(dst)], start, i, rare)
	return dst[:t.encode(dst[:cap(dst)], p, c, n.next, rare)]
}

const (
	maxHead     = 5
	maxExponent = 12 // "e-" and the digits of 2^31
	overshoot   = 32 // bytes copied at a time, even if fewer are needed
	shortHead   = 24 // lengths below stand in the initial byte
)

// tags holds the initial byte of each kind's encoding; contents tells whether its number counts
// the content bytes that follow.
var (
	tags     = [8]byte{Null: tagNull, False: tagFalse, True: tagTrue, Number: tagNumber, String: tagString, Array: tagArray, Object: tagObject}
	contents = [8]uint32{Number: ^uint32(0), String: ^uint32(0)}
)

// encode writes the nodes from c up to end, with their names, to dst[p:], which
// has room for them and overshoot. It returns the offset behind. Flags in rare are
// those that encodeShort must not meet.
func (t *Tree) encode(dst []byte, p int, c, end uint32, rare flags) int {
	for c < end {
		var done int
		done, p = encodeShort(dst, p, t.nodes[c:end], nil, t.data, rare)
		if c += uint32(done); c == end {
			break
		}
		if n := &t.nodes[c]; n.flags&isMember != 0 {
			p = len(append(appendHead(dst[:p], tagString, int(n.nameLen)), t.nameOf(n)...))
		}
		p, c = t.encodeValue(dst, p, c, rare)
	}
	return p
}

// encodeShort is the inner loop: it writes nodes, or those of them that are
// listed, until one is long or has rare flags, or is listed and has others
// inside it. It returns the number of them. It copies a block for each name and
// each value, with any bytes that follow: that is cheaper than to find out how
// many bytes it has.
func encodeShort(dst []byte, p int, nodes []node, listed []uint32, data []byte, rare flags) (done, end int) {
	last := len(data) - overshoot
	count := len(nodes)
	if listed != nil {
		count = len(listed)
	}
	for k := range count {
		c := uint32(k)
		if listed != nil {
			c = listed[k]
		}
		n := &nodes[c]
		if n.flags&rare != 0 || n.count >= shortHead || int(n.order) > last {
			return k, p
		}
		if listed != nil && n.next != c+1 {
			return k, p
		}
		if n.flags&isMember != 0 {
			if n.nameLen >= shortHead || int(n.name) > last {
				return k, p
			}
			block(dst, p, tagString|byte(n.nameLen), data, n.name)
			p += 1 + int(n.nameLen)
		}
		kind := n.kind & 7
		block(dst, p, tags[kind]|byte(n.count), data, n.order)
		p += 1 + int(n.count&contents[kind])
	}
	return count, p
}

// block writes a head and overshoot bytes of source behind it.
func block(dst []byte, p int, head byte, source []byte, from uint32) {
	to := (*[1 + overshoot]byte)(dst[p:])
	to[0] = head
	*(*[overshoot]byte)(to[1:]) = [overshoot]byte(source[from:])
}

// encodeValue writes the node at index c, of any kind, without its name. Of an object with
// unordered members also all that is inside it. It returns the offset and the node behind.
func (t *Tree) encodeValue(dst []byte, p int, c uint32, rare flags) (end int, next uint32) {
	n := &t.nodes[c]
	head := dst[:p]
	switch {
	case n.flags&unordered != 0:
		p = len(appendHead(head, tagObject, int(n.count)))
		for members := t.order[n.order : n.order+n.count]; len(members) > 0; {
			var done int
			done, p = encodeShort(dst, p, t.nodes, members, t.data, rare)
			if members = members[done:]; len(members) > 0 {
				p = t.encode(dst, p, members[0], t.nodes[members[0]].next, rare)
				members = members[1:]
			}
		}
		return p, n.next
	case n.flags&rare&unplain != 0:
		head = appendDecimal(head, t.data[n.start:n.end])
	case n.kind == Number || n.kind == String:
		head = append(appendHead(head, tags[n.kind], int(n.count)), t.textOf(n)...)
	case n.kind >= Array:
		head = appendHead(head, tags[n.kind], int(n.count))
	default:
		head = append(head, tags[n.kind])
	}
	return len(head), c + 1
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
