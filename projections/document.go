package projections

import (
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections/merge"
)

// Document is the merged document of an entity, as the projections of an Index read it:
// through the layers of its source documents, at each place once. Only objects of several
// sources that a projection shows as a whole are put together. It is for one goroutine.
type Document struct {
	index *Index
	round uint32
	found []found // by place
	trees canonicaltree.Batch
	err   error // of a value that could not be put together
}

// found is the value at a place.
type found struct {
	round  uint32 // in which it was looked up
	value  canonicaltree.Node
	layers merge.Layers // of an object of several sources, or above a mount; else empty
}

// place is the value that a step leads to from the place above.
type place struct {
	above int32
	step  step
}

// Reset makes d the document of layers, of which there is one at least, for the projections
// of x. They must not be released while it is in use. [Plan.Layers] checked them.
//
// [Plan.Layers]: merge.Plan.Layers
func (d *Document) Reset(x *Index, layers merge.Layers) {
	d.trees.Release()
	d.index, d.err = x, nil
	if len(d.found) < len(x.places) {
		d.found = make([]found, len(x.places))
	}
	if d.round++; d.round == 0 {
		clear(d.found)
		d.round = 1
	}
	root := &d.found[0]
	root.round = d.round
	root.set(append(root.layers[:0], layers...))
}

// Sum is [Projection.Sum] for a projection of the index, by its place in the list given to
// NewIndex.
func (d *Document) Sum(projection int) (sum canonicaltree.Digest, match bool, err error) {
	return d.index.projections[projection].sum(d.of(projection))
}

// Project is [Projection.Project] for a projection of the index.
func (d *Document) Project(dst []byte, projection int) (out []byte, match bool, err error) {
	return d.index.projections[projection].project(dst, d.of(projection), false)
}

func (d *Document) of(projection int) source {
	return source{doc: d, places: d.index.paths[projection]}
}

// at returns the value at a place, or its layers.
func (d *Document) at(p int32) *found {
	f := &d.found[p]
	if f.round == d.round {
		return f
	}
	at := &d.index.places[p]
	above := d.at(at.above)
	f.round, f.value, f.layers = d.round, canonicaltree.Node{}, f.layers[:0]
	if len(above.layers) == 0 {
		f.value = at.step.from(above.value)
	} else if !at.step.element() {
		f.set(above.layers.Member(f.layers, at.step.name))
	}
	return f
}

func (f *found) set(layers merge.Layers) {
	f.value, f.layers = canonicaltree.Node{}, layers
	if len(layers) == 0 {
		return
	}
	if v, alone := layers.Value(); alone {
		f.value, f.layers = v, layers[:0]
	}
}

// value returns the value at a place, and puts it together if it has to.
func (d *Document) value(p int32) canonicaltree.Node {
	f := d.at(p)
	if len(f.layers) > 0 && !f.value.Exists() {
		v, err := f.layers.Compose(&d.trees)
		if err != nil {
			d.err = err
		}
		f.value = v
	}
	return f.value
}

// source is the document that a projection is evaluated of: a value, or a Document with the
// places of the projection's paths.
type source struct {
	root   canonicaltree.Node
	doc    *Document
	places []int32
}

// read returns the value at the path of the number, which has these steps.
func (s source) read(number int, steps []step) canonicaltree.Node {
	if s.doc != nil {
		return s.doc.value(s.places[number])
	}
	v := s.root
	for i := range steps {
		v = steps[i].from(v)
	}
	return v
}

// scalar is read, but absent for an object of several sources.
func (s source) scalar(number int, steps []step) canonicaltree.Node {
	if s.doc != nil {
		return s.doc.at(s.places[number]).value
	}
	return s.read(number, steps)
}

// failed returns the error of a value that could not be put together.
func (s source) failed() error {
	if s.doc == nil {
		return nil
	}
	return s.doc.err
}
