package canonicaltree

import (
	"crypto/sha256"
	"slices"
	"sync"
)

// Encoder takes the digest of a value that is put together from values of any
// Trees, without writing its text. Calls come in the order of the value: Begin
// and End around arrays and objects, in objects a Name before each value. Members
// must be named in the order of the bytes of their names, each name once.
//
// It is for one goroutine. [NewEncoder] takes it from a pool.
type Encoder struct {
	numbers  Numbers
	encoding []byte
	open     []level
	named    int // start of the next value's name, -1 without a name
	deep     bool
}

// level is an array or object that is still open.
type level struct {
	start int // of it, or of its name
	head  int // of the byte for its type and length
	count int
}

var encoders = sync.Pool{New: func() any { return new(Encoder) }}

// NewEncoder returns an empty Encoder.
func NewEncoder(numbers Numbers) *Encoder {
	e := encoders.Get().(*Encoder)
	e.Reset(numbers)
	return e
}

// Reset makes e as it was when it was new.
func (e *Encoder) Reset(numbers Numbers) {
	e.numbers, e.encoding, e.open, e.named, e.deep = numbers, e.encoding[:0], e.open[:0], -1, false
}

// Release returns e for reuse. It must not be used afterwards.
func (e *Encoder) Release() {
	if cap(e.encoding) <= pooledBytes {
		encoders.Put(e)
	}
}

// Name names the next member.
func (e *Encoder) Name(name []byte) {
	e.named = len(e.encoding)
	e.encoding = append(appendHead(e.encoding, tagString, len(name)), name...)
}

// Value adds a value with all that is in it. It must exist.
func (e *Encoder) Value(n Node) {
	if n.TooDeep(len(e.open)) {
		e.deep = true
		return
	}
	e.encoding = n.AppendEncoding(e.encoding, e.numbers)
	e.added()
}

// Number adds a number by its literal, which must be one of JSON.
func (e *Encoder) Number(literal []byte) {
	if e.numbers == Decimal {
		e.encoding = appendDecimal(e.encoding, literal)
	} else {
		e.encoding = append(appendHead(e.encoding, tagNumber, len(literal)), literal...)
	}
	e.added()
}

// BeginObject opens an object.
func (e *Encoder) BeginObject() { e.begin(tagObject) }

// BeginArray opens an array.
func (e *Encoder) BeginArray() { e.begin(tagArray) }

// Len returns the number of values in the array or object that was opened last.
func (e *Encoder) Len() int { return e.open[len(e.open)-1].count }

// End closes the array or object that was opened last.
func (e *Encoder) End() {
	l := e.open[len(e.open)-1]
	e.open = e.open[:len(e.open)-1]
	if l.count < shortHead {
		e.encoding[l.head] |= byte(l.count)
	} else {
		var head [maxHead]byte
		e.encoding = slices.Replace(e.encoding, l.head, l.head+1, appendHead(head[:0], e.encoding[l.head], l.count)...)
	}
	e.added()
}

// Discard takes back the array or object that was opened last, with its name
// and all that is in it.
func (e *Encoder) Discard() {
	l := e.open[len(e.open)-1]
	e.open = e.open[:len(e.open)-1]
	e.encoding, e.named = e.encoding[:l.start], -1
}

// Sum returns the digest of the one value that was added. The error is a
// [*LimitError] if the value is nested deeper than [DefaultDepth], as [Parse]
// would find in its text; there is no text, so its offset is 0.
func (e *Encoder) Sum() (Digest, error) {
	if e.deep {
		return Digest{}, &LimitError{Limit: "depth", Max: DefaultDepth}
	}
	return sha256.Sum256(e.encoding), nil
}

func (e *Encoder) begin(tag byte) {
	l := level{start: e.named, head: len(e.encoding)}
	if l.start < 0 {
		l.start = l.head
	}
	e.open = append(e.open, l)
	e.deep = e.deep || len(e.open) > DefaultDepth
	e.encoding = append(e.encoding, tag)
	e.named = -1
}

func (e *Encoder) added() {
	e.named = -1
	if len(e.open) > 0 {
		e.open[len(e.open)-1].count++
	}
}

// TooDeep reports whether n, which exists, exceeds the default limit of depth inside level
// arrays and objects.
func (n Node) TooDeep(level int) bool {
	if level+n.t.depth <= DefaultDepth {
		return false // whatever n is in its tree
	}
	return level+n.depth() > DefaultDepth
}

// depth returns the number of arrays and objects inside one another, n included.
func (n Node) depth() int {
	var ends []uint32 // of those that are open
	deepest := 0
	for c := n.i; c < n.t.nodes[n.i].next; c++ {
		for len(ends) > 0 && c >= ends[len(ends)-1] {
			ends = ends[:len(ends)-1]
		}
		if v := &n.t.nodes[c]; v.kind >= Array {
			ends = append(ends, v.next)
			deepest = max(deepest, len(ends))
		}
	}
	return deepest
}
