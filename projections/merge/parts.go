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
	if layers, _, _ := p.Layers(nil, docs); len(layers) > 0 {
		layers.parts(nil, visit)
	}
}

func (ls Layers) parts(path canonicaltree.Path, visit func(Part) bool) bool {
	first := &ls[0]
	if v, alone := ls.Value(); alone && (!first.isObject() || len(path) > 0) {
		part := Part{Path: path, Source: first.source, Value: v}
		for _, l := range ls[1:] {
			part.Over = append(part.Over, l.source)
		}
		return visit(part)
	}
	return ls.members(func(name []byte, below Layers) bool {
		return below.parts(append(path[:len(path):len(path)], string(name)), visit)
	})
}
