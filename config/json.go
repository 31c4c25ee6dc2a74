package config

import (
	"encoding/json"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// json returns a value as compact JSON, numbers by their literal.
func (d *decoder) json(n *yaml.Node, path string) (JSON, bool) {
	d.recordPosition(path, n)
	return d.appendJSON(nil, n, path)
}

func (d *decoder) appendJSON(dst []byte, n *yaml.Node, path string) ([]byte, bool) {
	switch {
	case !d.supported(n, path):
		return nil, false
	case isNull(n):
		return append(dst, "null"...), true
	case n.Kind == yaml.MappingNode:
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
	case n.Kind == yaml.SequenceNode:
		ok := true
		dst = append(dst, '[')
		for i, value := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			var good bool
			dst, good = d.appendJSON(dst, value, element(path, i))
			ok = ok && good
		}
		return append(dst, ']'), ok
	}
	s := scalar{at: d.doc.place(n), raw: n.Value}
	switch {
	case typeOf(n) != "is text", n.Style == 0 && numberLike.MatchString(s.raw):
		return d.appendLiteral(dst, path, s)
	case n.Style == 0 && switchWord.MatchString(s.raw): // without quotes
		d.doc.values[path] = s
		d.doc.fault(path, "is true or false to some readers of YAML, and a text to others", "true or false, or the text in quotes")
		return dst, false
	}
	problems := d.expand(&s, false)
	d.doc.values[path] = s
	for _, p := range problems {
		d.doc.mistake(d.doc.at(path), path, p)
	}
	return canonicaltree.AppendString(dst, s.text), len(problems) == 0
}

var (
	// numberLike is a number in some version of YAML, also where the parser takes it for a text.
	numberLike = regexp.MustCompile(`^[-+]?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)$`)
	// switchWord is a boolean of YAML 1.1 and a text of YAML 1.2.
	switchWord = regexp.MustCompile(`^(?i:y|yes|n|no|on|off)$`)
)

// appendLiteral appends a scalar that is its JSON.
func (d *decoder) appendLiteral(dst []byte, path string, s scalar) ([]byte, bool) {
	d.doc.values[path] = s
	if json.Valid([]byte(s.raw)) {
		return append(dst, s.raw...), true
	}
	switch lower := strings.ToLower(s.raw); {
	case numberLike.MatchString(s.raw):
		d.doc.fault(path, "is a number as JSON does not write it", "a number in decimal digits, like 8, 0.5 or 1e3, or the text in quotes")
	case lower == "true" || lower == "false":
		d.doc.fault(path, "is not a value of JSON", lower+", or the text in quotes")
	default:
		d.doc.fault(path, "is not a value of JSON", "a number, true, false, null, text, a list or a mapping")
	}
	return dst, false
}
