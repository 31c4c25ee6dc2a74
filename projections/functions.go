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
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm/runtime"
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
		"utc":    {timePart(func(t time.Time) any { return t.Format(time.RFC3339Nano) }), one},
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

// timePart returns a function of a time in UTC, which it gets as RFC 3339.
func timePart(part func(time.Time) any) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		text, ok := args[0].(string)
		if !ok {
			return nil, fmt.Errorf("cannot read %s as a time, it needs a string", typeOf(args[0]))
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, errors.New("cannot read a time that is not RFC 3339") // err holds the text
		}
		return part(t.UTC()), nil
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
var verb = regexp.MustCompile(`%(?:%|[-+ 0#]*[0-9]{0,2}(?:\.[0-9]{1,2})?([sdfx]))`)

// format is fmt.Sprintf for texts and numbers; a null argument returns null. The template was
// checked.
func format(args ...any) (any, error) {
	template, rest := args[0].(string), args[1:]
	if slices.Contains(rest, nil) {
		return nil, nil
	}
	values := make([]any, 0, len(rest))
	for _, m := range verb.FindAllStringSubmatch(template, -1) {
		if m[1] == "" {
			continue
		}
		v := rest[len(values)]
		n, isNumber := toNumber(v)
		text, isText := v.(string)
		switch _, isBool := v.(bool); {
		case m[1] == "s" && isText:
			v = text
		case m[1] == "s" && (isNumber || isBool):
			printed, err := appendValue(nil, v)
			if err != nil {
				return nil, err
			}
			v = string(printed)
		case (m[1] == "d" || m[1] == "x") && isNumber && !n.real:
			v = n.i
		case m[1] == "f" && isNumber && n.real:
			v = n.f
		case m[1] == "f" && isNumber:
			v = new(big.Float).SetInt64(n.i) // exact
		default:
			return nil, fmt.Errorf("cannot format %s as %%%s", typeOf(v), m[1])
		}
		values = append(values, v)
	}
	return fmt.Sprintf(template, values...), nil
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
			if m[1] != "" {
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

var errOverflow = errors.New("integer overflow: the result exceeds 64 bits")

// integers returns both values if they are integers.
func integers(x, y any) (a, b int, ok bool) {
	a, ok1 := x.(int)
	b, ok2 := y.(int)
	return a, b, ok1 && ok2
}

func add(x, y any) (any, error) {
	a, b, ok := integers(x, y)
	if !ok {
		return runtime.Add(x, y), nil
	}
	if s := a + b; (s > a) == (b > 0) {
		return s, nil
	}
	return nil, errOverflow
}

func subtract(x, y any) (any, error) {
	a, b, ok := integers(x, y)
	if !ok {
		return runtime.Subtract(x, y), nil
	}
	if d := a - b; (d < a) == (b > 0) {
		return d, nil
	}
	return nil, errOverflow
}

func multiply(x, y any) (any, error) {
	a, b, ok := integers(x, y)
	if !ok {
		return runtime.Multiply(x, y), nil
	}
	if a == 0 || b == 0 {
		return 0, nil
	}
	if p := a * b; p/b == a && (p < 0) == ((a < 0) != (b < 0)) {
		return p, nil
	}
	return nil, errOverflow
}

// sum adds up a list.
func sum(list any) (total any, err error) {
	total = 0
	switch list := list.(type) {
	case []any:
		for i := 0; i < len(list) && err == nil; i++ {
			total, err = add(total, list[i])
		}
	case []int:
		for i := 0; i < len(list) && err == nil; i++ {
			total, err = add(total, list[i])
		}
	default:
		return nil, fmt.Errorf("cannot sum %s", typeOf(list))
	}
	return total, err
}
