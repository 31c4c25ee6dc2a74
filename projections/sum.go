package projections

import (
	"strconv"
	"sync"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Sum returns the digest of what [Projection.Project] returns for doc, without writing it:
// canonicaltree.Sum of that text under [Projection.Numbers]. The values are hashed in doc's tree.
// It does not allocate once it is warm, unless the filter does or a path needs gjson. Errors are
// those of Project, and a *[canonicaltree.LimitError] if the output is nested too deep. It may be
// called from any number of goroutines.
func (p *Projection) Sum(doc canonicaltree.Node) (d canonicaltree.Digest, match bool, err error) {
	return p.sum(source{root: doc})
}

func (p *Projection) sum(doc source) (d canonicaltree.Digest, match bool, err error) {
	if match, err := p.matches(doc); !match && doc.failed() == nil {
		return canonicaltree.Digest{}, false, err
	}
	if p.same {
		return p.normalised(doc)
	}
	s := summers.Get().(*summer)
	s.Encoder = canonicaltree.NewEncoder(p.spec.Numbers)
	s.omitEmpty, s.left, s.doc = p.spec.OmitEmpty, maxSteps, doc
	s.object(p.sorted, doc)
	s.release()
	d, err = s.Encoder.Sum()
	ok := err == nil && s.err == nil && doc.failed() == nil
	s.Encoder.Release()
	s.Encoder, s.err = nil, nil
	summers.Put(s)
	if ok {
		return d, true, nil
	}
	// The error is the first one of the text, in the order of its fields.
	text, match, err := p.project(nil, doc, true)
	if err != nil || !match {
		return canonicaltree.Digest{}, match, err
	}
	if d, err = canonicaltree.Sum(text, p.spec.Numbers); err != nil {
		return canonicaltree.Digest{}, false, &OutputError{p.spec.Customer, p.spec.Name, err}
	}
	return d, true, nil
}

var summers = sync.Pool{New: func() any { return new(summer) }}

// summer is a writer that encodes.
type summer struct {
	reader
	*canonicaltree.Encoder
	omitEmpty bool
	number    []byte
}

// object adds an object of the outputs.
func (s *summer) object(outputs []*output, doc source) {
	s.BeginObject()
	s.members(outputs, doc)
	s.End()
}

func (s *summer) members(outputs []*output, doc source) {
	for _, o := range outputs {
		if o.field != nil {
			s.field(o, doc)
			continue
		}
		s.Name(o.bytes)
		s.BeginObject()
		s.members(o.sorted, doc)
		if s.Len() == 0 {
			s.Discard()
		} else {
			s.End()
		}
	}
}

// field adds the field's value if it has one to show.
func (s *summer) field(o *output, doc source) {
	f := o.field
	if f.each == nil && f.path.hashed() {
		v, hashed := f.path.in(doc)
		if hashed >= 0 {
			s.hashed(o, v, f.path.steps[hashed:])
			return
		}
	}
	v, mapped := s.value(f, doc)
	if !v.Exists() || s.omitEmpty && empty(v) || s.err != nil {
		return
	}
	s.Name(o.bytes)
	if !mapped {
		s.Value(v)
		return
	}
	s.BeginArray()
	for element := range v.Children() {
		s.object(f.sorted, source{root: element})
	}
	s.End()
}

// hashed adds the result of appendHashed. It is never null, so it needs no default.
func (s *summer) hashed(o *output, array canonicaltree.Node, steps []step) {
	s.Name(o.bytes)
	if len(steps) == 1 {
		s.count(array)
		return
	}
	s.BeginArray()
	s.elements(array, steps)
	if s.omitEmpty && s.Len() == 0 {
		s.Discard()
	} else {
		s.End()
	}
}

func (s *summer) count(array canonicaltree.Node) {
	s.number = strconv.AppendInt(s.number[:0], int64(array.Len()), 10)
	s.Number(s.number)
}

func (s *summer) elements(array canonicaltree.Node, steps []step) {
	for element := range array.Children() {
		v, hashed := follow(element, steps[1:])
		switch {
		case hashed < 0 && v.Exists():
			s.Value(v)
		case hashed < 0:
		case 1+hashed == len(steps)-1:
			s.count(v)
		default:
			s.BeginArray()
			s.elements(v, steps[1+hashed:])
			s.End()
		}
	}
}
