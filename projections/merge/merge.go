package merge

import (
	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Layer is a value of one source at some place. With a mount it is an object of
// one member, which leads to the value.
type Layer struct {
	source string
	mount  canonicaltree.Path
	value  canonicaltree.Node
}

func (l *Layer) isObject() bool {
	return len(l.mount) > 0 || l.value.Kind() == canonicaltree.Object
}

// get returns the layer one member down.
func (l *Layer) get(name string) (Layer, bool) {
	if len(l.mount) > 0 {
		return Layer{l.source, l.mount[1:], l.value}, l.mount[0] == name
	}
	v := l.value.Get(name)
	return Layer{l.source, nil, v}, v.Exists()
}

// Layers are the values that sources have at one place, by precedence. The first one decides
// the kind of the merged value.
type Layers []Layer

// Layers appends docs to dst, by precedence. docs maps sources to their documents; absent
// values are no documents, and sources that the plan does not know are left out. complete
// says whether every required source has a document. The error is a
// *[canonicaltree.LimitError]: mounts make the merged document deeper than the default limit.
func (p *Plan) Layers(dst Layers, docs map[string]canonicaltree.Node) (ls Layers, complete bool, err error) {
	complete, deep := true, false
	for _, source := range p.required {
		complete = complete && docs[source].Exists()
	}
	for i := range p.order {
		s := &p.order[i]
		if doc := docs[s.Name]; doc.Exists() {
			dst = append(dst, Layer{s.Name, s.Mount, doc})
			deep = deep || len(s.Mount) > 0 && doc.TooDeep(len(s.Mount))
		}
	}
	if deep { // unless a source of higher precedence hides it
		if _, err := dst.Compose(nil); err != nil {
			return dst, false, err
		}
	}
	return dst, complete, nil
}

// Compose merges docs into one document, see [Plan.Layers] and [Layers.Compose]. It is absent if
// no source has a document.
func (p *Plan) Compose(trees *canonicaltree.Batch, docs map[string]canonicaltree.Node) (doc canonicaltree.Node, complete bool, err error) {
	ls, complete, err := p.Layers(nil, docs)
	if err == nil && len(ls) > 0 {
		doc, err = ls.Compose(trees)
	}
	return doc, complete && err == nil, err
}

// Value returns the merged value if the first source alone decides it. It returns false where
// several objects are merged, or below a mount.
func (ls Layers) Value() (canonicaltree.Node, bool) {
	first := &ls[0]
	if len(first.mount) > 0 {
		return canonicaltree.Node{}, false
	}
	if first.isObject() {
		for i := range ls[1:] {
			if ls[1+i].isObject() {
				return canonicaltree.Node{}, false
			}
		}
	}
	return first.value, true
}

// Member appends to dst the layers one member down. The first one of ls must be an object.
func (ls Layers) Member(dst Layers, name string) Layers {
	for i := range ls {
		if l := &ls[i]; l.isObject() {
			if below, has := l.get(name); has {
				dst = append(dst, below)
			}
		}
	}
	return dst
}

// Compose returns the merged value of layers, at least one. Nothing is parsed: it is a value
// of the first one, or else the root of a tree that was put together, does not refer to the
// documents, and is kept in trees. The error is a *[canonicaltree.LimitError].
func (ls Layers) Compose(trees *canonicaltree.Batch) (canonicaltree.Node, error) {
	if v, alone := ls.Value(); alone {
		return v, nil
	}
	size := 0
	for i := range ls {
		size += len(ls[i].value.Raw())
	}
	b := canonicaltree.NewBuilder(size)
	build(b, ls)
	tree, err := b.Tree()
	if err != nil {
		return canonicaltree.Node{}, err
	}
	return trees.Keep(tree).Root(), nil
}

// build adds the merged value of layers, at least one.
func build(b *canonicaltree.Builder, ls Layers) {
	if v, alone := ls.Value(); alone {
		b.Value(v)
		return
	}
	b.BeginObject()
	ls.members(func(name []byte, below Layers) bool {
		b.Name(name)
		build(b, below)
		return true
	})
	b.End()
}

// members calls visit for every member of layers, whose first one is an object, in their
// order, with the layers one member down. Visit returns false to stop, and must not keep its
// arguments. members reports whether it came to the end.
func (ls Layers) members(visit func(name []byte, below Layers) bool) bool {
	below := make(Layers, 0, len(ls))
	member := func(i int, name []byte) bool {
		if ls.firstWith(string(name)) != &ls[i] {
			return true // visited when it came first
		}
		below = ls.Member(below[:0], string(name))
		return visit(name, below)
	}
	for i := range ls {
		if l := &ls[i]; len(l.mount) > 0 {
			if !member(i, []byte(l.mount[0])) {
				return false
			}
		} else if l.isObject() {
			for v := range l.value.Children() {
				if !member(i, v.Name()) {
					return false
				}
			}
		}
	}
	return true
}

// firstWith returns the first object that has the member.
func (ls Layers) firstWith(name string) *Layer {
	for i := range ls {
		if l := &ls[i]; l.isObject() {
			if _, has := l.get(name); has {
				return l
			}
		}
	}
	return nil
}
