package projections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// predicates are the functions of the library that loop over an array. Null is
// an array without elements to them.
var predicates = map[string]bool{
	"all": true, "any": true, "none": true, "one": true, "filter": true,
	"map": true, "find": true, "findIndex": true, "findLast": true,
	"findLastIndex": true, "count": true, "sum": true, "groupBy": true,
	"sortBy": true, "reduce": true,
}

// groups is a result of groupBy: elements by their group.
type groups = map[any][]any

func offered(name string) bool {
	_, scalar := scalars[name]
	return scalar || predicates[name]
}

func typesOf(args []any) string {
	s := "("
	for i, a := range args {
		if i > 0 {
			s += ", "
		}
		s += typeOf(a)
	}
	return s + ")"
}

// typeOf names a type as JSON does.
func typeOf(v any) string {
	if v == nil {
		return "null"
	}
	if _, ok := toNumber(v); ok {
		return "number"
	}
	switch v.(type) {
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any, groups:
		return "object"
	}
	return "value"
}

// get returns a member by its name or an element by its index, which counts from
// the end when it is negative, and null for anything that is not there.
func get(base, key any) any {
	switch base := base.(type) {
	case nil:
		return nil
	case map[string]any:
		if name, ok := key.(string); ok {
			return base[name]
		}
		return nil
	case groups:
		if _, err := group(key); err == nil && key != nil && base[key] != nil {
			return base[key]
		}
		return nil
	case []any:
		i, ok := key.(int)
		if i < 0 {
			i += len(base)
		}
		if ok && i >= 0 && i < len(base) {
			return base[i]
		}
		return nil
	}
	return nil
}

// list returns an array to loop over: null is empty.
func list(v any) (any, error) {
	switch v.(type) {
	case nil:
		return []any{}, nil
	case []any:
		return v, nil
	}
	return nil, fmt.Errorf("cannot loop over %s, it needs an array", typeOf(v))
}

// truth makes a condition of a value: null is false.
func truth(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	}
	return nil, fmt.Errorf("cannot use %s as a condition, it needs a boolean", typeOf(v))
}

var orderings = map[string]func(int) bool{
	"<":  func(c int) bool { return c < 0 },
	"<=": func(c int) bool { return c <= 0 },
	">":  func(c int) bool { return c > 0 },
	">=": func(c int) bool { return c >= 0 },
}

// ordered compares two numbers by value or two strings by their bytes. Null on either side
// returns false. Other types are an error.
func ordered(operator string, holds func(int) bool, a, b any) (any, error) {
	if a == nil || b == nil {
		return false, nil
	}
	if x, ok := toNumber(a); ok {
		if y, ok := toNumber(b); ok {
			c, comparable := x.compare(y)
			return comparable && holds(c), nil
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return holds(cmp.Compare(x, y)), nil
		}
	}
	return nil, fmt.Errorf("cannot compare %s %s %s", typeOf(a), operator, typeOf(b))
}

// in reports whether an array has an element that is equal to v, or an object a
// member of that name. Nothing is in null.
func in(v, container any) (any, error) {
	switch c := container.(type) {
	case nil:
		return false, nil
	case []any:
		for _, e := range c {
			if equal(e, v) {
				return true, nil
			}
		}
		return false, nil
	case map[string]any:
		name, ok := v.(string)
		if !ok {
			return false, nil
		}
		_, has := c[name]
		return has, nil
	}
	return nil, fmt.Errorf("cannot look for %s in %s, it needs an array or an object", typeOf(v), typeOf(container))
}

// equal compares by structure: numbers by value, strings, booleans and null by their value,
// arrays by elements and objects by members. Values of two types are not equal.
func equal(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if x, ok := toNumber(a); ok {
		y, ok := toNumber(b)
		if !ok {
			return false
		}
		c, comparable := x.compare(y)
		return comparable && c == 0
	}
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && x == y
	case bool:
		y, ok := b.(bool)
		return ok && x == y
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equal)
	case groups:
		y, ok := b.(groups)
		return ok && maps.EqualFunc(x, y, func(a, b []any) bool { return equal(a, b) })
	}
	return false
}
