package config

import (
	"encoding/json"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// json returns a value as compact JSON, numbers by their literal.
func (d *decoder) json(n ast.Node, path string) (JSON, bool) {
	d.recordPosition(path, n)
	out, ok := d.appendJSON(nil, n, path)
	return out, ok
}

func (d *decoder) appendJSON(dst []byte, n ast.Node, path string) ([]byte, bool) {
	if n == nil {
		return append(dst, "null"...), true
	}
	if !d.supported(n, path) {
		return nil, false
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return append(dst, "null"...), true
	case *ast.MappingNode, *ast.MappingValueNode:
		entries, ok := d.entries(n, path, "a mapping")
		dst = append(dst, '{')
		for i, e := range entries {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(canonicaltree.AppendString(dst, e.key), ':')
			var good bool
			dst, good = d.appendJSON(dst, e.node, e.path)
			ok = ok && good
		}
		return append(dst, '}'), ok
	case *ast.SequenceNode:
		ok := true
		dst = append(dst, '[')
		for i, value := range n.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			var good bool
			dst, good = d.appendJSON(dst, value, element(path, i))
			ok = ok && good
		}
		return append(dst, ']'), ok
	}
	s := scalar{at: d.doc.place(n)}
	switch n := n.(type) {
	case *ast.StringNode:
		s.raw = n.Value
	case *ast.LiteralNode:
		s.raw = n.Value.Value
	default:
		s.raw = n.GetToken().Value
		d.doc.values[path] = s
		if !json.Valid([]byte(s.raw)) {
			d.doc.fault(path, "is not a value of JSON", "a number, true, false, null, text, a list or a mapping")
			return dst, false
		}
		return append(dst, s.raw...), true
	}
	problems := d.expand(&s, false)
	d.doc.values[path] = s
	for _, p := range problems {
		d.doc.mistake(d.doc.at(path), path, p)
	}
	return canonicaltree.AppendString(dst, s.text), len(problems) == 0
}
