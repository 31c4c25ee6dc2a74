package projections

import (
	"iter"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Elements means, in a read-set, each element of an array. It also matches a member of that
// name.
const Elements = "#"

// ReadSet returns the paths that the fields and the filter read, none of them below another, in
// order. A difference between two documents at a path that is neither one of them, nor above, nor
// below one changes neither the output nor whether the filter matches. The empty path means that
// everything is read. An empty set means that nothing is read.
func (p *Projection) ReadSet() []canonicaltree.Path {
	var all []canonicaltree.Path
	for _, r := range p.reads {
		all = append(all, r.path)
	}
	slices.SortFunc(all, func(a, b canonicaltree.Path) int { return slices.Compare(a, b) })
	var reads []canonicaltree.Path
	for _, path := range all {
		if n := len(reads); n > 0 && len(reads[n-1]) <= len(path) && slices.Equal(reads[n-1], path[:len(reads[n-1])]) {
			continue
		}
		reads = append(reads, path)
	}
	return reads
}

// Reads yields which field reads which path: the output path of a field, or "when", with the
// fixed part of the path. Carried fields are the last ones. Their paths are not in the read-set.
func (p *Projection) Reads() iter.Seq2[string, canonicaltree.Path] {
	return func(yield func(string, canonicaltree.Path) bool) {
		for _, list := range [][]read{p.reads, p.carries} {
			for _, r := range list {
				if !yield(r.what, r.path) {
					return
				}
			}
		}
	}
}

// read is a path that a field or the filter reads.
type read struct {
	what string
	path canonicaltree.Path
}

// reads are the paths that fields read, compared and carried ones apart.
type reads struct{ compared, carried []read }

// of adds the paths read by fields whose paths are below base. A nil base is unknown, and read as
// a whole. A field that maps an array reads what its own fields read of the elements, so also
// whether there is an element.
func (r *reads) of(outputs []*output, above string, base canonicaltree.Path) {
	for _, o := range outputs {
		f := o.field
		if f == nil {
			r.of(o.group, above, base)
			continue
		}
		if f.expr != nil {
			for i := range f.expr.slots {
				switch s := &f.expr.slots[i]; {
				case !s.item:
					r.add(f, above, prefix(s.steps))
				case base != nil:
					r.add(f, above, append(base[:len(base):len(base)], prefix(s.steps)...))
				}
			}
			r.of(f.each, above+f.out+".", nil)
			continue
		}
		if f.constant.Exists() {
			continue
		}
		var path canonicaltree.Path
		if base != nil {
			path = append(base[:len(base):len(base)], prefix(f.path.steps)...)
		}
		if f.each == nil {
			r.add(f, above, path)
			continue
		}
		var inner canonicaltree.Path
		if path != nil && !f.path.hashed() && len(f.path.rest) == 0 {
			inner = append(path[:len(path):len(path)], Elements)
		}
		compared, carried := len(r.compared), len(r.carried)
		r.of(f.each, above+f.out+".", inner)
		of := func(r read) bool { return len(r.path) >= len(inner) && slices.Equal(r.path[:len(inner)], inner) }
		if inner == nil {
			r.add(f, above, path)
		} else if !slices.ContainsFunc(r.compared[compared:], of) && !slices.ContainsFunc(r.carried[carried:], of) {
			r.add(f, above, inner)
		}
	}
}

func (r *reads) add(f *field, above string, path canonicaltree.Path) {
	list := &r.compared
	if f.carried {
		list = &r.carried
	}
	if path != nil {
		*list = append(*list, read{above + f.out, path})
	}
}

// prefix returns the path that steps certainly stay below.
func prefix(steps []step) canonicaltree.Path {
	path := canonicaltree.Path{}
	for _, s := range steps {
		path = append(path, s.key())
	}
	return path
}

// Index finds the projections that a change can concern, by their read-sets and by the
// values that their filters require, and has the places that they read of a [Document]. It is
// immutable: any number of goroutines may use it.
type Index struct {
	root        indexNode
	all         readers
	projections []*Projection
	places      []place   // the first one is the document
	paths       [][]int32 // by projection: the places of its paths
}

type indexNode struct {
	next map[string]*indexNode
	here readers // that read exactly this path
	// below are the projections that read this path or one below it.
	below readers
}

// NewIndex makes an index of ps, by their index. Nil ones are left out.
func NewIndex(ps []*Projection) *Index {
	x := &Index{projections: ps, places: make([]place, 1), paths: make([][]int32, len(ps))}
	known := map[place]int32{}
	for i, p := range ps {
		if p == nil {
			continue
		}
		for _, steps := range p.paths {
			x.paths[i] = append(x.paths[i], x.placeOf(known, steps))
		}
		x.all.add(i, p, x.paths[i])
		for _, path := range p.ReadSet() {
			n := &x.root
			n.below.add(i, p, x.paths[i])
			for _, name := range path {
				child := n.next[name]
				if child == nil {
					child = &indexNode{}
					if n.next == nil {
						n.next = make(map[string]*indexNode)
					}
					n.next[name] = child
				}
				n = child
				n.below.add(i, p, x.paths[i])
			}
			n.here.add(i, p, x.paths[i])
		}
	}
	return x
}

// placeOf returns the place that steps lead to, one for all projections.
func (x *Index) placeOf(known map[place]int32, steps []step) (at int32) {
	for _, s := range steps {
		next := place{at, s}
		n, ok := known[next]
		if !ok {
			n = int32(len(x.places))
			known[next] = n
			x.places = append(x.places, next)
		}
		at = n
	}
	return at
}

// Set is a set of projections, named by their place in the list given to
// NewIndex. The zero value is empty. It is for one goroutine at a time.
type Set struct {
	marks  []uint32 // round, where the projection was added in this one
	round  uint32
	list   []int
	visits int // projections looked at since it was made, for the growth tests
}

// Clear empties the set in constant time.
func (s *Set) Clear() {
	s.list = s.list[:0]
	if s.round++; s.round == 0 {
		clear(s.marks)
		s.round = 1
	}
}

// Add adds projection i.
func (s *Set) Add(i int) {
	s.visits++
	for i >= len(s.marks) {
		s.marks = append(s.marks, 0)
	}
	if s.round == 0 {
		s.round = 1
	}
	if s.marks[i] != s.round {
		s.marks[i] = s.round
		s.list = append(s.list, i)
	}
}

// Has reports whether projection i is in the set.
func (s *Set) Has(i int) bool { return i < len(s.marks) && s.round > 0 && s.marks[i] == s.round }

// List returns the projections in the set, in no certain order, until it changes.
func (s *Set) List() []int { return s.list }

// TouchedBy adds to set the projections that may show a difference of two documents at path:
// that read it, a path above or below it, and whose filter may match one of them, see
// requirement. Both must exist: a document that appears or disappears concerns also
// projections that read nothing. The others are not looked at: the work grows with the
// differences and the number of projections touched, not with their number in all.
func (x *Index) TouchedBy(path canonicaltree.Path, before, after *Document, set *Set) {
	x.root.touch(path, before, after, set)
}

// Matching adds to set the projections whose filter may match doc. The others are not
// looked at.
func (x *Index) Matching(doc *Document, set *Set) { set.addReaders(&x.all, doc, nil) }

func (n *indexNode) touch(path canonicaltree.Path, before, after *Document, set *Set) {
	if len(path) == 0 {
		set.addReaders(&n.below, before, after)
		return
	}
	set.addReaders(&n.here, before, after)
	if next := n.next[path[0]]; next != nil {
		next.touch(path[1:], before, after, set)
	}
	if next := n.next[Elements]; next != nil && path[0] != Elements {
		next.touch(path[1:], before, after, set)
	}
}

// addReaders adds those whose filter may match a, or b if it is given.
func (s *Set) addReaders(r *readers, a, b *Document) {
	s.addAll(r.any)
	for _, of := range r.of {
		s.addAll(of.meeting(a))
		if b != nil {
			s.addAll(of.meeting(b))
		}
	}
}

func (s *Set) addAll(list []int) {
	for _, i := range list {
		s.Add(i)
	}
}
