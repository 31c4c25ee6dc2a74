package clickhouse

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// columnType is a type: Name(Args…).
type columnType struct {
	name string
	args []string // as they were written
}

// parseType splits a type at its outermost parentheses and commas.
func parseType(t string) columnType {
	t = strings.TrimSpace(t)
	name, rest, ok := strings.Cut(t, "(")
	if !ok || !strings.HasSuffix(rest, ")") {
		return columnType{name: t}
	}
	parsed := columnType{name: strings.TrimSpace(name)}
	rest = rest[:len(rest)-1]
	depth, start := 0, 0
	outside(rest, func(i int, r rune) {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parsed.args = append(parsed.args, strings.TrimSpace(rest[start:i]))
				start = i + 1
			}
		}
	})
	parsed.args = append(parsed.args, strings.TrimSpace(rest[start:]))
	return parsed
}

// outside calls f with each character of a type that is in no quotes.
func outside(t string, f func(i int, r rune)) {
	quote, escaped := rune(0), false
	for i, r := range t {
		switch {
		case escaped:
			escaped = false
		case quote != 0 && r == '\\':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '`':
			quote = r
		default:
			f(i, r)
		}
	}
}

// decimalDigits are the precisions of Decimal32(S) and so on.
var decimalDigits = map[string]string{"Decimal32": "9", "Decimal64": "18", "Decimal128": "38", "Decimal256": "76"}

// spelled returns a type as servers report it, which is the only form that the client
// library takes for certain.
func spelled(t string) string {
	parsed := parseType(t)
	if digits := decimalDigits[parsed.name]; digits != "" && len(parsed.args) == 1 {
		parsed = columnType{"Decimal", []string{digits, parsed.args[0]}}
	}
	if len(parsed.args) == 0 {
		return parsed.name
	}
	args := make([]string, len(parsed.args))
	for i, arg := range parsed.args {
		switch name, inner := parsed.element(i); {
		case strings.HasPrefix(parsed.name, "Enum"):
			args[i] = spacedEqual(arg)
		case name != "":
			args[i] = name + " " + spelled(inner)
		default:
			args[i] = spelled(arg)
		}
	}
	return parsed.name + "(" + strings.Join(args, ", ") + ")"
}

// spacedEqual spells a member of an enumeration: 'name' = 1.
func spacedEqual(member string) string {
	at := -1
	outside(member, func(i int, r rune) {
		if r == '=' {
			at = i
		}
	})
	if at < 0 {
		return member
	}
	return strings.TrimSpace(member[:at]) + " = " + strings.TrimSpace(member[at+1:])
}

// element returns the name, "" for none, and the type of a tuple's element.
func (t columnType) element(i int) (name, inner string) {
	arg := t.args[i]
	if t.name != "Tuple" && t.name != "Nested" {
		return "", arg
	}
	at := -1
	outside(arg, func(i int, r rune) {
		if at < 0 && (unicode.IsSpace(r) || r == '(') {
			at = i
		}
	})
	if at < 0 || arg[at] == '(' {
		return "", arg
	}
	return arg[:at], strings.TrimSpace(arg[at:])
}

// named names the elements of all tuples: the client library cannot read a tuple
// without names inside another one.
func named(t string) string {
	parsed := parseType(t)
	if len(parsed.args) == 0 || strings.HasPrefix(parsed.name, "Enum") {
		return t
	}
	args := make([]string, len(parsed.args))
	for i := range parsed.args {
		name, inner := parsed.element(i)
		if parsed.name == "Tuple" {
			name = cmp.Or(name, fmt.Sprint("e", i)) + " "
		}
		args[i] = name + named(inner)
	}
	return parsed.name + "(" + strings.Join(args, ", ") + ")"
}

// sameType reports whether columns of both types take the same values. Time zones are for
// reading only.
func sameType(a, b string) bool {
	left, right := parseType(spelled(a)), parseType(spelled(b))
	if strings.HasPrefix(left.name, "DateTime") && left.name == right.name {
		zoneless := func(arg string) bool { return strings.HasPrefix(arg, "'") }
		left.args, right.args = slices.DeleteFunc(left.args, zoneless), slices.DeleteFunc(right.args, zoneless)
	}
	if left.name != right.name || len(left.args) != len(right.args) {
		return false
	}
	for i := range left.args {
		leftName, leftType := left.element(i)
		rightName, rightType := right.element(i)
		if leftName != rightName {
			return false
		}
		if leftType != rightType && (!strings.Contains(leftType, "(") || !sameType(leftType, rightType)) {
			return false
		}
	}
	return true
}
