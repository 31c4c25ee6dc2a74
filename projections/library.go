package projections

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// scalars are the functions of the library that are offered beside predicates: they depend on
// their arguments alone, and their work is bounded by them. None is the library's own: the
// library rounds integers, wraps around and counts bytes. The first argument is not null.
var scalars = map[string]func(args ...any) (any, error){
	"len":         length,
	"type":        func(a ...any) (any, error) { return typeName(a[0]), nil },
	"abs":         numeric("abs", absolute),
	"ceil":        numeric("ceil", rounded(math.Ceil)),
	"floor":       numeric("floor", rounded(math.Floor)),
	"round":       numeric("round", rounded(math.Round)),
	"int":         func(a ...any) (any, error) { return integer(a[0]) },
	"float":       func(a ...any) (any, error) { return decimal(a[0]) },
	"string":      asText,
	"trim":        textual("trim", 0, func(s []string) any { return strings.TrimSpace(s[0]) }, func(s []string) any { return strings.Trim(s[0], s[1]) }),
	"trimPrefix":  textual("trimPrefix", 0, func(s []string) any { return strings.TrimPrefix(s[0], " ") }, func(s []string) any { return strings.TrimPrefix(s[0], s[1]) }),
	"trimSuffix":  textual("trimSuffix", 0, func(s []string) any { return strings.TrimSuffix(s[0], " ") }, func(s []string) any { return strings.TrimSuffix(s[0], s[1]) }),
	"upper":       textual("upper", 0, func(s []string) any { return strings.ToUpper(s[0]) }),
	"lower":       textual("lower", 0, func(s []string) any { return strings.ToLower(s[0]) }),
	"hasPrefix":   textual("hasPrefix", 1, func(s []string) any { return strings.HasPrefix(s[0], s[1]) }),
	"hasSuffix":   textual("hasSuffix", 1, func(s []string) any { return strings.HasSuffix(s[0], s[1]) }),
	"indexOf":     textual("indexOf", 1, func(s []string) any { return characters(s[0], strings.Index(s[0], s[1])) }),
	"lastIndexOf": textual("lastIndexOf", 1, func(s []string) any { return characters(s[0], strings.LastIndex(s[0], s[1])) }),
	"split":       counted("split", 2, func(s []string, n int) any { return values(strings.SplitN(s[0], s[1], n)) }),
	"replace":     counted("replace", 3, func(s []string, n int) any { return strings.Replace(s[0], s[1], s[2], n) }),
	"join":        join,
	"max":         extreme("max", 1),
	"min":         extreme("min", -1),
	"mean":        mean,
	"median":      median,
	"first":       end("first", 0),
	"last":        end("last", -1),
	"get":         func(a ...any) (any, error) { return get(a[0], a[1]), nil },
	"take":        take,
	"reverse":     listed("reverse", func(list []any) []any { slices.Reverse(list); return list }),
	"uniq":        listed("uniq", distinct),
	"concat":      concat,
	"flatten":     flatten,
	"sort":        sorted,
}

// library returns the scalar functions and those beside the library under their names: null as
// the first argument returns null.
func library() map[string]func(...any) (any, error) {
	fns := maps.Clone(scalars)
	for name, f := range extras() {
		fns[name] = f.do
	}
	for name, f := range fns {
		fns[name] = func(args ...any) (any, error) {
			if args[0] != nil {
				return f(args...)
			}
			switch name {
			case "len":
				return 0, nil
			case "type":
				return "nil", nil
			}
			return nil, nil
		}
	}
	return fns
}

// errMemory says in the library's words that a function went beyond maxMemory.
var errMemory = errors.New("memory budget exceeded")

// cannot is the error of a function with the need that its arguments do not meet: types, no values.
func cannot(name string, args []any, needs string) error {
	return fmt.Errorf("%s%s cannot be computed, it needs %s", name, typesOf(args), needs)
}

// numeric makes a function of a function of a number.
func numeric(name string, do func(any) (any, error)) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		if _, ok := toNumber(args[0]); !ok {
			return nil, cannot(name, args, "a number")
		}
		return do(args[0])
	}
}

// stringsIn returns arguments that are all texts.
func stringsIn(args []any) ([]string, bool) {
	texts := make([]string, len(args))
	for i, a := range args {
		s, ok := a.(string)
		if !ok {
			return nil, false
		}
		texts[i] = s
	}
	return texts, true
}

// textual makes a function of functions of texts: do[0] takes 1+extra texts, do[1] one more.
func textual(name string, extra int, do ...func([]string) any) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		texts, ok := stringsIn(args)
		if n := len(args) - 1 - extra; ok && n >= 0 && n < len(do) {
			return do[n](texts), nil
		}
		return nil, cannot(name, args, "strings; write string(doc.x) for a number")
	}
}

// counted adapts a function of some texts and a count. A count of -1 means all.
func counted(name string, texts int, do func(s []string, n int) any) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		n, isInt := -1, true
		if len(args) > texts {
			n, isInt = args[texts].(int)
		}
		if s, ok := stringsIn(args[:min(texts, len(args))]); ok && isInt && len(s) == texts {
			return do(s, n), nil
		}
		return nil, cannot(name, args, "strings, and a whole number after them")
	}
}

// characters returns the number of characters before a byte of s, or -1 for none.
func characters(s string, at int) int {
	if at < 0 {
		return -1
	}
	return utf8.RuneCountInString(s[:at])
}

func values(texts []string) []any {
	list := make([]any, len(texts))
	for i, s := range texts {
		list[i] = s
	}
	return list
}

// listed makes a function of a function of a list of its own.
func listed(name string, do func([]any) []any) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		list, ok := args[0].([]any)
		if !ok {
			return nil, cannot(name, args, "an array")
		}
		return do(append(make([]any, 0, len(list)), list...)), nil
	}
}

func length(args ...any) (any, error) {
	switch v := args[0].(type) {
	case string:
		return utf8.RuneCountInString(v), nil
	case bool, int, float64, wide:
		return nil, cannot("len", args, "a string, an array or an object")
	}
	return lengthOf(args[0]), nil
}

// typeName names a type as the library does.
func typeName(v any) string {
	switch v := v.(type) {
	case int:
		return "int"
	case float64, wide:
		return "float"
	case bool:
		return "bool"
	default:
		if name := typeOf(v); name != "object" {
			return name
		}
		return "map"
	}
}

// asText is string: a text as it is, anything else as JSON.
func asText(args ...any) (any, error) {
	if s, ok := args[0].(string); ok {
		return s, nil
	}
	return printed(args...)
}

func join(args ...any) (any, error) {
	list, isList := args[0].([]any)
	texts, ok := stringsIn(list)
	glue := ""
	if len(args) > 1 {
		var isText bool
		glue, isText = args[1].(string)
		ok = ok && isText
	}
	if !isList || !ok {
		return nil, cannot("join", args, "an array of strings; write join(map(doc.list, string(#)), \",\") for others")
	}
	return strings.Join(texts, glue), nil
}

// numbersIn appends the numbers of lists in lists.
func numbersIn(dst []any, args []any, depth int) ([]any, bool) {
	for _, a := range args {
		if list, ok := a.([]any); ok && depth < maxResult {
			if dst, ok = numbersIn(dst, list, depth+1); !ok {
				return nil, false
			}
		} else if _, ok := toNumber(a); ok {
			dst = append(dst, a)
		} else {
			return nil, false
		}
	}
	return dst, true
}

const needsNumbers = "numbers; leave others out, such as filter(doc.list, # != null)"

// extreme makes the function that returns the number that compares as sign with all others.
func extreme(name string, sign int) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		numbers, ok := numbersIn(nil, args, 0)
		if !ok {
			return nil, cannot(name, args, needsNumbers)
		}
		if len(numbers) == 0 {
			return nil, nil
		}
		most := numbers[0]
		for _, n := range numbers[1:] {
			if order, _ := mustNumber(n).compare(mustNumber(most)); order == sign {
				most = n
			}
		}
		return most, nil
	}
}

func mean(args ...any) (any, error) {
	numbers, ok := numbersIn(nil, args, 0)
	if !ok {
		return nil, cannot("mean", args, needsNumbers)
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	total, err := sum(numbers)
	if err != nil {
		return nil, err
	}
	return divide(total, len(numbers))
}

func median(args ...any) (any, error) {
	numbers, ok := numbersIn(nil, args, 0)
	if !ok {
		return nil, cannot("median", args, needsNumbers)
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	slices.SortFunc(numbers, func(a, b any) int {
		order, _ := mustNumber(a).compare(mustNumber(b))
		return order
	})
	half := len(numbers) / 2
	if len(numbers)%2 == 1 {
		return numbers[half], nil
	}
	total, err := add(numbers[half-1], numbers[half])
	if err != nil {
		return nil, err
	}
	return divide(total, 2)
}

// end makes a function of the element at one end of a list.
func end(name string, index int) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		if _, ok := args[0].([]any); !ok {
			return nil, cannot(name, args, "an array; of a text write doc.x[:1] or doc.x[-1:]")
		}
		return get(args[0], index), nil
	}
}

func take(args ...any) (any, error) {
	list, ok := args[0].([]any)
	n, isInt := args[1].(int)
	if !ok || !isInt || n < 0 {
		return nil, cannot("take", args, "an array and a whole number; of a text write doc.x[:3]")
	}
	n = min(n, len(list))
	return list[:n:n], nil
}

func distinct(list []any) []any {
	unique := list[:0]
	for _, v := range list {
		if !slices.ContainsFunc(unique, func(u any) bool { return equal(u, v) }) {
			unique = append(unique, v)
		}
	}
	return unique
}

func concat(args ...any) (any, error) {
	all := []any{}
	for _, a := range args {
		list, ok := a.([]any)
		if !ok {
			return nil, cannot("concat", args, "arrays; write doc.x ?? [] where one may be absent")
		}
		if all = append(all, list...); len(all) >= maxMemory {
			return nil, errMemory
		}
	}
	return all, nil
}

func flatten(args ...any) (any, error) {
	list, ok := args[0].([]any)
	if !ok {
		return nil, cannot("flatten", args, "an array")
	}
	return flattened([]any{}, list, 0)
}

func flattened(dst, list []any, depth int) (_ []any, err error) {
	if depth > maxResult {
		return nil, errDeep
	}
	for _, v := range list {
		if inner, ok := v.([]any); ok {
			if dst, err = flattened(dst, inner, depth+1); err != nil {
				return nil, err
			}
		} else if dst = append(dst, v); len(dst) >= maxMemory {
			return nil, errMemory
		}
	}
	return dst, nil
}

func sorted(args ...any) (any, error) {
	list, ok := args[0].([]any)
	if !ok {
		return nil, cannot("sort", args[:1], "an array")
	}
	return sortedBy("sort", list, list, args[1:])
}

// sortedBy returns the elements of list in the order of their keys, numbers or texts; elements
// with equal keys stay in the order of list. order is absent, "asc" or "desc".
func sortedBy(name string, list, keys, order []any) ([]any, error) {
	sign := 1
	if len(order) > 0 {
		switch order[0] {
		case "asc":
		case "desc":
			sign = -1
		default:
			return nil, fmt.Errorf("%s() has an unknown order, use \"asc\" or \"desc\"", name)
		}
	}
	for _, k := range keys {
		_, isText := k.(string)
		_, isNumber := toNumber(k)
		_, first := keys[0].(string)
		if !isText && !isNumber || isText != first {
			return nil, fmt.Errorf("%s() cannot order %s and %s, it needs numbers or strings; leave others out, such as filter(doc.list, # != null)",
				name, typeOf(keys[0]), typeOf(k))
		}
	}
	at := make([]int, len(list))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int {
		if s, ok := keys[i].(string); ok {
			return sign * cmp.Compare(s, keys[j].(string))
		}
		order, _ := mustNumber(keys[i]).compare(mustNumber(keys[j]))
		return sign * order
	})
	result := make([]any, len(list))
	for i, from := range at {
		result[i] = list[from]
	}
	return result, nil
}

// cut returns the part of a text, in characters, or of an array; null of null. Indexes below 0
// count from the end, and indexes beyond an end are limited to it.
func cut(v, from, to any) (any, error) {
	a, ok1 := from.(int)
	b, ok2 := to.(int)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("cannot cut from %s to %s, it needs whole numbers", typeOf(from), typeOf(to))
	}
	if s, ok := v.(string); ok {
		a, b = bounds(utf8.RuneCountInString(s), a, b)
		start := offset(s, 0, a)
		return s[start:offset(s, start, b-a)], nil
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		a, b = bounds(len(v), a, b)
		return v[a:b:b], nil
	}
	return nil, fmt.Errorf("cannot cut %s, it needs a string or an array", typeOf(v))
}

func bounds(length, from, to int) (int, int) {
	if from < 0 {
		from = max(0, length+from)
	}
	if to < 0 {
		to = max(0, length+to)
	}
	to = min(to, length)
	return min(from, to), to
}

// offset returns the byte of s that is n characters after the one at start.
func offset(s string, start, n int) int {
	for ; n > 0; n-- {
		_, size := utf8.DecodeRuneInString(s[start:])
		start += size
	}
	return start
}

// operand returns v if an operator of texts takes it, which has no more to find in null.
func operand(operator string, v any) (any, error) {
	switch v.(type) {
	case nil, string:
		return v, nil
	}
	hint := "write string(doc.x)"
	switch operator {
	case "key":
		return nil, fmt.Errorf("cannot name a member by %s, it needs a string; write string(doc.x)", typeOf(v))
	case "contains":
		if typeOf(v) == "array" || typeOf(v) == "object" {
			return nil, fmt.Errorf("cannot look for a string in %s with contains; write \"x\" in doc.list", typeOf(v))
		}
		hint += ", or 7 in doc.list to look in a list"
	}
	return nil, fmt.Errorf("cannot use %s with %s, it needs strings; %s", typeOf(v), operator, hint)
}

// group returns v if elements can be grouped by it.
func group(v any) (any, error) {
	switch typeOf(v) {
	case "array", "object":
		return nil, fmt.Errorf("cannot group by %s, it needs a string, a number or a boolean", typeOf(v))
	}
	return v, nil
}
