package merge

import (
	"slices"
	"strconv"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Merged is the one document of an entity.
type Merged struct {
	// Doc is its JSON text, nil when no source has a document.
	Doc []byte
	// Complete: every required source has a document.
	Complete bool
}

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

// get gives the layer one member down.
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

// Merge merges docs, which maps sources to the text of their documents; a source
// that has none is missing or nil. Sources that the plan does not know are left
// out. If only one document is there and stands at the root, Doc is that text
// itself, not copied. The error is a *[SourceError] or that of [Plan.Compose].
func (p *Plan) Merge(docs map[string][]byte) (Merged, error) {
	if text, alone := p.alone(docs); alone {
		m := Merged{Doc: text, Complete: true}
		for _, source := range p.required {
			m.Complete = m.Complete && docs[source] != nil
		}
		return m, nil
	}
	nodes, release, err := p.parse(docs)
	if err != nil {
		return Merged{}, err
	}
	defer release()
	doc, complete, err := p.Compose(nodes)
	return Merged{doc.Raw(), complete}, err
}

// Compose merges docs, which maps sources to their documents, into one; absent
// values are no documents, and sources that the plan does not know are left out.
// Nothing is parsed: the merged document is the one that stands alone at the root,
// or else a tree put together from theirs, which does not refer to them. It is
// absent when there is none. complete says whether every required source has a
// document. The error is a *[canonicaltree.LimitError]: mounts make the merged
// document deeper than the default limit.
func (p *Plan) Compose(docs map[string]canonicaltree.Node) (doc canonicaltree.Node, complete bool, err error) {
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
	return tree.Root(), complete, nil
}

// alone gives the text that is the merged document as it stands: there is no
// other, and it stands at the root.
func (p *Plan) alone(docs map[string][]byte) (text []byte, alone bool) {
	for _, s := range p.order {
		doc := docs[s.Name]
		if doc == nil {
			continue
		}
		if text != nil || len(s.Mount) > 0 {
			return nil, false
		}
		text = doc
	}
	return text, true
}

// parse parses docs. release gives the trees back.
func (p *Plan) parse(docs map[string][]byte) (nodes map[string]canonicaltree.Node, release func(), err error) {
	nodes = make(map[string]canonicaltree.Node, len(docs))
	trees := make([]*canonicaltree.Tree, 0, len(docs))
	release = func() {
		for _, t := range trees {
			t.Release()
		}
	}
	for _, s := range p.order {
		doc := docs[s.Name]
		if doc == nil {
			continue
		}
		tree, err := canonicaltree.Parse(doc)
		if err != nil {
			release()
			return nil, nil, &SourceError{s.Name, err}
		}
		trees = append(trees, tree)
		nodes[s.Name] = tree.Root()
	}
	return nodes, release, nil
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
// first one decides what it is.
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
	below := make([]layer, 0, len(layers))
	member := func(i int, name []byte) {
		for _, before := range layers[:i] {
			if _, has := before.get(name); has {
				return // merged when it came first
			}
		}
		below = below[:0]
		for _, l := range layers[i:] {
			if next, has := l.get(name); has {
				below = append(below, next)
			}
		}
		b.Name(name)
		build(b, below)
	}
	for i, l := range layers {
		if len(l.mount) > 0 {
			member(i, []byte(l.mount[0]))
			continue
		}
		for v := range l.value.Children() {
			member(i, v.Name())
		}
	}
	b.End()
}

// objects gives the layers that are objects. It does not change its argument.
func objects(layers []layer) []layer {
	if !slices.ContainsFunc(layers, func(l layer) bool { return !l.isObject() }) {
		return layers
	}
	var kept []layer
	for _, l := range layers {
		if l.isObject() {
			kept = append(kept, l)
		}
	}
	return kept
}

// Provenance gives the source that the merged value at path comes from. An
// object that several sources share is said to come from the one of highest
// precedence among them. It is empty when the merged document has no such value
// or a document cannot be parsed.
func (p *Plan) Provenance(docs map[string][]byte, path canonicaltree.Path) string {
	nodes, release, err := p.parse(docs)
	if err != nil {
		return ""
	}
	defer release()
	layers := p.layers(nodes)
	if len(layers) == 0 {
		return ""
	}
	for i, name := range path {
		if !layers[0].isObject() {
			return within(layers[0], path[i:])
		}
		var below []layer
		for _, l := range objects(layers) {
			if next, has := l.get([]byte(name)); has {
				below = append(below, next)
			}
		}
		if len(below) == 0 {
			return ""
		}
		layers = below
	}
	return layers[0].source
}

// within follows path into a value that one source alone decides.
func within(l layer, path canonicaltree.Path) string {
	v := l.value
	for _, name := range path {
		if v.Kind() == canonicaltree.Array {
			i, err := strconv.Atoi(name)
			if err != nil {
				return ""
			}
			v = v.At(i)
		} else {
			v = v.Get(name)
		}
	}
	if !v.Exists() {
		return ""
	}
	return l.source
}
