package projections

import (
	"cmp"
	"fmt"
	"reflect"
)

// predicates are the functions of the library that loop over an array. Null is
// an array without elements to them.
var predicates = map[string]bool{
	"all": true, "any": true, "none": true, "one": true, "filter": true,
	"map": true, "find": true, "findIndex": true, "findLast": true,
	"findLastIndex": true, "count": true, "sum": true, "groupBy": true,
	"sortBy": true, "reduce": true,
}

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
	switch reflect.TypeOf(v).Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Map:
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
	}
	v := reflect.ValueOf(base)
	if v.Kind() == reflect.Map && key != nil { // of groupBy
		if k := reflect.ValueOf(key); k.Comparable() && k.Type().AssignableTo(v.Type().Key()) {
			if m := v.MapIndex(k); m.IsValid() {
				return m.Interface()
			}
		}
		return nil
	}
	i, ok := key.(int)
	if !ok || v.Kind() != reflect.Slice {
		return nil
	}
	if i < 0 {
		i += v.Len()
	}
	if i < 0 || i >= v.Len() {
		return nil
	}
	return v.Index(i).Interface()
}

// list returns an array to loop over: null is empty.
func list(v any) (any, error) {
	if v == nil {
		return []any{}, nil
	}
	if reflect.TypeOf(v).Kind() != reflect.Slice {
		return nil, fmt.Errorf("cannot loop over %s, it needs an array", typeOf(v))
	}
	return v, nil
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
	c := reflect.ValueOf(container)
	if c.Kind() != reflect.Slice {
		return nil, fmt.Errorf("cannot look for %s in %s, it needs an array or an object", typeOf(v), typeOf(container))
	}
	for i := range c.Len() {
		if equal(c.Index(i).Interface(), v) {
			return true, nil
		}
	}
	return false, nil
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
	}
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if x.Kind() != y.Kind() || x.Kind() != reflect.Slice && x.Kind() != reflect.Map || x.Len() != y.Len() {
		return false
	}
	if x.Kind() == reflect.Slice {
		for i := range x.Len() {
			if !equal(x.Index(i).Interface(), y.Index(i).Interface()) {
				return false
			}
		}
		return true
	}
	if x.Type().Key() != y.Type().Key() {
		return false
	}
	for _, k := range x.MapKeys() {
		v := y.MapIndex(k)
		if !v.IsValid() || !equal(x.MapIndex(k).Interface(), v.Interface()) {
			return false
		}
	}
	return true
}
