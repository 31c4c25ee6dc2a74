package projections

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Project appends the output for doc to dst, as one JSON object, if the filter
// matches it. Otherwise, and on an error, it appends nothing. The output depends
// on doc's structure and literals only, not on its spelling or the order of its
// members, except that values are copied as they are written. The error is a
// *[FilterError] or a *[ValueError]. It may be called from any number of
// goroutines.
func (p *Projection) Project(dst []byte, doc canonicaltree.Node) (out []byte, match bool, err error) {
	return p.project(dst, source{root: doc}, false)
}

// project is Project; compared leaves out carried fields.
func (p *Projection) project(dst []byte, doc source, compared bool) (out []byte, match bool, err error) {
	match, err = p.matches(doc)
	if match {
		w := writer{out: dst, omitEmpty: p.spec.OmitEmpty, compared: compared}
		w.left, w.doc = maxSteps, doc
		w.object(p.outputs, doc)
		w.release()
		out = w.out
		if w.err != nil {
			w.err.Customer, w.err.Name = p.spec.Customer, p.spec.Name
			err = w.err
		} else if len(p.spec.Carry) > 0 && !compared {
			err = p.check(out[len(dst):])
		}
	}
	if failed := doc.failed(); failed != nil {
		err = &OutputError{p.spec.Customer, p.spec.Name, failed}
	}
	if err != nil || !match {
		return dst, false, err
	}
	return out, true, nil
}

// check checks the limits of an output with carried fields, which Sum does not see.
func (p *Projection) check(out []byte) error {
	tree, err := canonicaltree.Parse(out)
	if err != nil {
		return &OutputError{p.spec.Customer, p.spec.Name, err}
	}
	tree.Release()
	return nil
}

// matches evaluates the filter.
func (p *Projection) matches(doc source) (bool, error) {
	if p.filter == nil {
		return true, nil
	}
	match, err := p.filter.match(doc)
	if err != nil {
		err.Customer, err.Name = p.spec.Customer, p.spec.Name
		return false, err
	}
	return match, nil
}

// writer appends one output.
type writer struct {
	reader
	out       []byte
	omitEmpty bool
	compared  bool // without carried fields
}

// reader reads values along paths, and computes them.
type reader struct {
	budget
	doc   source                // the document, also inside each
	text  []byte                // canonical text for gjson
	trees []*canonicaltree.Tree // of what gjson gave
	err   *ValueError
}

func (r *reader) release() {
	r.doc = source{}
	for _, tree := range r.trees {
		tree.Release()
	}
	r.trees = r.trees[:0]
}

// object appends an object of the outputs and reports whether it has members.
func (w *writer) object(outputs []*output, doc source) (any bool) {
	w.out = append(w.out, '{')
	for _, o := range outputs {
		if w.compared && o.field != nil && o.field.carried {
			continue
		}
		before := len(w.out)
		if any {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, o.key...)
		var written bool
		if o.field == nil {
			written = w.object(o.group, doc)
		} else {
			written = w.field(o.field, doc)
		}
		if w.err != nil {
			return false
		}
		if !written {
			w.out = w.out[:before]
		}
		any = any || written
	}
	w.out = append(w.out, '}')
	return any
}

// field appends the field's value and reports whether it has one to show.
func (w *writer) field(f *field, doc source) bool {
	v, mapped := w.value(f, doc)
	if !v.Exists() || w.omitEmpty && empty(v) || w.err != nil {
		return false
	}
	if !mapped {
		w.out = append(w.out, v.Raw()...)
		return true
	}
	w.out = append(w.out, '[')
	for i, element := range v.Elements() {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.object(f.each, source{root: element})
		if w.err != nil {
			return false
		}
	}
	w.out = append(w.out, ']')
	return true
}

// value returns the value of the field, before omitEmpty, and whether it is an array
// whose elements are to be projected.
func (r *reader) value(f *field, doc source) (v canonicaltree.Node, mapped bool) {
	if v = f.constant; !v.Exists() {
		if f.expr != nil {
			v = r.compute(f, doc.root)
		} else {
			v = r.read(f, doc)
		}
	}
	mapped = f.each != nil && v.Kind() == canonicaltree.Array
	if f.each != nil && !mapped {
		v = canonicaltree.Node{}
	}
	if f.fallback.Exists() && (!v.Exists() || v.Kind() == canonicaltree.Null) {
		return f.fallback, false
	}
	return v, mapped
}

// empty reports whether v is null, "", [] or {}.
func empty(v canonicaltree.Node) bool {
	switch v.Kind() {
	case canonicaltree.Null:
		return true
	case canonicaltree.Array, canonicaltree.Object:
		return v.Len() == 0
	case canonicaltree.String:
		return len(v.Raw()) == len(`""`)
	}
	return false
}

// read returns the value of the field's path in doc, which may be a value of a
// tree of its own.
func (r *reader) read(f *field, doc source) canonicaltree.Node {
	v, hashed := f.path.in(doc)
	if len(f.path.rest) == 0 {
		if hashed < 0 {
			return v
		}
		text := appendHashed(nil, v, f.path.steps[hashed:])
		return r.parse(f, text)
	}
	if !v.Exists() {
		return v
	}
	// Wildcards, queries and modifiers see the members in the order of the text.
	// Two documents that are equal must not differ here, so they see one order.
	r.text = v.AppendCanonical(r.text[:0])
	text := r.text
	for _, piece := range f.path.rest {
		// gjson itself looks for brackets in a string, and hands a modifier an empty
		// text for an absent value.
		if !makes(piece) && text[0] != '{' && text[0] != '[' {
			return canonicaltree.Node{}
		}
		if err := r.query(piece, len(text)); err != nil {
			r.err = &ValueError{Out: f.out, Err: err}
			return canonicaltree.Node{}
		}
		result := gjson.GetBytes(text, piece)
		if !result.Exists() || result.Raw == "" {
			return canonicaltree.Node{}
		}
		text = []byte(result.Raw)
	}
	return r.parse(f, text)
}

// compute returns the value of the field's expression, or absent for null, and if an error is
// replaced by the default. An exceeded budget has no default: which field exceeds it depends on
// their order.
func (r *reader) compute(f *field, item canonicaltree.Node) canonicaltree.Node {
	v, failed := f.expr.evaluate(&r.budget, r.doc, item)
	if failed == nil && v == nil {
		return canonicaltree.Node{}
	}
	var text []byte
	if failed == nil {
		var err error
		if text, err = appendValue(nil, v); err != nil {
			failed = &expressionError{1, 1, err.Error()}
		} else if r.spend(len(text)/bytesWritten) == nil {
			tree, err := canonicaltree.Parse(text)
			if err == nil {
				r.trees = append(r.trees, tree)
				return tree.Root()
			}
			failed = &expressionError{1, 1, "returns what is not JSON: " + err.Error()}
		}
	}
	switch {
	case r.left < 0:
		r.err = &ValueError{Out: f.out, Err: &expressionError{1, 1, errSteps.Error()}}
	case !f.fallback.Exists():
		r.err = &ValueError{Out: f.out, Err: failed}
	}
	return canonicaltree.Node{}
}

func (r *reader) parse(f *field, text []byte) canonicaltree.Node {
	tree, err := canonicaltree.Parse(text)
	if err != nil {
		r.err = &ValueError{Out: f.out, Err: err}
		return canonicaltree.Node{}
	}
	r.trees = append(r.trees, tree)
	return tree.Root()
}

// follow goes along steps. At a hash on an array it stops and returns its place,
// otherwise -1.
func follow(v canonicaltree.Node, steps []step) (_ canonicaltree.Node, hashed int) {
	for i := range steps {
		if steps[i].hash && v.Kind() == canonicaltree.Array {
			return v, i
		}
		v = steps[i].from(v)
	}
	return v, -1
}

// appendHashed appends gjson's result for steps that begin with a hash, on an array: the number
// of elements, or an array of the further steps' results for each element, without those that
// have none.
func appendHashed(dst []byte, array canonicaltree.Node, steps []step) []byte {
	if len(steps) == 1 {
		return strconv.AppendInt(dst, int64(array.Len()), 10)
	}
	dst = append(dst, '[')
	start := len(dst)
	for _, element := range array.Elements() {
		before := len(dst)
		if before > start {
			dst = append(dst, ',')
		}
		v, hashed := follow(element, steps[1:])
		switch {
		case hashed >= 0:
			dst = appendHashed(dst, v, steps[1+hashed:])
		case v.Exists():
			dst = append(dst, v.Raw()...)
		default:
			dst = dst[:before]
		}
	}
	return append(dst, ']')
}
