package projections

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// maxResult bounds how deep a computed value is nested. The parser refuses less.
const maxResult = 10 * canonicaltree.DefaultDepth

var errDeep = errors.New("returns a value that is nested too deep")

// appendValue appends a value of an expression as JSON, members in the order of their names.
func appendValue(dst []byte, v any) ([]byte, error) { return appendBelow(dst, v, 0) }

func appendBelow(dst []byte, v any, depth int) (_ []byte, err error) {
	if depth > maxResult {
		return dst, errDeep
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return canonicaltree.AppendString(dst, v), nil
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendBelow(dst, e, depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		dst = append(dst, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(canonicaltree.AppendString(dst, name), ':')
			if dst, err = appendBelow(dst, v[name], depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	case groups:
		members := make(map[string]any, len(v))
		for key, of := range v {
			name, ok := key.(string)
			if !ok {
				return dst, fmt.Errorf("returns an object with a member named by %s, it needs a string", typeOf(key))
			}
			members[name] = of
		}
		return appendBelow(dst, members, depth)
	}
	if n, ok := toNumber(v); ok {
		return appendNumber(dst, n)
	}
	return dst, fmt.Errorf("returns %s, which is no JSON", typeOf(v))
}

// appendNumber appends an integer exactly, any other number as the shortest decimal that reads
// back as the same 64-bit float.
func appendNumber(dst []byte, n number) ([]byte, error) {
	switch {
	case n.wide != "":
		return n.wide.append(dst), nil
	case !n.real:
		return strconv.AppendInt(dst, n.i, 10), nil
	case math.IsNaN(n.f) || math.IsInf(n.f, 0):
		return dst, errors.New("returns a number that is not finite")
	case n.f == 0:
		return append(dst, '0'), nil // no -0
	}
	if size := math.Abs(n.f); size < 1e-6 || size >= 1e21 {
		return strconv.AppendFloat(dst, n.f, 'e', -1, 64), nil
	}
	return strconv.AppendFloat(dst, n.f, 'f', -1, 64), nil
}
