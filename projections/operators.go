package projections

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/expr-lang/expr/builtin"
)

// predicates are the functions of the library that loop over an array. Null is
// an array without elements to them.
var predicates = map[string]bool{
	"all": true, "any": true, "none": true, "one": true, "filter": true,
	"map": true, "find": true, "findIndex": true, "findLast": true,
	"findLastIndex": true, "count": true, "sum": true, "groupBy": true,
	"sortBy": true, "reduce": true,
}

// scalars are the functions of the library that depend on their arguments alone
// and whose work is bounded by them.
var scalars = map[string]bool{
	"len": true, "type": true, "abs": true, "ceil": true, "floor": true,
	"round": true, "int": true, "float": true, "string": true, "trim": true,
	"trimPrefix": true, "trimSuffix": true, "upper": true, "lower": true,
	"split": true, "replace": true, "join": true, "indexOf": true,
	"lastIndexOf": true, "hasPrefix": true, "hasSuffix": true, "max": true,
	"min": true, "mean": true, "median": true, "first": true, "last": true,
	"get": true, "take": true, "reverse": true, "concat": true,
	"flatten": true, "uniq": true, "sort": true,
}

func offered(name string) bool { return predicates[name] || scalars[name] }

// library returns the scalar functions under their names: null as the first
// argument returns null, and errors name types instead of values.
func library() map[string]func(...any) (any, error) {
	fns := make(map[string]func(...any) (any, error), len(scalars))
	for name := range scalars {
		fns[name] = bearNull(name, builtin.Builtins[builtin.Index[name]])
	}
	fns["get"] = func(a ...any) (any, error) { return get(a[0], a[1]), nil }
	for name, f := range extras() {
		fns[name] = func(args ...any) (any, error) {
			if args[0] == nil {
				return nil, nil
			}
			return f.do(args...)
		}
	}
	return fns
}

// errMemory says in the library's words that a function went beyond maxMemory.
var errMemory = errors.New("memory budget exceeded")

func bearNull(name string, fn *builtin.Function) func(...any) (any, error) {
	return func(args ...any) (result any, err error) {
		if len(args) > 0 && args[0] == nil {
			switch name {
			case "len":
				return 0, nil
			case "type":
				return "nil", nil
			}
			return nil, nil
		}
		defer func() {
			if recover() != nil || err != nil && !errors.Is(err, errMemory) {
				result, err = nil, fmt.Errorf("%s%s cannot be computed", name, typesOf(args))
			}
		}()
		switch {
		case fn.Fast != nil:
			return fn.Fast(args[0]), nil
		case fn.Safe != nil:
			// The library counts the values created by its own calls alone.
			var created uint
			if result, created, err = fn.Safe(args...); created >= maxMemory {
				return nil, errMemory
			}
			return result, err
		}
		return fn.Func(args...)
	}
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

// sliced returns what can be cut: of null, an empty array.
func sliced(v any) any {
	if v == nil {
		return []any{}
	}
	return v
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

// ordered compares two numbers by value or two strings by their bytes. Null on
// either side returns false; other types are an error.
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

// equal compares by structure: numbers by value, strings, booleans and null by
// themselves, arrays by elements and objects by members. Values of two types are
// not equal.
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

// number is an int64 or, if real, a float64.
type number struct {
	i    int64
	f    float64
	real bool
}

func toNumber(v any) (number, bool) {
	switch v := v.(type) {
	case int:
		return number{i: int64(v)}, true
	case float64:
		return number{f: v, real: true}, true
	case int64:
		return number{i: v}, true
	case uint8:
		return number{i: int64(v)}, true
	}
	return number{}, false
}

// compare compares exactly, also an int64 with a float64 that cannot hold it.
// ok is false if either is not a number by IEEE 754.
func (x number) compare(y number) (order int, ok bool) {
	switch {
	case !x.real && !y.real:
		return cmp.Compare(x.i, y.i), true
	case x.real && y.real:
		return cmp.Compare(x.f, y.f), !math.IsNaN(x.f) && !math.IsNaN(y.f)
	case x.real:
		order, ok = y.compare(x)
		return -order, ok
	}
	const limit = 1 << 63
	switch whole := math.Trunc(y.f); {
	case math.IsNaN(y.f):
		return 0, false
	case whole >= limit:
		return -1, true
	case whole < -limit:
		return 1, true
	default:
		if c := cmp.Compare(x.i, int64(whole)); c != 0 {
			return c, true
		}
		return cmp.Compare(0, y.f-whole), true
	}
}
