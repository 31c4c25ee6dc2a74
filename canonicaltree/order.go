package canonicaltree

import "bytes"

// entry is a member while its object is being sorted.
type entry struct {
	key     uint64 // the bytes of the name behind what all names share
	node    uint32
	ordinal uint32 // its place in the document
}

// sortMembers lists the members of the object at index i by name, and refuses
// names that occur twice. It takes n log n comparisons; one per member if the
// object that this Tree sorted last at this place had its members in the same
// order.
func (t *Tree) sortMembers(i uint32) error {
	n := &t.nodes[i]
	n.order = uint32(len(t.order))
	shared := t.gather(i)
	if !t.tryLastOrder(len(t.order), shared) {
		t.sortEntries(shared)
	}
	es := t.entries
	for k := 1; k < len(es); k++ {
		if !t.less(&es[k-1], &es[k], shared) {
			return t.duplicate(es[k-1].node, es[k].node)
		}
	}
	for len(t.ordinals) < len(t.order) {
		t.ordinals = append(t.ordinals, 0)
	}
	t.ordinals = t.ordinals[:len(t.order)]
	for k := range es {
		t.order = append(t.order, es[k].node)
		t.ordinals = append(t.ordinals, es[k].ordinal)
	}
	return nil
}
