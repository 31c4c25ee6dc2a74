package projections

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"
)

// extraFunction is a function beside those of the library. Null as its first argument returns
// null.
type extraFunction struct {
	do        func(args ...any) (any, error)
	signature any
}

// extras returns the functions beside those of the library, by name.
func extras() map[string]extraFunction {
	one := new(func(any) any)
	all := map[string]extraFunction{
		"format": {format, new(func(string, ...any) any)},
		"json":   {printed, one},
		"sha256": {digested, one},
		"hmac":   {pseudonym, new(func(any, string) any)},
		"utc":    {timePart(func(t time.Time) any { return t.Format(sortable) }), one},
	}
	for name, part := range map[string]func(time.Time) int{
		"year": time.Time.Year, "month": func(t time.Time) int { return int(t.Month()) }, "day": time.Time.Day,
		"hour": time.Time.Hour, "minute": time.Time.Minute, "second": time.Time.Second,
		"weekday": func(t time.Time) int { return (int(t.Weekday())+6)%7 + 1 },
		"unix":    func(t time.Time) int { return int(t.Unix()) },
	} {
		all[name] = extraFunction{timePart(func(t time.Time) any { return part(t) }), one}
	}
	return all
}

// sortable is a layout of times in UTC whose texts sort as the times do.
const sortable = "2006-01-02T15:04:05.000000000Z"

// rfc3339 is stricter than the package time, which drops digits after the ninth.
var rfc3339 = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})$`)

// timePart returns a function of a time in UTC, which it gets as RFC 3339.
func timePart(part func(time.Time) any) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		text, ok := args[0].(string)
		if !ok {
			return nil, fmt.Errorf("cannot read %s as a time, it needs a string", typeOf(args[0]))
		}
		t, err := time.Parse(time.RFC3339, text)
		if t = t.UTC(); err != nil || !rfc3339.MatchString(text) || t.Year() < 0 || t.Year() > 9999 { // err holds the text
			return nil, errors.New("cannot read a time that is not RFC 3339, such as 2026-03-01T00:30:00.25+02:00, in the years 0 to 9999, with at most nine digits of a second")
		}
		return part(t), nil
	}
}

func printed(args ...any) (any, error) {
	text, err := appendValue(nil, args[0])
	return string(text), err
}

func textOf(v any) (string, error) {
	if text, ok := v.(string); ok {
		return text, nil
	}
	return "", fmt.Errorf("cannot hash %s, it needs a string", typeOf(v))
}

func digested(args ...any) (any, error) {
	text, err := textOf(args[0])
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:]), err
}

// secret is the key of hmac in a program, in place of its name.
type secret struct{ key []byte }

func pseudonym(args ...any) (any, error) {
	text, err := textOf(args[0])
	h := hmac.New(sha256.New, args[1].(*secret).key)
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)), err
}

// verb is one of a template of format: a literal percent sign, or an argument.
var verb = regexp.MustCompile(`%(?:%|([-+ 0#]*)([0-9]{0,2})(?:\.([0-9]{1,2}))?([sdfx]))`)

// format is fmt.Sprintf for texts and numbers. A null argument returns null. %f rounds the digits
// of a number as it prints, half away from zero. The template was checked.
func format(args ...any) (any, error) {
	template, rest := args[0].(string), args[1:]
	if slices.Contains(rest, nil) {
		return nil, nil
	}
	values := make([]any, 0, len(rest))
	var failed error
	template = verb.ReplaceAllStringFunc(template, func(text string) string {
		m := verb.FindStringSubmatch(text)
		if m[4] == "" || failed != nil {
			return text
		}
		v := rest[len(values)]
		n, isNumber := toNumber(v)
		s, isText := v.(string)
		switch _, isBool := v.(bool); {
		case m[4] == "s" && isText:
			v = s
		case m[4] == "s" && (isNumber || isBool):
			printed, err := appendValue(nil, v)
			failed, v = err, string(printed)
		case (m[4] == "d" || m[4] == "x") && isNumber && !n.real && n.wide == "":
			v = n.i
		case m[4] == "f" && isNumber && printable(n):
			text, v = decimals(m[1], m[2], m[3], n)
		default:
			failed = fmt.Errorf("cannot format %s as %%%s", typeOf(v), m[4])
			if isNumber {
				failed = fmt.Errorf("cannot format this number as %%%s; %%d and %%x need a whole number within 64 bits, see round() and %%f", m[4])
			}
		}
		values = append(values, v)
		return text
	})
	if failed != nil {
		return nil, failed
	}
	return fmt.Sprintf(template, values...), nil
}

// printable reports whether the digits of a number are few enough to write out.
func printable(n number) bool {
	digits, power, _ := strings.Cut(string(decimalOf(n)), "e")
	p, err := strconv.Atoi("0" + strings.TrimPrefix(power, "-"))
	return err == nil && len(digits) <= 400 && p <= 400
}

// decimals formats a number with places decimal places, six by default, and returns the verb for
// this text.
func decimals(flags, width, places string, n number) (printed, text string) {
	digits := 6
	if places != "" {
		digits, _ = strconv.Atoi(places)
	}
	exact, _ := new(big.Rat).SetString(string(decimalOf(n)))
	text = strings.TrimPrefix(exact.FloatString(digits), "-")
	switch {
	case exact.Sign() < 0:
		text = "-" + text
	case strings.Contains(flags, "+"):
		text = "+" + text
	case strings.Contains(flags, " "):
		text = " " + text
	}
	if strings.Contains(flags, "-") {
		return "%-" + width + "s", text
	}
	if total, _ := strconv.Atoi(width); strings.Contains(flags, "0") && len(text) < total {
		from := len(text) - len(strings.TrimLeft(text, "+- "))
		text = text[:from] + strings.Repeat("0", total-len(text)) + text[from:]
	}
	return "%" + width + "s", text
}

// extra checks a call of an extra function.
func (v *validator) extra(n *ast.CallNode, name string) {
	constant := func(i int) (string, bool) {
		if i >= len(n.Arguments) {
			return "", false // the checker counts
		}
		text, ok := n.Arguments[i].(*ast.StringNode)
		if !ok {
			return "", false
		}
		return text.Value, true
	}
	switch name {
	case "format":
		template, ok := constant(0)
		if !ok {
			v.fault(n, "format() has a template that is not a constant", `write it as a string, such as format("%s-%03d", doc.a, doc.n)`)
			return
		}
		wants := 0
		for _, m := range verb.FindAllStringSubmatch(template, -1) {
			if m[4] != "" {
				wants++
			}
		}
		if strings.Contains(verb.ReplaceAllString(template, ""), "%") {
			v.fault(n, "format() has an unknown verb", "use %s, %d, %x, %f with flags, width and precision below 100, or %% for a percent sign")
		} else if wants != len(n.Arguments)-1 {
			v.fault(n, fmt.Sprintf("format() has %d verbs and %d values", wants, len(n.Arguments)-1), "give each verb a value")
		}
	case "hmac":
		named, ok := constant(1)
		if _, known := v.secrets[named]; len(n.Arguments) == 2 && (!ok || !known) {
			want := "name one in secrets of the customer's file"
			if known := slices.Sorted(maps.Keys(v.secrets)); len(known) > 0 {
				want = "the secrets are " + strings.Join(known, ", ")
			}
			v.fault(n, "hmac() names no secret", want)
		}
	}
}

// extra translates a call of an extra function.
func (t *translator) extra(node *ast.Node, n *ast.CallNode) {
	callee, ok := n.Callee.(*ast.IdentifierNode)
	if !ok || extras()[callee.Value].do == nil {
		return
	}
	if callee.Value == "hmac" {
		name, _ := n.Arguments[1].(*ast.StringNode) // the validator takes no other
		n.Arguments[1] = &ast.ConstantNode{Value: &secret{t.secrets[name.Value]}}
	}
	ast.Patch(node, charged(callee.Value, false, n.Arguments...))
}
