package canonicaltree

import (
	"crypto/sha256"
	"encoding/binary"
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

// appendEncoding encodes the value at index i without its name. What stands in
// the document as it is encoded goes by in one loop; only an object with
// unordered members calls itself for each of them.
func (t *Tree) appendEncoding(dst []byte, i uint32, numbers Numbers) []byte {
	end := t.nodes[i].next
	for c := i; c < end; {
		n := &t.nodes[c]
		if n.flags&isMember != 0 && c != i {
			name := t.nameOf(n)
			dst = appendHead(dst, tagString, len(name))
			dst = append(dst, name...)
		}
		switch n.kind {
		case String:
			text := t.textOf(n)
			dst = appendHead(dst, tagString, len(text))
			dst = append(dst, text...)
		case Number:
			literal := t.data[n.start:n.end]
			if numbers == Decimal && n.flags&plain == 0 {
				dst = appendDecimal(dst, literal)
				break
			}
			dst = appendHead(dst, tagNumber, len(literal))
			dst = append(dst, literal...)
		case Array:
			dst = appendHead(dst, tagArray, int(n.count))
		case Object:
			dst = appendHead(dst, tagObject, int(n.count))
			if n.flags&unordered == 0 {
				break
			}
			for _, m := range t.order[n.order : n.order+n.count] {
				name := t.nameOf(&t.nodes[m])
				dst = appendHead(dst, tagString, len(name))
				dst = append(dst, name...)
				dst = t.appendEncoding(dst, m, numbers)
			}
			c = n.next
			continue
		case True:
			dst = append(dst, tagTrue)
		case False:
			dst = append(dst, tagFalse)
		case Null:
			dst = append(dst, tagNull)
		}
		c++
	}
	return dst
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
