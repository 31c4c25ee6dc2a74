package canonicaltree

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
)

// stream takes the digest of a document in one pass, without an index: every
// value is encoded where it is met, and members that do not come in order are put
// in order when their object ends, as encoded bytes. It takes the usual document
// only. It leaves anything unusual or wrong to the index: so
// one place decides which documents are refused.
type stream struct {
	data    []byte // the document and streamPadding zero bytes
	dst     []byte // the encoding is dst[:p] with room behind
	spare   []byte
	members []encoded // of all open objects
	decimal bool
	t       Tree // for strings with escapes and for sorting many members
}

// encoded is a member: its range in dst and the key of its name.
type encoded struct {
	key   uint64
	start int
}

const (
	streamBytes   = 1 << 16 // documents that are larger are left to the index
	streamDepth   = 64      // deeper ones too, since each level may move its content
	streamPadding = 32
	shortMember   = 64 // shorter members are moved as a block of this size
)

var streams = sync.Pool{New: func() any { return new(stream) }}

// streamSum returns the digest of data, or false if that needs the index.
func streamSum(data []byte, numbers Numbers) (d Digest, ok bool) {
	if len(data) == 0 || len(data) > streamBytes {
		return Digest{}, false
	}
	s := streams.Get().(*stream)
	s.data = append(append(s.data[:0], data...), make([]byte, streamPadding)...)
	// Heads take no more than quotes, commas and brackets do, except for long strings and
	// numbers: a normal form may have an exponent in the place of a point.
	room := len(data) + len(data)/16 + 2*shortMember
	if s.decimal = numbers == Decimal; s.decimal {
		room += len(data)
	}
	if len(s.dst) < room {
		s.dst = make([]byte, room)
	}
	s.members, s.t.order = s.members[:0], s.t.order[:0]
	i, p := s.value(s.space(0), 0, 0)
	if i >= 0 && s.space(i) == len(data) && p <= len(s.dst) {
		d, ok = sha256.Sum256(s.dst[:p]), true
	}
	streams.Put(s)
	return d, ok
}

// space returns the offset of the first byte at or after i that is not white space.
func (s *stream) space(i int) int {
	if s.data[i] <= ' ' {
		return skipSpaces(s.data, i)
	}
	return i
}

// value encodes the value at offset i to dst[p:] and returns the offsets behind
// both; a negative i to give up.
func (s *stream) value(i, p, depth int) (int, int) {
	switch c := s.data[i]; c {
	case '"':
		return s.text(i+1, p)
	case '{':
		if depth == streamDepth {
			return -1, p
		}
		return s.object(i, p, depth+1)
	case '[':
		if depth == streamDepth {
			return -1, p
		}
		return s.array(i, p, depth+1)
	case 't':
		s.dst[p] = tagTrue
		if binary.LittleEndian.Uint32(s.data[i:]) == 'e'<<24|'u'<<16|'r'<<8|'t' {
			return i + 4, p + 1
		}
	case 'n':
		s.dst[p] = tagNull
		if binary.LittleEndian.Uint32(s.data[i:]) == 'l'<<24|'l'<<16|'u'<<8|'n' {
			return i + 4, p + 1
		}
	case 'f':
		s.dst[p] = tagFalse
		if binary.LittleEndian.Uint32(s.data[i+1:]) == 'e'<<24|'s'<<16|'l'<<8|'a' {
			return i + 5, p + 1
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		end, isPlain, err := scanNumber(s.data, i)
		if err != nil {
			return -1, p
		}
		n := end - i
		switch {
		case s.decimal && !isPlain:
			p = len(appendDecimal(s.dst[:p], s.data[i:end]))
		case n < shortHead:
			block(s.dst, p, tagNumber|byte(n), s.data, uint32(i))
			p += 1 + n
		default:
			p = len(append(appendHead(s.dst[:p], tagNumber, n), s.data[i:end]...))
		}
		return end, p
	}
	return -1, p
}

// text encodes the string whose content starts at i. A short one of plain ASCII
// is copied while it is scanned.
func (s *stream) text(i, p int) (int, int) {
	from, to := (*[shortHead]byte)(s.data[i:]), (*[1 + shortHead]byte)(s.dst[p:])
	w := binary.LittleEndian.Uint64(from[:])
	binary.LittleEndian.PutUint64(to[1:], w)
	n, m := 0, plainEnd(w)
	if m == 0 {
		w = binary.LittleEndian.Uint64(from[8:])
		binary.LittleEndian.PutUint64(to[9:], w)
		n, m = 8, plainEnd(w)
		if m == 0 {
			w = binary.LittleEndian.Uint64(from[16:])
			binary.LittleEndian.PutUint64(to[17:], w)
			n, m = 16, plainEnd(w)
		}
	}
	n += bits.TrailingZeros64(m) >> 3
	if n < shortHead && from[n] == '"' {
		to[0] = tagString | byte(n)
		return i + n + 1, p + 1 + n
	}
	return s.longText(i, p)
}

// plainEnd marks, in the high bit of its byte, what ends a run of plain ASCII
// content, as special does.
func plainEnd(w uint64) uint64 {
	return ((w - ones*0x20) | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones) | w) & highs
}

// longText is text for any string.
func (s *stream) longText(i, p int) (int, int) {
	s.t.data, s.t.text = s.data[:len(s.data)-streamPadding], s.t.text[:0]
	end, text, err := s.t.scanString(i)
	if err != nil {
		return -1, p
	}
	content := s.data[i:end]
	if text >= 0 {
		content = s.t.text
	}
	return end + 1, len(append(appendHead(s.dst[:p], tagString, len(content)), content...))
}

func (s *stream) array(i, p, depth int) (int, int) {
	head, count := p, 0
	p++
	if i = s.space(i + 1); s.data[i] == ']' {
		s.dst[head] = tagArray
		return i + 1, p
	}
	for {
		if i, p = s.value(i, p, depth); i < 0 {
			return -1, p
		}
		count++
		i = s.space(i)
		switch s.data[i] {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1, s.head(head, p, tagArray, count)
		default:
			return -1, p
		}
	}
}

func (s *stream) object(i, p, depth int) (int, int) {
	head := p
	p++
	if i = s.space(i + 1); s.data[i] == '}' {
		s.dst[head] = tagObject
		return i + 1, p
	}
	base, sorted := len(s.members), true
	var last encoded
	for {
		if s.data[i] != '"' {
			return -1, p
		}
		m := encoded{start: p}
		name := i + 1
		if i, p = s.text(name, p); i < 0 {
			return -1, p
		}
		if n := int(s.dst[m.start] & 31); n < shortHead {
			m.key = keyAt(s.dst, m.start+1, n)
		} else {
			m.key = keyOf(s.name(m.start))
		}
		if sorted && m.key <= last.key && len(s.members) > base {
			sorted = m.key == last.key && bytes.Compare(s.name(last.start), s.name(m.start)) < 0
		}
		s.members = append(s.members, m)
		last = m
		if s.data[i] != ':' {
			if i = s.space(i); s.data[i] != ':' {
				return -1, p
			}
		}
		if i++; s.data[i] == '"' {
			i, p = s.text(i+1, p)
		} else {
			i, p = s.value(s.space(i), p, depth)
		}
		if i < 0 {
			return -1, p
		}
		if s.data[i] <= ' ' {
			i = s.space(i)
		}
		if s.data[i] == ',' {
			if i++; s.data[i] != '"' {
				i = s.space(i)
			}
			continue
		}
		if s.data[i] != '}' {
			return -1, p
		}
		count := len(s.members) - base
		if !sorted && !s.sort(base, p) {
			return -1, p
		}
		s.members = s.members[:base]
		return i + 1, s.head(head, p, tagObject, count)
	}
}

// head writes the head of an array or object whose content is dst[head+1:p] and
// returns its new end.
func (s *stream) head(head, p int, tag byte, count int) int {
	if count < shortHead {
		s.dst[head] = tag | byte(count)
		return p
	}
	var buf [maxHead]byte
	h := appendHead(buf[:0], tag, count)
	copy(s.dst[head+len(h):], s.dst[head+1:p])
	copy(s.dst[head:], h)
	return p + len(h) - 1
}

// name returns the name of the member that starts at start in dst.
func (s *stream) name(start int) []byte {
	switch n := int(s.dst[start] & 31); n {
	case 24:
		return s.dst[start+2:][:s.dst[start+1]]
	case 25:
		return s.dst[start+3:][:binary.BigEndian.Uint16(s.dst[start+1:])]
	case 26:
		return s.dst[start+5:][:binary.BigEndian.Uint32(s.dst[start+1:])]
	default:
		return s.dst[start+1:][:n]
	}
}

// sort puts the members from base on, which fill dst up to p, in the order of
// their names. It reports false if two names are equal.
func (s *stream) sort(base, p int) bool {
	s.members = append(s.members, encoded{start: p})
	behind := s.members[base:]
	members := behind[:len(behind)-1]
	start := members[0].start
	if middle := behind[1].start; len(members) == 2 && p-start <= shortMember && members[1].key < members[0].key {
		first := [shortMember]byte(s.dst[start:])
		second := [shortMember]byte(s.dst[middle:])
		*(*[shortMember]byte)(s.dst[start:]) = second
		*(*[shortMember]byte)(s.dst[start+p-middle:]) = first
		return true
	}
	s.spare = append(s.spare[:0], s.dst[start:p+shortMember]...)
	order, ok := rank(members)
	if !ok {
		return s.sortMany(behind, start)
	}
	at := start
	for _, k := range order[:len(members)] {
		k &= wide - 1
		at += s.move(at, behind[k].start-start, behind[k+1].start-start)
	}
	return true
}

// move copies spare[from:end] to dst[at:] and returns the number of bytes. A short
// member is moved with the bytes behind it: that costs no branch for its length.
func (s *stream) move(at, from, end int) int {
	if end-from > shortMember {
		return copy(s.dst[at:], s.spare[from:end])
	}
	*(*[shortMember]byte)(s.dst[at:]) = [shortMember]byte(s.spare[from:])
	return end - from
}

// rank is Tree.rank for encoded members: order[k] is the place of the member that comes k-th. Up
// to half of its capacity, the number of comparisons is fixed: the processor would have to
// predict the end of a loop.
func rank(members []encoded) (order [wide]uint8, ok bool) {
	const few = wide / 2
	if len(members) > wide {
		return order, false
	}
	var keys [wide]uint64
	for i := range keys[:few] {
		keys[i] = ^uint64(0)
	}
	for i := range members {
		keys[i&(wide-1)] = members[i].key
	}
	seen := uint32(0)
	for i := range members {
		key := members[i].key
		smaller := below(keys[0], key) + below(keys[1], key) + below(keys[2], key) + below(keys[3], key) +
			below(keys[4], key) + below(keys[5], key) + below(keys[6], key) + below(keys[7], key)
		if len(members) > few {
			for _, k := range keys[few:len(members)] {
				smaller += below(k, key)
			}
		}
		order[smaller&(wide-1)] = uint8(i)
		seen |= 1 << smaller
	}
	// Equal keys take the same place and leave another one empty.
	return order, seen == 1<<len(members)-1
}

// below is 1 if a is smaller than b.
func below(a, b uint64) uint64 {
	_, borrow := bits.Sub64(a, b, 0)
	return borrow
}

// sortMany lets the Tree sort: its nodes are the members, its data is dst. The last
// entry of behind is where they end.
func (s *stream) sortMany(behind []encoded, start int) bool {
	t, members := &s.t, behind[:len(behind)-1]
	t.data, t.nodes, t.entries = s.dst, append(t.nodes[:0], node{count: uint32(len(members))}), t.entries[:0]
	t.nodes = slices.Grow(t.nodes, len(members))
	for k, m := range members {
		name := s.name(m.start)
		at := uint32(len(t.nodes))
		t.nodes = append(t.nodes, node{
			start: uint32(m.start), end: uint32(behind[k+1].start),
			name: uint32(m.start + headSize(len(name))), nameLen: uint32(len(name)),
		})
		t.entries = append(t.entries, entry{m.key, at, uint32(k)})
	}
	if t.sortMembers(0) != 0 {
		return false
	}
	at := start
	for _, c := range t.order[t.nodes[0].order:] {
		n := &t.nodes[c]
		at += s.move(at, int(n.start)-start, int(n.end)-start)
	}
	return true
}

// headSize is the length of what appendHead appends.
func headSize(n int) int {
	switch {
	case n < shortHead:
		return 1
	case n <= 0xFF:
		return 2
	case n <= 0xFFFF:
		return 3
	default:
		return 5
	}
}
