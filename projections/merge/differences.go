package merge

import "github.com/seed-86dfc502/weir/canonicaltree"

// Differences calls visit for paths of the merged document that cover every change caused by
// another document of a source, at, above or below the path: the paths at which before and after
// differ, unless a source of higher precedence hides them. Either may be absent. layers are the
// layers with either document. There is a merged document before and after. Visit must keep
// neither the path nor its array.
func (p *Plan) Differences(layers Layers, source string, before, after canonicaltree.Node, visit func(canonicaltree.Path)) {
	mount := p.sources[source].Mount
	higher := layers[:p.higher(layers, source)]
	report := func(path canonicaltree.Path, a, b canonicaltree.Node) bool {
		if len(mount) > 0 {
			path = append(mount[:len(mount):len(mount)], path...)
		}
		if len(higher) == 0 || !higher.hide(path, a.Kind() == canonicaltree.Object || b.Kind() == canonicaltree.Object) {
			visit(path)
		}
		return true
	}
	if before.Exists() && after.Exists() {
		canonicaltree.Diff(before, after, report)
		return
	}
	doc := before
	if !doc.Exists() {
		doc = after
	}
	switch {
	case layers.otherRoot(source):
		visit(nil) // the merged document may become an object, or cease to be one
	case len(mount) > 0:
		visit(mount[:1]) // the values above the document become objects, or cease to be
	case doc.Kind() != canonicaltree.Object:
		report(nil, before, after)
	default:
		for v := range doc.Children() {
			report(canonicaltree.Path{string(v.Name())}, v, canonicaltree.Node{})
		}
	}
}

// higher returns how many of the layers are of higher precedence than a source.
func (p *Plan) higher(layers Layers, source string) (n int) {
	for i := range p.order {
		switch name := p.order[i].Name; {
		case name == source:
			return n
		case n < len(layers) && layers[n].source == name:
			n++
		}
	}
	return n
}

// otherRoot reports whether another source's document is at the root and no object.
func (ls Layers) otherRoot(source string) bool {
	for i := range ls {
		if ls[i].source != source && !ls[i].isObject() {
			return true
		}
	}
	return false
}

// hide reports whether a value of a source of lower precedence is invisible in the merged
// document. object says that the value is an object.
func (ls Layers) hide(path canonicaltree.Path, object bool) bool {
	var room [8]Layer
	at := append(Layers(room[:0]), ls...)
	for _, name := range path {
		if !at[0].isObject() {
			return true
		}
		if at = at.Member(at[:0], name); len(at) == 0 {
			return false
		}
	}
	return !at[0].isObject() || !object
}
