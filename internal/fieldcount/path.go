package fieldcount

import (
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Path leads to a value: names of members, or Any for all elements of an array
// or all members of an object. It ends in a name, or is empty for the document
// as a whole.
type Path []string

// Any means each member or element. It is no name that a path can hold: a
// path ends before an empty name.
const Any = ""

const (
	maxDepth = 16
	maxName  = 128 // bytes
)

// Locate generalises a path at which before and after differ: indexes become
// Any. It ends early at a step that no strip pattern can name: an element, an empty or
// very long name, too many steps. A shorter path says more than happened, and
// never less.
func Locate(p canonicaltree.Path, before canonicaltree.Node) Path {
	out := make(Path, 0, len(p))
	n := before
	for _, part := range p {
		if len(out) == maxDepth {
			break
		}
		if n.Kind() == canonicaltree.Array {
			out = append(out, Any)
			i, err := strconv.Atoi(part)
			if err != nil {
				break
			}
			n = n.At(i)
			continue
		}
		if part == Any || len(part) > maxName {
			break
		}
		out = append(out, part)
		n = n.Get(part)
	}
	return out.Trim()
}

// Trim takes stars off the end: elements cannot be stripped, their array can.
func (p Path) Trim() Path {
	for len(p) > 0 && p[len(p)-1] == Any {
		p = p[:len(p)-1]
	}
	return p
}

// escape makes a name a part of a strip pattern.
var escape = strings.NewReplacer(`\`, `\\`, `.`, `\.`, `*`, `\*`)

// Pattern writes the path as a strip pattern (package stripper). It is empty for the document as
// a whole.
func (p Path) Pattern() string {
	parts := make([]string, len(p))
	for i, name := range p {
		switch {
		case name == Any:
			parts[i] = "*"
		case digits(name):
			parts[i] = `\` + name // a name, not an index
		default:
			parts[i] = escape.Replace(name)
		}
	}
	return strings.Join(parts, ".")
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// Covers reports whether p is q or a prefix of it.
func (p Path) Covers(q Path) bool {
	if len(p) > len(q) {
		return false
	}
	for i := range p {
		if p[i] != Any && p[i] != q[i] {
			return false
		}
	}
	return true
}

// Meets reports whether p can name the value at a fixed path,
// or one that holds it or is in it.
func (p Path) Meets(fixed canonicaltree.Path) bool {
	for i := range min(len(p), len(fixed)) {
		if p[i] != Any && p[i] != fixed[i] {
			return false
		}
	}
	return true
}
