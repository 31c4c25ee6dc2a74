package projections

import (
	"flag"
	"fmt"
	"math"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the table of functions into docs/projections.md")

// samples are the columns of the table: values of each kind.
var samples = []string{`null`, `"12"`, `7`, `-2.5`, `9007199254740993`, `1e19`, `"Zoë-1234"`}

// shown are the rows: each operator and function, of x.
var shown = []string{
	`-x`, `x + 1`, `x - 0.5`, `x * 2`, `x / 2`, `x % 2`, `x ** 2`, `x == 7`, `x > 7`, `x in [7, "12"]`, `x ?? 0`,
	`x contains "1"`, `x startsWith "1"`, `x endsWith "4"`, `x matches "^Zo.-"`, `x[-4:]`, `x[:3]`,
	`len(x)`, `type(x)`, `abs(x)`, `ceil(x)`, `floor(x)`, `round(x)`, `int(x)`, `float(x)`, `string(x)`, `json(x)`,
	`format("%s", x)`, `format("%d", x)`, `format("%x", x)`, `format("%.1f", x)`, `sha256(x)[:8]`, `hmac(x, "k")[:8]`,
	`utc(x)`, `year(x)`, `month(x)`, `day(x)`, `hour(x)`, `minute(x)`, `second(x)`, `weekday(x)`, `unix(x)`,
	`trim(x)`, `trimPrefix(x, "1")`, `trimSuffix(x, "4")`, `upper(x)`, `lower(x)`, `split(x, "-")`, `replace(x, "1", "ë")`,
	`indexOf(x, "1")`, `lastIndexOf(x, "4")`, `hasPrefix(x, "Z")`, `hasSuffix(x, "4")`,
	`join([x, x], "-")`, `max([1, x])`, `min([1, x])`, `mean([1, x])`, `median([x])`, `sum([1, x])`, `first([x])`, `last([x])`, `get([x], 0)`,
	`take([x, 1], 1)`, `reverse([1, x])`, `concat([1], [x])`, `flatten([[x], 1])`, `uniq([x, x])`, `sort([x, x])`,
	`all([x], # == 7)`, `any([x], # == 7)`, `none([x], # == 7)`, `one([x], # == 7)`, `count([x], # == 7)`, `filter([x], # == 7)`,
	`map([x], # == 7)`, `find([x], # == 7)`, `findIndex([x], # == 7)`, `findLast([x], # == 7)`, `findLastIndex([x], # == 7)`,
	`groupBy([x], #)`, `sortBy([x, x], #)`, `reduce([x], #acc + #, 1)`,
}

const (
	tableBegins = "<!-- generated: go test ./projections -run Table -update -->\n"
	tableEnds   = "<!-- end of the table -->\n"
)

// answer returns the value of an expression of x as the table shows it.
func answer(t *testing.T, text, x string) string {
	p := compile(t, Spec{Fields: []Field{{Out: "v", Expr: strings.ReplaceAll(ofDoc(text), "$x", "doc.x")}}, Secrets: map[string][]byte{"k": []byte("key")}})
	out, _, err := p.Project(nil, parseText(t, `{"x":`+x+`}`))
	if err != nil {
		return "error"
	}
	value := strings.TrimSuffix(strings.TrimPrefix(string(out), "{"), "}")
	if value == "" {
		return "null"
	}
	return strings.TrimPrefix(value, `"v":`)
}

// ofDoc puts $x in place of the name x.
func ofDoc(text string) string {
	word := func(c byte) bool { return c == '%' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	var b strings.Builder
	for i := range len(text) {
		alone := text[i] == 'x' && (i == 0 || !word(text[i-1])) && (i == len(text)-1 || !word(text[i+1]))
		if alone {
			b.WriteByte('$')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// TestTableOfFunctions holds the page to what every operator and function returns. A function
// that has no row is not offered.
func TestTableOfFunctions(t *testing.T) {
	cell := func(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }
	table := "| of x |"
	for _, x := range samples {
		table += " " + cell(x) + " |"
	}
	table += "\n|" + strings.Repeat(" --- |", 1+len(samples)) + "\n"
	for _, text := range shown {
		table += "| " + cell(text) + " |"
		for _, x := range samples {
			if a := answer(t, text, x); a == "error" {
				table += " error |"
			} else {
				table += " " + cell(a) + " |"
			}
		}
		table += "\n"
	}
	for name := range library() {
		require.True(t, slices.ContainsFunc(shown, func(s string) bool { return strings.HasPrefix(s, name+"(") }), "%s() has no row", name)
	}
	for name := range predicates {
		require.True(t, slices.ContainsFunc(shown, func(s string) bool { return strings.HasPrefix(s, name+"(") }), "%s() has no row", name)
	}
	const page = "../docs/projections.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), tableBegins)
	require.True(t, ok, "the page has no place for the table")
	shows, after, ok := strings.Cut(rest, tableEnds)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+tableBegins+table+tableEnds+after), 0o644))
		return
	}
	for i, line := range strings.SplitAfter(table, "\n") {
		require.Equal(t, line, append(strings.SplitAfter(shows, "\n"), make([]string, i)...)[i], "run go test ./projections -run Table -update")
	}
	require.Equal(t, len(table), len(shows), "run go test ./projections -run Table -update")
}

// Each line was wrong once: rounded, wrapped around, counted in bytes, or in Go's syntax.
func TestResultsAreExact(t *testing.T) {
	const doc = `{"s": "Zoë-1234", "least": -9223372036854775808, "most": 9223372036854775807, "big": 9007199254740993, "far": 1e19, "m": 1000000.0,
	  "whole": 12.0, "long": 12345678901234567890123456789012345678901, "money": 123456789012345678.25, "odd": 0.10000000000000001, "o": {"b": 1.0, "a": [true, null]},
	  "list": [3, 1.5, 2], "keyed": [{"k": 2, "n": "a"}, {"k": 1.0, "n": "b"}, {"k": 1, "n": "c"}], "at": "2026-03-01T00:30:00.50+02:00", "later": "2026-03-01T00:30:00.509+02:00"}`
	for text, want := range map[string]string{
		`-doc.least`: "error: integer overflow", `abs(doc.least)`: "error: integer overflow", `abs(-doc.most)`: "9223372036854775807", `-doc.most - 1`: "-9223372036854775808",
		`int(doc.far)`: "error: integer overflow", `int("9223372036854775808")`: "error: integer overflow", `int("-08")`: "-8", `int(-2.9)`: "-2", `int("12.0")`: "error: it needs the digits",
		`int("٣")`: "error: it needs the digits", `float("0x10")`: "error: as JSON writes it", `float("inf")`: "error: as JSON writes it", `float("1.50")`: "1.5", `float(doc.big)`: "9007199254740993",
		`float("12345678901234567890")`: "12345678901234567890", `round(doc.big)`: "9007199254740993", `ceil(doc.big)`: "9007199254740993", `floor(-2.5)`: "-3", `round(-2.5)`: "-3",
		`mean([doc.big, doc.big])`: "9007199254740993", `median([doc.big, 1, 9007199254740994])`: "9007199254740993", `max(doc.big, 9007199254740992.0)`: "9007199254740993", `mean([])`: "null",
		`doc.big + 0.5`: "error: more digits than 64 bits hold", `6438.5 * 1399085596674`: "9008012614185549", `doc.big * 1.0`: "9007199254740993", `doc.big / 1`: "9007199254740993", `doc.big / 2`: "error: more digits", `9007199254740992 / 4`: "2251799813685248", `doc.list % 2.5`: "error: of which % is not computed", `["a"] contains "a"`: `error: cannot look for a string in array with contains`, `doc.least / -1`: "error: integer overflow",
		`doc.far + 1`: "error: more digits", `doc.far * 2`: "20000000000000000000", `doc.far / 10`: "1000000000000000000", `doc.far - doc.far + 1`: "1", `doc.far % 2`: "error: of a fraction; it needs whole numbers",
		`sum([doc.far, 1])`: "error: more digits", `reduce([doc.big, 0.5], #acc + #)`: "error: more digits", `1e308 * 10`: "error: more digits", `1 / 0.0`: "error: cannot divide by zero", `5 / 0`: "error: cannot divide by zero",
		`3 ** 39`: "4052555153018976267", `3 ** 40`: "error: integer overflow", `2 ** -1`: "error: negative exponent", `2 ** 0.5`: "error: of a fraction", `(-2) ** 63`: "-9223372036854775808", `0 ** 0`: "1",
		`doc.whole % 5`: "2", `2.5 % 2`: "error: of which % is not computed", `doc.list[1] % 2`: "error: use round(), floor() or ceil() first", `-7 % 2`: "-1", `doc.least % -1`: "0", `doc.whole / 5`: "2.4", `type(doc.whole)`: `"int"`, `+doc.s`: "error: cannot compute number + string",
		`string(doc.m)`: `"1000000"`, `string(doc.o)`: `"{\"a\":[true,null],\"b\":1}"`, `string(doc.list)`: `"[3,1.5,2]"`, `string(1e-7)`: `"1e-07"`, `string(true)`: `"true"`, `json(doc.long)`: `"12345678901234567890123456789012345678901"`,
		`doc.long`: "12345678901234567890123456789012345678901", `-doc.money`: "-123456789012345678.25", `doc.money > 123456789012345678`: "true", `doc.money == 123456789012345680`: "false", `abs(-doc.long) == doc.long`: "true",
		`doc.long == float("12345678901234567890123456789012345678902")`: "false", `[doc.long, doc.far]`: "[12345678901234567890123456789012345678901,10000000000000000000]", `doc.odd * 2`: "0.2", `doc.money * 2`: "error: more digits",
		`format("%.2f", doc.money)`: `"123456789012345678.25"`, `format("%.1f|%+07.2f|% .0f|%-6.1f|%6.1f|%.2f", 0.25, 2.675, -0.5, 1.25, 1.25, 1.005)`: `"0.3|+002.68|-1|1.3   |   1.3|1.01"`, `format("%f", 1e300 * 1)`: `"1` + strings.Repeat("0", 300) + `.000000"`,
		`format("%d", doc.whole)`: `"12"`, `format("%d", 1.5)`: "error: whole number", `format("%6s|%.2s", "Zoë", "ëa")`: `"   Zoë|ëa"`,
		`doc.s[-4:]`: `"1234"`, `doc.s[:3]`: `"Zoë"`, `doc.s[2:4]`: `"ë-"`, `doc.s[5:2]`: `""`, `doc.s[-99:99]`: `"Zoë-1234"`, `doc.s[0:1.5]`: "error: whole numbers", `indexOf(doc.s, "-")`: "3", `lastIndexOf(doc.s, "4")`: "7",
		`indexOf(doc.s, "x")`: "-1", `len(doc.s)`: "8", `first(doc.s)`: "error: of a text write", `last(doc.s)`: "error: of a text write", `take(doc.s, 2)`: "error: of a text write", `doc.s[indexOf(doc.s, "-") + 1:]`: `"1234"`, `doc.big[1:]`: "error: cannot cut number",
		`doc.list contains 1`: "error: cannot use number with contains, it needs strings; write string(doc.x), or 7 in doc.list to look in a list", `doc.list contains doc.s`: `error: cannot look for a string in array with contains; write "x" in doc.list`, `doc.s contains doc.big`: "error: cannot use number with contains", `doc.big matches "1"`: "error: cannot use number with matches",
		`utc(doc.at)`: `"2026-02-28T22:30:00.500000000Z"`, `utc(doc.at) < utc(doc.later)`: "true", `utc("2026-01-01T00:00:00.1234567891Z")`: "error: nine digits", `utc("9999-12-31T23:59:59-01:00")`: "error: years 0 to 9999",
		`utc("2026-01-01T0:00:00Z")`: "error: not RFC 3339", `utc("2026-01-01T00:00:00,5Z")`: "error: not RFC 3339", `year("0000-01-01T00:00:00+01:00")`: "error: years",
		`sortBy(doc.keyed, .k)`: `[{"k":1,"n":"b"},{"k":1,"n":"c"},{"k":2,"n":"a"}]`, `sortBy(doc.keyed, .k, "desc")`: `[{"k":2,"n":"a"},{"k":1,"n":"b"},{"k":1,"n":"c"}]`, `map(sortBy(sortBy(doc.keyed, .n, "desc"), .k), .n)`: `["c","b","a"]`,
		`sort([2, 1.5, 1])`: "[1,1.5,2]", `sort([doc.big, 9007199254740992])`: "[9007199254740992,9007199254740993]", `sort(["b", 1])`: "error: cannot order string and number", `sort([null, 1])`: "error: leave others out", `sort([2, 1], "up")`: `error: use "asc" or "desc"`,
		`uniq([doc.big, 9007199254740992, 1, 1.0])`: "[9007199254740993,9007199254740992,1]", `map(groupBy(doc.keyed, .k)[1], .n)`: `["b","c"]`, `groupBy(doc.keyed, [.k])`: "error: cannot group by array", `count([true, null, false])`: "1", `count([1])`: "error: as a condition",
		`flatten([]) ?? 1`: "[]", `split("", "-", 0) ?? 1`: "[]", `{(doc.big): 1}`: "error: cannot name a member by number", `join([1])`: "error: an array of strings", `min([1, null])`: "error: leave others out", `sum(["a"])`: "error: cannot compute number + string", `{"k": 2 ** 3}`: `{"k":8}`,
	} {
		p, err := Compile(Spec{Customer: "acme", Name: "x", Fields: []Field{{Out: "v", Expr: text}}})
		var out []byte
		if err == nil {
			out, _, err = p.Project(nil, parseText(t, doc))
		}
		if part, fails := strings.CutPrefix(want, "error: "); fails {
			require.ErrorContains(t, err, part, text)
			continue
		}
		require.NoError(t, err, text)
		if want = `{"v":` + want + `}`; want == `{"v":null}` {
			want = "{}"
		}
		require.Equal(t, want, string(out), text)
	}
}

// A literal that a program would hold with other digits is an error, as are bytes.
func TestLiteralsAreExact(t *testing.T) {
	for text, fine := range map[string]bool{
		`0.1`: true, `1e3`: true, `.5`: true, `1_000.5`: true, `0x10`: true, `9007199254740993`: true, `0.10000000000000001`: true, `"é" + string(1.25)`: true,
		`9007199254740993.5`: false, `9007199254740993.0`: false, `9223372036854775808`: false, `"é" + string(12345678901234567.5)`: false, `1e400`: false, `b"abc"`: false,
	} {
		_, err := Compile(Spec{Fields: []Field{{Out: "v", Expr: text}}})
		require.Equal(t, fine, err == nil, "%s: %v", text, err)
	}
}

// drawNumber draws a number as JSON: whole and not, near every limit.
func drawNumber(t *rapid.T, label string) string {
	whole := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-9, 9), rapid.SampledFrom([]int64{1 << 53, 1<<53 + 1, -1<<53 - 1, 1 << 62, math.MinInt64, math.MaxInt64, 3037000500}))
	switch rapid.IntRange(0, 3).Draw(t, label+" kind") {
	case 0:
		return fmt.Sprint(whole.Draw(t, label))
	case 1:
		return fmt.Sprintf("%d.0", whole.Draw(t, label))
	case 2:
		return fmt.Sprintf("%d.%d", rapid.Int64Range(-1<<40, 1<<40).Draw(t, label), rapid.IntRange(0, 999).Draw(t, label+" fraction"))
	}
	return fmt.Sprintf("%de%d", rapid.Int64Range(-99, 99).Draw(t, label), rapid.IntRange(-30, 30).Draw(t, label+" power"))
}

// The result of an operation is exact, or below 2^52 the float64 nearest to it, or an error: the
// oracle computes with rationals. An exact result within 64 bits is no error.
func TestArithmeticIsExactOrFails(t *testing.T) {
	operators := map[string]func(x, y *big.Rat) *big.Rat{
		"+": func(x, y *big.Rat) *big.Rat { return new(big.Rat).Add(x, y) }, "-": func(x, y *big.Rat) *big.Rat { return new(big.Rat).Sub(x, y) },
		"*": func(x, y *big.Rat) *big.Rat { return new(big.Rat).Mul(x, y) }, "/": func(x, y *big.Rat) *big.Rat { return new(big.Rat).Quo(x, y) },
	}
	p := map[string]*Projection{}
	for op := range operators {
		p[op] = compile(t, Spec{Fields: []Field{{Out: "v", Expr: "doc.a " + op + " doc.b"}}})
	}
	limit := new(big.Rat).SetInt64(halves)
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNumber(t, "a"), drawNumber(t, "b")
		doc := parseText(t, fmt.Sprintf(`{"a":%s,"b":%s}`, a, b))
		for op, do := range operators {
			x, y := valueOf(t, a), valueOf(t, b)
			out, _, err := p[op].Project(nil, doc)
			if op == "/" && y.Sign() == 0 {
				require.ErrorContains(t, err, "divide by zero")
				continue
			}
			want := do(x, y)
			f, exact := want.Float64()
			fits := want.IsInt() && want.Num().IsInt64()
			if err != nil {
				require.False(t, fits || exact && !want.IsInt(), "%s %s %s: %v", a, op, b, err)
				require.GreaterOrEqual(t, new(big.Rat).Abs(want).Cmp(limit), 0, "%s %s %s: %v", a, op, b, err)
				continue
			}
			got, ok := new(big.Rat).SetString(strings.TrimSuffix(strings.TrimPrefix(string(out), `{"v":`), "}"))
			require.True(t, ok)
			if fits {
				require.Zero(t, got.Cmp(want), "%s %s %s = %s", a, op, b, out)
				continue
			}
			near, _ := got.Float64()
			require.Equal(t, f, near, "%s %s %s = %s", a, op, b, out)
			require.True(t, exact || math.Abs(f) < halves, "%s %s %s = %s", a, op, b, out)
		}
	})
}

// valueOf returns the value that an expression has for a number: exact if it is whole within 64
// bits, else that of the nearest float64.
func valueOf(t require.TestingT, literal string) *big.Rat {
	v, ok := new(big.Rat).SetString(literal)
	require.True(t, ok)
	if v.IsInt() && v.Num().IsInt64() {
		return v
	}
	f, _ := v.Float64()
	return new(big.Rat).SetFloat64(f)
}

// Numbers compare, sort and print by their value, of any number of digits.
func TestNumbersKeepTheirValue(t *testing.T) {
	p := compile(t, Spec{Fields: []Field{
		{Out: "less", Expr: "doc.a < doc.b"}, {Out: "same", Expr: "doc.a == doc.b"}, {Out: "a", Expr: "doc.a"}, {Out: "most", Expr: "max(doc.a, doc.b) == doc.a"},
		{Out: "found", Expr: "doc.a in [doc.b]"}, {Out: "groups", Expr: "len(groupBy([doc.a, doc.b], #))"}, {Out: "minus", Expr: "-doc.a"}, {Out: "sorted", Expr: "sort([doc.a, doc.b])[0] == doc.a"},
	}})
	digits := rapid.StringMatching(`-?[1-9][0-9]{0,25}(\.[0-9]{1,25})?(e-?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a := digits.Draw(t, "a")
		b := rapid.OneOf(digits, rapid.Just(a)).Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		out, _, err := p.Project(nil, parseText(t, fmt.Sprintf(`{"a":%s,"b":%s}`, a, b)))
		if err != nil {
			require.ErrorContains(t, err, "integer overflow") // minus the smallest
			return
		}
		tree := parseText(t, string(out))
		raw := func(name string) string { return string(tree.Get(name).Raw()) }
		shown, ok := new(big.Rat).SetString(raw("a"))
		require.True(t, ok)
		if x.Cmp(shown) != 0 { // printed with more digits than a float64 has
			f, _ := x.Float64()
			g, _ := shown.Float64()
			require.Equal(t, f, g)
			return
		}
		if y.Cmp(valueShown(t, b)) != 0 {
			return
		}
		minus, _ := new(big.Rat).SetString(raw("minus"))
		require.Zero(t, minus.Cmp(new(big.Rat).Neg(x)), "%s", out)
		order, groups := x.Cmp(y), "2"
		if order == 0 {
			groups = "1"
		}
		for name, want := range map[string]string{
			"less": fmt.Sprint(order < 0), "same": fmt.Sprint(order == 0), "most": fmt.Sprint(order >= 0), "found": fmt.Sprint(order == 0), "groups": groups, "sorted": fmt.Sprint(order <= 0),
		} {
			require.Equal(t, want, raw(name), "%s of %s and %s", name, a, b)
		}
	})
}

// valueShown returns the value that a number prints with.
func valueShown(t require.TestingT, literal string) *big.Rat {
	text, err := appendValue(nil, numberOf(literal))
	require.NoError(t, err)
	v, ok := new(big.Rat).SetString(string(text))
	require.True(t, ok)
	return v
}

// Texts are cut and searched by characters.
func TestTextsAreCutByCharacters(t *testing.T) {
	p := compile(t, Spec{Fields: []Field{{Out: "cut", Expr: "doc.s[doc.a:doc.b]"}, {Out: "at", Expr: "indexOf(doc.s, doc.part)"}, {Out: "last", Expr: "lastIndexOf(doc.s, doc.part)"}, {Out: "len", Expr: "len(doc.s)"}}})
	letters := rapid.StringOfN(rapid.SampledFrom([]rune("aë✓🎈")), 0, 8, -1)
	rapid.Check(t, func(t *rapid.T) {
		s, part := letters.Draw(t, "s"), letters.Draw(t, "part")
		a, b := rapid.IntRange(-10, 10).Draw(t, "a"), rapid.IntRange(-10, 10).Draw(t, "b")
		runes := []rune(s)
		from, to := a, b
		if from < 0 {
			from = max(0, from+len(runes))
		}
		if to < 0 {
			to = max(0, to+len(runes))
		}
		to = min(to, len(runes))
		from = min(from, to)
		at, last := -1, -1
		for i := range len(runes) + 1 {
			if strings.HasPrefix(string(runes[i:]), part) {
				if last = i; at < 0 {
					at = i
				}
			}
		}
		out, _, err := p.Project(nil, parseText(t, fmt.Sprintf(`{"s":%q,"part":%q,"a":%d,"b":%d}`, s, part, a, b)))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(`{"cut":%q,"at":%d,"last":%d,"len":%d}`, string(runes[from:to]), at, last, utf8.RuneCountInString(s)), string(out))
	})
}

// A query compares by the type of the value in the document, as the page says.
func TestQueriesCompareByTheTypeOfTheValue(t *testing.T) {
	doc := `{"l": ["5", "5.0", 5, 5.0, "10", 0, true, "true", false, null, "abc", 9007199254740993]}`
	for query, want := range map[string]string{
		`#(=="5")#`: `["5",5,5.0]`, `#(==5)#`: `["5",5,5.0]`, `#(==5.0)#`: `["5.0",5,5.0]`, `#(<5)#`: `["10",0]`, `#(=="abc")#`: `[0,"abc"]`, `#(==true)#`: `[0,true,"true"]`, `#(=="true")#`: `[0,true,"true"]`,
		`#(>=false)#`: `[5,5.0,0,true,"true",9007199254740993]`, `#(==~null)#`: `[null]`, `#(==9007199254740991)#`: `[]`, `#(=="9007199254740992")#`: `[9007199254740993]`,
	} {
		require.Equal(t, `{"v":`+want+`}`, project(t, Spec{Fields: []Field{{Out: "v", Path: "l." + query}}}, doc), query)
	}
	for query, want := range map[string]string{
		`#(==9007199254740992)`: "2^53 or more, which a query rounds; use an expression", `#(n>=-1e19)#`: "2^53 or more", `#(n==1e999)`: "2^53 or more", `#(n==08)`: "no number, text", `#(n==0x10)`: "no number, text",
	} {
		_, err := Compile(Spec{Fields: []Field{{Out: "v", Path: "l." + query}}})
		require.ErrorContains(t, err, want, query)
	}
}
