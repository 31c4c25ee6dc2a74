package canonicaltree

import (
	"fmt"
	"strings"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// value is a JSON value to be written in one of many ways.
type value struct {
	kind    Kind
	literal string // of a number, null, true, false
	text    string
	names   []string // of an object; the values are its children
	values  []*value
}

var numberLiterals = rapid.OneOf(
	rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})`),
	rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,25})?`),
	rapid.SampledFrom([]string{"0", "-0", "1", "1.0", "10e-1", "1e999999999", "100", "1e2"}),
)

// Names that are alike at the beginning, and differ in length and escapes.
var names = rapid.OneOf(
	rapid.StringMatching(`[a-c]{0,3}`),
	rapid.StringMatching(`prefix__[a-c]{0,2}`),
	rapid.SampledFrom([]string{"", "\x00", "a\x00", `a"b`, `\`, "é", "🍌", "\uffee", "a/b"}),
	rapid.String(),
)

func drawValue(t *rapid.T, depth int) *value {
	kind := rapid.IntRange(int(Null), int(Object)).Draw(t, "kind")
	if depth == 0 && kind >= int(Array) {
		kind = int(String)
	}
	v := &value{kind: Kind(kind)}
	switch v.kind {
	case Null, False, True:
		v.literal = v.kind.String()
	case Number:
		v.literal = numberLiterals.Draw(t, "number")
	case String:
		v.text = rapid.OneOf(rapid.String(), names).Draw(t, "text")
	case Object:
		most := 6
		if rapid.IntRange(0, 9).Draw(t, "wide") == 0 {
			most = 3 * wide
		}
		v.names = rapid.SliceOfNDistinct(names, 0, most, rapid.ID).Draw(t, "names")
		for range v.names {
			v.values = append(v.values, drawValue(t, depth-1))
		}
	case Array:
		for range rapid.IntRange(0, 2*wide).Filter(func(n int) bool { return n < 5 || n > wide }).Draw(t, "length") {
			v.values = append(v.values, drawValue(t, min(depth-1, 1)))
		}
	}
	return v
}

// write draws one of the ways to write v: members in any order, any white
// space, any escapes.
func (v *value) write(t *rapid.T) string {
	var s strings.Builder
	v.writeTo(t, &s)
	return drawSpace(t) + s.String() + drawSpace(t)
}

func (v *value) writeTo(t *rapid.T, s *strings.Builder) {
	switch v.kind {
	case Array:
		s.WriteByte('[')
		for i, e := range v.values {
			if i > 0 {
				s.WriteByte(',')
			}
			s.WriteString(drawSpace(t))
			e.writeTo(t, s)
			s.WriteString(drawSpace(t))
		}
		s.WriteByte(']')
	case Object:
		s.WriteString("{" + drawSpace(t))
		order := make([]int, len(v.names))
		for i := range order {
			order[i] = i
		}
		for i, k := range rapid.Permutation(order).Draw(t, "order") {
			if i > 0 {
				s.WriteString("," + drawSpace(t))
			}
			s.WriteString(drawString(t, v.names[k]) + drawSpace(t) + ":" + drawSpace(t))
			v.values[k].writeTo(t, s)
			s.WriteString(drawSpace(t))
		}
		s.WriteByte('}')
	case String:
		s.WriteString(drawString(t, v.text))
	default:
		s.WriteString(v.literal)
	}
}

func drawSpace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "}).Draw(t, "space")
}

func drawString(t *rapid.T, text string) string {
	if !rapid.Bool().Draw(t, "escapes") {
		return string(AppendString(nil, text))
	}
	s := []byte{'"'}
	for _, r := range text {
		switch rapid.IntRange(0, 2).Draw(t, "escape") {
		case 0:
			if r == '/' {
				s = append(s, '\\')
			}
			quoted := AppendString(nil, string(r))
			s = append(s, quoted[1:len(quoted)-1]...)
		case 1:
			for _, unit := range utf16.Encode([]rune{r}) {
				s = fmt.Appendf(s, `\u%04x`, unit)
			}
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				s = fmt.Appendf(s, `\u%04X`, unit)
			}
		}
	}
	return string(append(s, '"'))
}

// change returns a copy of v that differs from it in one place, also by number
// value.
func (v *value) change(t *rapid.T) *value {
	c := *v
	c.names = append([]string(nil), v.names...)
	c.values = append([]*value(nil), v.values...)
	if len(v.values) > 0 && rapid.IntRange(0, 3).Draw(t, "deeper") > 0 {
		i := rapid.IntRange(0, len(v.values)-1).Draw(t, "child")
		c.values[i] = v.values[i].change(t)
		return &c
	}
	ways := []string{"wrap"}
	switch v.kind {
	case Number:
		ways = append(ways, "digit")
	case String:
		ways = append(ways, "text")
	case Array, Object:
		ways = append(ways, "add")
		if len(v.values) > 0 {
			ways = append(ways, "remove")
		}
	}
	switch rapid.SampledFrom(ways).Draw(t, "way") {
	case "wrap":
		return &value{kind: Array, values: []*value{v}}
	case "digit":
		digits, negative := strings.CutPrefix(v.literal, "-")
		c.literal = "1" + digits
		if negative {
			c.literal = "-" + c.literal
		}
	case "text":
		c.text += rapid.StringN(1, 3, -1).Draw(t, "more")
	case "add":
		c.values = append(c.values, &value{kind: Null, literal: "null"})
		if v.kind == Object {
			c.names = append(c.names, strings.Join(v.names, "")+"+")
		}
	case "remove":
		last := len(v.values) - 1
		c.values = c.values[:last]
		if v.kind == Object {
			c.names = c.names[:last]
		}
	}
	return &c
}
