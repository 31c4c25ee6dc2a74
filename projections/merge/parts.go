package merge

import "github.com/seed-86dfc502/weir/canonicaltree"

// Part is a value of the merged document that one source decides, with all that
// is inside it.
type Part struct {
	Path   canonicaltree.Path
	Source string
	Value  canonicaltree.Node
	// Over are the sources that have a value there too, and lose: by precedence.
	Over []string
}

// Parts calls visit for every part of the merged document of docs, in the order
// of the document: the largest values that come from one source alone, but at
// least the members of the root. Visit returns false to stop, and must not keep
// the path or Over. The work is linear in the documents.
func (p *Plan) Parts(docs map[string]canonicaltree.Node, visit func(Part) bool) {
	if layers := p.layers(docs); len(layers) > 0 {
		parts(nil, layers, visit)
	}
}

func parts(path canonicaltree.Path, layers []layer, visit func(Part) bool) bool {
	first := layers[0]
	shared := layers
	if first.isObject() {
		shared = objects(layers)
	}
	alone := len(first.mount) == 0 && (!first.isObject() || len(shared) == 1 && len(path) > 0)
	if alone {
		part := Part{Path: path, Source: first.source, Value: first.value}
		for _, l := range layers[1:] {
			part.Over = append(part.Over, l.source)
		}
		return visit(part)
	}
	return members(shared, func(name []byte, below []layer) bool {
		return parts(append(path[:len(path):len(path)], string(name)), below, visit)
	})
}
