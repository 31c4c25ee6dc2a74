package canonicaltree

import (
	"bytes"
	"math/bits"
	"slices"
)

// entry is a member of an object that is still open or being sorted.
type entry struct {
	key     uint64 // the first bytes of the name, see keyAt
	node    uint32
	ordinal uint32 // its place in the document
}

// sortMembers lists the members of the object at index i, the last entries, by name. It returns
// the later node of two with the same name, otherwise 0. It takes n log n steps. A wide object
// takes one step per member if the previous document of this Tree had its members in the same
// order at the same place.
func (t *Tree) sortMembers(i uint32) (twice uint32) {
	n := &t.nodes[i]
	n.order = uint32(len(t.order))
	es := t.entries[len(t.entries)-int(n.count):]
	t.order = slices.Grow(t.order, len(es))
	if len(es) <= wide && t.rank(es) {
		return 0
	}

	shared := t.narrow(es)
	for len(t.ordinals) < int(n.order+n.count) {
		t.ordinals = append(t.ordinals, 0)
	}
	ordinals := t.ordinals[n.order : n.order+n.count]
	if len(t.spare) < len(es) {
		t.spare = make([]entry, 2*len(es))
	}
	if !t.tryOrder(es, ordinals, shared) {
		if len(es) >= 64 {
			t.radixSort(es, shared)
		} else {
			t.mergeSort(es, shared)
		}
	}
	for k := range es {
		if k > 0 && es[k-1].key == es[k].key && t.compare(&es[k-1], &es[k], shared) == 0 {
			return max(es[k-1].node, es[k].node)
		}
		t.order = append(t.order, es[k].node)
		ordinals[k] = es[k].ordinal
	}
	return 0
}

// rank lists few members by counting, for each, those with a smaller key: more
// comparisons than sorting takes, but none that the processor has to guess. It
// fails if two keys are equal.
func (t *Tree) rank(es []entry) bool {
	var keys [wide]uint64
	for i := range es {
		keys[i&(wide-1)] = es[i].key
	}
	var ranks [wide]uint8
	for i := range es {
		key := es[i].key
		smaller := 0
		for _, k := range keys[:len(es)] {
			_, borrow := bits.Sub64(k, key, 0)
			smaller += int(borrow)
		}
		ranks[i&(wide-1)] = uint8(smaller)
	}
	t.steps += len(es) * len(es) / 2

	at := len(t.order)
	t.order = append(t.order, make([]uint32, len(es))...)
	order := t.order[at:]
	for i := range es {
		order[ranks[i&(wide-1)]] = es[i].node
	}
	// Equal keys take the same place and leave another one empty.
	if slices.Contains(order, 0) {
		t.order = t.order[:at]
		return false
	}
	return true
}

// narrow makes the keys of wide objects begin after the prefix that all names share, and returns
// its length in bytes: names often differ only late (item_0001).
func (t *Tree) narrow(es []entry) (shared int) {
	if len(es) <= wide || bits.LeadingZeros64(differing(es)) < 32 {
		return 0
	}
	first := t.nameOf(&t.nodes[es[0].node])
	shared = len(first)
	for k := range es {
		shared = commonPrefix(first[:shared], t.nameOf(&t.nodes[es[k].node]))
	}
	for k := range es {
		es[k].key = keyOf(t.nameOf(&t.nodes[es[k].node])[shared:])
	}
	return shared
}

// differing has the bits set in which not all keys are alike.
func differing(es []entry) (mask uint64) {
	for k := range es {
		mask |= es[k].key ^ es[0].key
	}
	return mask
}

// tryOrder puts es into the order that the ordinals say, if the names ascend
// strictly that way. Then it is a permutation and the right one, for any source of
// the ordinals; otherwise nothing changes.
func (t *Tree) tryOrder(es []entry, ordinals []uint32, shared int) bool {
	sorted := t.spare[:len(es)]
	for k, o := range ordinals {
		if int(o) >= len(es) {
			return false
		}
		if k > 0 && !t.less(&sorted[k-1], &es[o], shared) {
			return false
		}
		sorted[k] = es[o]
	}
	copy(es, sorted)
	return true
}

// radixSort sorts by the bytes in which the keys differ, the last one first,
// and then those by their full names whose keys are equal.
func (t *Tree) radixSort(es []entry, shared int) {
	from, to := es, t.spare[:len(es)]
	mask := differing(es)
	for shift := 0; shift < 64; shift += 8 {
		if mask>>shift&0xFF == 0 {
			continue
		}
		var starts [256]uint32
		for k := range from {
			starts[from[k].key>>shift&0xFF]++
		}
		sum := uint32(0)
		for b, count := range starts {
			starts[b] = sum
			sum += count
		}
		for k := range from {
			at := &starts[from[k].key>>shift&0xFF]
			to[*at] = from[k]
			*at++
		}
		from, to = to, from
		t.steps += len(es)
	}
	if &from[0] != &es[0] {
		copy(es, from)
	}
	for i := 0; i < len(es); {
		j := i + 1
		for j < len(es) && es[j].key == es[i].key {
			j++
		}
		if j-i > 1 {
			t.mergeSort(es[i:j], shared)
		}
		i = j
	}
}

// mergeSort merges short runs that were sorted by insertion: no input makes it
// quadratic, and neighbours that are in order already are not merged.
func (t *Tree) mergeSort(es []entry, shared int) {
	const run = 12
	for from := 0; from < len(es); from += run {
		for k := from + 1; k < min(from+run, len(es)); k++ {
			e, j := es[k], k
			for j > from && t.less(&e, &es[j-1], shared) {
				es[j] = es[j-1]
				j--
			}
			es[j] = e
		}
	}
	for size := run; size < len(es); size *= 2 {
		for from := 0; from+size < len(es); from += 2 * size {
			t.merge(es[from:min(from+2*size, len(es))], size, shared)
		}
	}
}

// merge merges es[:mid] and es[mid:], each in order.
func (t *Tree) merge(es []entry, mid, shared int) {
	if t.less(&es[mid-1], &es[mid], shared) {
		return
	}
	a, b := t.spare[:copy(t.spare, es[:mid])], es[mid:]
	for k := range es {
		switch {
		case len(a) == 0:
			return // the rest of b is where it belongs
		case len(b) > 0 && t.less(&b[0], &a[0], shared):
			es[k], b = b[0], b[1:]
		default:
			es[k], a = a[0], a[1:]
		}
	}
}

func (t *Tree) less(a, b *entry, shared int) bool {
	t.steps++
	if a.key != b.key {
		return a.key < b.key
	}
	return t.compare(a, b, shared) < 0
}

// compare compares the names behind their shared part in full.
func (t *Tree) compare(a, b *entry, shared int) int {
	return bytes.Compare(t.nameOf(&t.nodes[a.node])[shared:], t.nameOf(&t.nodes[b.node])[shared:])
}

// duplicate is the error of the member at index i having a name that occurred
// before. The index does not keep the offset of an escaped name, so this looks
// backwards from the value for the quote that opens it: the first one that an
// even number of backslashes precedes, none counting as even.
func (t *Tree) duplicate(i uint32) error {
	at := bytes.LastIndexByte(t.data[:t.nodes[i].start], ':')
	at = bytes.LastIndexByte(t.data[:at], '"')
	for {
		at = bytes.LastIndexByte(t.data[:at], '"')
		before := at
		for t.data[before-1] == '\\' {
			before--
		}
		if (at-before)%2 == 0 {
			return &SyntaxError{int64(at), "member name occurs twice"}
		}
	}
}
