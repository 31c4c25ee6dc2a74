package merge

import (
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// layer is a value of one source at some place. With a mount it is an object of
// one member, which leads to the value.
type layer struct {
	source string
	mount  canonicaltree.Path
	value  canonicaltree.Node
}

func (l layer) isObject() bool {
	return len(l.mount) > 0 || l.value.Kind() == canonicaltree.Object
}

// get returns the layer one member down.
func (l layer) get(name []byte) (layer, bool) {
	if len(l.mount) > 0 {
		if l.mount[0] != string(name) {
			return layer{}, false
		}
		return layer{l.source, l.mount[1:], l.value}, true
	}
	v := l.value.GetBytes(name)
	return layer{l.source, nil, v}, v.Exists()
}

// Compose merges docs, which maps sources to their documents, into one; absent
// values are no documents, and sources that the plan does not know are left out.
// Nothing is parsed: the merged document is the only one, if it is at the root,
// or else a tree put together from theirs, which does not refer to them. It is
// absent when there is none. The tree is kept in trees. complete says whether every required source has a
// document. The error is a *[canonicaltree.LimitError]: mounts make the merged
// document deeper than the default limit.
func (p *Plan) Compose(trees *canonicaltree.Batch, docs map[string]canonicaltree.Node) (doc canonicaltree.Node, complete bool, err error) {
	complete = true
	for _, source := range p.required {
		complete = complete && docs[source].Exists()
	}
	layers := p.layers(docs)
	switch {
	case len(layers) == 0:
		return canonicaltree.Node{}, complete, nil
	case len(layers) == 1 && len(layers[0].mount) == 0:
		return layers[0].value, complete, nil
	}
	size := 0
	for _, l := range layers {
		size += len(l.value.Raw())
	}
	b := canonicaltree.NewBuilder(size)
	build(b, layers)
	tree, err := b.Tree()
	if err != nil {
		return canonicaltree.Node{}, false, err
	}
	return trees.Keep(tree).Root(), complete, nil
}

// layers lists docs by precedence.
func (p *Plan) layers(docs map[string]canonicaltree.Node) []layer {
	layers := make([]layer, 0, len(p.order))
	for _, s := range p.order {
		if doc := docs[s.Name]; doc.Exists() {
			layers = append(layers, layer{s.Name, s.Mount, doc})
		}
	}
	return layers
}

// build adds the merged value of layers, at least one, all at the same place. The
// first one decides its kind.
func build(b *canonicaltree.Builder, layers []layer) {
	first := layers[0]
	if first.isObject() {
		layers = objects(layers)
	}
	if len(first.mount) == 0 && (len(layers) == 1 || !first.isObject()) {
		b.Value(first.value)
		return
	}
	b.BeginObject()
	members(layers, func(name []byte, below []layer) bool {
		b.Name(name)
		build(b, below)
		return true
	})
	b.End()
}

// members calls visit for every member of layers, which are objects, in their order, with
// the layers one member down. Visit returns false to stop, and must not keep its arguments.
// members reports whether it came to the end.
func members(layers []layer, visit func(name []byte, below []layer) bool) bool {
	below := make([]layer, 0, len(layers))
	member := func(i int, name []byte) bool {
		for _, before := range layers[:i] {
			if _, has := before.get(name); has {
				return true // visited when it came first
			}
		}
		below = below[:0]
		for _, l := range layers[i:] {
			if next, has := l.get(name); has {
				below = append(below, next)
			}
		}
		return visit(name, below)
	}
	for i, l := range layers {
		if len(l.mount) > 0 {
			if !member(i, []byte(l.mount[0])) {
				return false
			}
			continue
		}
		for v := range l.value.Children() {
			if !member(i, v.Name()) {
				return false
			}
		}
	}
	return true
}

// objects returns the layers that are objects. It does not change its argument.
func objects(layers []layer) []layer {
	other := func(l layer) bool { return !l.isObject() }
	if !slices.ContainsFunc(layers, other) {
		return layers
	}
	return slices.DeleteFunc(slices.Clone(layers), other)
}
