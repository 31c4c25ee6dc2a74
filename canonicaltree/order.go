package canonicaltree

import "bytes"

// entry is a member while its object is being sorted.
type entry struct {
	key     uint64 // keyOf the name behind what all names share
	node    uint32
	ordinal uint32 // its place in the document
}

// sortMembers lists the members of the object at index i by name and refuses
// names that occur twice. It takes n log n comparisons; only one per member if
// the object that this Tree sorted at the same place before, usually of the
// document before, had its members in the same order.
func (t *Tree) sortMembers(i uint32) error {
	shared := t.gather(i)
	at := len(t.order)
	n := &t.nodes[i]
	n.order = uint32(at)
	for len(t.ordinals) < at+int(n.count) {
		t.ordinals = append(t.ordinals, 0)
	}
	ordinals := t.ordinals[at : at+int(n.count)]
	if !t.tryOrder(ordinals, shared) {
		t.sortEntries(shared)
	}
	es := t.entries
	for k := range es {
		if k > 0 && es[k-1].key == es[k].key && t.compare(&es[k-1], &es[k], shared) == 0 {
			return t.duplicate(max(es[k-1].node, es[k].node))
		}
		t.order = append(t.order, es[k].node)
		ordinals[k] = es[k].ordinal
	}
	return nil
}

// gather puts the members of the object at index i into t.entries and gives the
// number of bytes that all their names begin with: in wide objects, names often
// differ only late (item_0001), where the key must look.
func (t *Tree) gather(i uint32) (shared int) {
	end := t.nodes[i].next
	if t.nodes[i].count > wide {
		first := t.nameOf(&t.nodes[i+1])
		shared = len(first)
		for c := i + 1; c < end && shared > 0; c = t.nodes[c].next {
			shared = commonPrefix(first[:shared], t.nameOf(&t.nodes[c]))
		}
	}
	es := t.entries[:0]
	for c := i + 1; c < end; c = t.nodes[c].next {
		es = append(es, entry{keyOf(t.nameOf(&t.nodes[c])[shared:]), c, uint32(len(es))})
	}
	t.entries = es
	return shared
}

// tryOrder puts t.entries into the order that the ordinals say, if the names
// ascend strictly that way. Then it is a permutation and the right one, whatever
// the ordinals came from; otherwise nothing changes.
func (t *Tree) tryOrder(ordinals []uint32, shared int) bool {
	es, sorted := t.entries, t.spare[:0]
	for k, o := range ordinals {
		if int(o) >= len(es) {
			return false
		}
		if k > 0 && !t.less(&sorted[k-1], &es[o], shared) {
			return false
		}
		sorted = append(sorted, es[o])
		t.spare = sorted
	}
	t.entries, t.spare = sorted, es
	return true
}

// sortEntries is a merge sort over short runs sorted by insertion: no input
// makes it quadratic, and neighbours that are already in order are not moved.
func (t *Tree) sortEntries(shared int) {
	const run = 12
	es := t.entries
	for from := 0; from < len(es); from += run {
		to := min(from+run, len(es))
		for k := from + 1; k < to; k++ {
			e, j := es[k], k
			for j > from && t.less(&e, &es[j-1], shared) {
				es[j] = es[j-1]
				j--
			}
			es[j] = e
		}
	}
	if len(es) <= run {
		return
	}
	if cap(t.spare) < len(es) {
		t.spare = make([]entry, len(es))
	}
	to := t.spare[:len(es)]
	for size := run; size < len(es); size *= 2 {
		for from := 0; from < len(es); from += 2 * size {
			mid, end := min(from+size, len(es)), min(from+2*size, len(es))
			t.merge(to[from:end], es[from:mid], es[mid:end], shared)
		}
		es, to = to, es
	}
	t.entries, t.spare = es, to
}

// merge puts the ordered a and b into to, which is as long as both.
func (t *Tree) merge(to, a, b []entry, shared int) {
	if len(b) == 0 || t.less(&a[len(a)-1], &b[0], shared) {
		copy(to[copy(to, a):], b)
		return
	}
	for len(a) > 0 && len(b) > 0 {
		if t.less(&b[0], &a[0], shared) {
			to[0], b = b[0], b[1:]
		} else {
			to[0], a = a[0], a[1:]
		}
		to = to[1:]
	}
	copy(to[copy(to, a):], b)
}

func (t *Tree) less(a, b *entry, shared int) bool {
	t.compared++
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
// before. The index does not keep where an escaped name stands, so this looks
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
