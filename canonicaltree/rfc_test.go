package canonicaltree

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// productions are accepted texts at the borders of each rule of RFC 8259, and refused ones.
var productions = []struct {
	section           string
	accepted, refused []string
}{
	{
		"2 structural characters and white space",
		[]string{"[]", "{}", " \t\n\r[ \t\n\r1\t,\n2\r]\n", "{ \"a\"\t:\r1\n,\"b\":[ ] }", "[[[[]]]]", `[{"a":[{}]}]`},
		[]string{
			"[", "]", "{", "}", "[}", "{]", "[[]", "[]]", "{}}", ",", "[,]", "[,1]", "[1,]", "[1,,2]", "[1,,]", "[1 2]", "[1:2]", "[1;2]", `["a":1]`,
			"[\v]", "[\f]", "\u00a0[]", "\u2028[]", "\u2060[]", "\ufeff[]", "\xef\xbb{}", "\xef\xbb\xbf", "[]\x00", "\x00[]",
			"[1]x", "[1]#", "/**/[]", "[]//", "[]/*", "[1/*c*/]", "(1)", "<null>", "*", "\xe9", "[\x00]", "[a\n", "['", "[\"a", "[\"a\",\n4\n,1,",
		},
	},
	{"2 one value", []string{"1", `""`, "null", "\n1\n"}, []string{"", " ", "1 2", "1,2", `""""`, "nullnull", "[][]", "{}{}"}},
	{
		"3 literal names",
		[]string{"true", "false", "null", "[true,false,null]"},
		[]string{"True", "FALSE", "Null", "nul", "tru", "fals", "nulll", "truefalse", "nan", "undefined", "[nul]", "[truth]", "[tru\x00]", "\\u0074rue"},
	},
	{
		"4 objects",
		[]string{`{"":0}`, `{"a":1,"A":2}`, `{"a b":{"":null}}`, `{"\u0000":1}`, `{"` + strings.Repeat("x", 300) + `":1}`},
		[]string{
			`{"a"}`, `{"a":}`, `{:1}`, `{"a"1}`, `{"a",1}`, `{"a"::1}`, `{"a":1,}`, `{,"a":1}`, `{"a":1,,"b":2}`, `{"a":1 "b":2}`, `{"a":1;"b":2}`,
			`{a:1}`, `{'a':1}`, `{1:1}`, `{null:null}`, `{[1]:1}`, `{"a":'b'}`, `{"a":1`, `{"a":`, `{"a"`, `{"a`, `{"a":1]`, `{"a":1}#`, "{\"a\":1,\x80}", "{\"\x80\":0,}", "{🍌}",
		},
	},
	{"4 names that are not unique, as RFC 7493 wants it", nil, []string{`{"a":1,"a":1}`, `{"a":1,"a":2}`, `{"a":0,"\u0061":0}`, `[{"x":{"a":1,"b":2,"a":3}}]`, `{"a":{"b":1},"a":{"c":2}}`}},
	{
		"6 numbers",
		[]string{
			"0", "-0", "9", "10", "-1", "1234567890", "0.0", "-0.5", "1.50", "0.000001", "123.456e78", "1e0", "1E5", "1e+5", "1E-05", "0e1", "0e+1", "-1.5E+3", "[ 4]", "1e00",
			strings.Repeat("9", 1000), "-" + strings.Repeat("9", 30) + "." + strings.Repeat("1", 30), "1e400", "-1e-400", "0." + strings.Repeat("0", 400) + "1", "123123e100000",
			"18446744073709551616", "-9223372036854775809", "1.7976931348623159e308",
		},
		[]string{
			"+1", "-", "--1", "- 1", "01", "-01", "00", "012.3", "1.", "-1.", ".5", "-.5", "1.e1", "0.e1", "1.2.3", "1e", "1E", "1e+", "1e-", "0e", "0E+", "1.0e", "1e1.5", "1eE2", "1e+-2", "1 000", "1_000", "1,000.0 ",
			"0x1", "0x42", "1a", "-a", "-1x", "1+2", "++1", "Inf", "-Infinity", "NaN", "-NaN", "\uff11", "1\xe5", "1e1\xe5", "0\xe5", "[1\x00]", "[-]", "[-1.0.]", "[0.1.2]",
		},
	},
	{
		"7 strings",
		[]string{
			`""`, `" "`, `"a/b"`, `"\"\\\/\b\f\n\r\t"`, `"\u0000"`, `"\u001F"`, `"\u0061\u00e9\u20AC\uABCD"`, `"\\u0061"`, `"\\a"`, `"/*not*//a comment"`, `"\ud83c\udf4c"`, `"\uDBFF\uDFFF"`, `"\u0060\u012a\u12AB"`,
			"\"\x7f\"", "\"é€🍌\"", "\"\u2028\u2029\u200b\u2064\"", "\"\ufdd0\ufffe\uffff\U0001fffe\U0010ffff\"", `"\uFFFE\uFDD0\uDBFF\uDFFE"`, "\"" + strings.Repeat("long ", 1000) + "\"",
		},
		[]string{
			`"`, `"""`, `"a`, `a`, `'a'`, `"\`, `"\"`, `"\x"`, `"\a"`, `"\0"`, `"\'"`, `"\U0061"`, `"\u"`, `"\u1"`, `"\u12"`, `"\u123"`, `"\u123g"`, `"\u 123"`, `"\u+123"`, `"\"x`, `"\\\"`, `"\🍌"`, `\n`, `["\`, `"\u00A"`,
			"\"\x00\"", "\"\x01\"", "\"\x1f\"", "\"\n\"", "\"\t\"", "\"\r\"", "\"a\x00a\"", "\"\\\x00\"", "\"\\\t\"", "\"\\\xe5\"", "\"\\u\xe5\"",
		},
	},
	{
		"8.1 UTF-8",
		[]string{"\"\u0080\u07ff\u0800\uffff\U00010000\U0010ffff\""},
		[]string{
			"\"\x80\"", "\"\xbf\"", "\"\xc0\xaf\"", "\"\xc1\xbf\"", "\"\xe0\x80\xaf\"", "\"\xf0\x80\x80\xaf\"", "\"\xfc\x83\xbf\xbf\xbf\xbf\"", "\"\xf4\x90\x80\x80\"", "\"\xf4\xbf\xbf\xbf\"", "\"\xed\xa0\x80\"", "\"\xed\xbf\xbf\"",
			"\"\xe2\x82\"", "\"\xf0\x9f\x8d\"", "\"\xe9\"", "\"\xff\"", "\"\xfe\"", "[\"\xe6\x97\xa5\xd1\x88\xfa\"]", "[\x00\"\x00\xe9\x00\"\x00]\x00", "\x00[\x00\"\x00\xe9\x00\"\x00]", "\xff\xfe[\x00]\x00", "{\"\xb9\":1}",
		},
	},
	{
		"8.2 surrogates without their other half",
		nil,
		[]string{
			`"\ud800"`, `"\udc00"`, `"\uDFFF"`, `"\ud800x"`, `"\ud800\n"`, `"\ud800\u0061"`, `"\ud800\ud800"`, `"\udc00\ud800"`, `"\ud800\ud800\udc00"`, `"\ud83c\u"`, `"\ud83c\udf4"`, `"\ud83c\"`, `{"\udead":1}`, `["\uD83C\uDF4C\uD83C"]`,
		},
	},
}

// RFC 8259, production by production.
func TestRFC8259(t *testing.T) {
	for _, c := range productions {
		t.Run(c.section, func(t *testing.T) {
			for _, doc := range c.accepted {
				for _, numbers := range []Numbers{Literal, Decimal} {
					want, err := referenceEncoding([]byte(doc), numbers)
					require.NoError(t, err, "%q", doc)
					root := parse(t, doc)
					assert.Equal(t, want, root.AppendEncoding(nil, numbers), "%q", doc)
					same(t, numbers, doc, string(root.AppendCanonical(nil)))
				}
			}
			for _, doc := range c.refused {
				refused(t, doc)
			}
		})
	}
}

// RFC 8785 sorts members, drops white space and spells strings in one way: what
// it makes the same is the same here. It also spells numbers in one way, which is
// so here for decimal numbers alone. Its sample of a document, and pairs of our
// own for each of its rules.
func TestRFC8785(t *testing.T) {
	for _, c := range []struct {
		rule, in, out string
		numbers       Numbers
	}{
		{
			"3.2.2 and 3.2.3, the sample", `{
  "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`, Decimal,
		},
		{
			"3.2.3 sorting, its sample", `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`, Literal,
		},
		{"3.2.1 white space", "\t[ 1 , { \"b\" :\n2 , \"a\" : [ ] } ]\r\n", `[1,{"a":[],"b":2}]`, Literal},
		{"3.2.2.2 escapes that have a short form", `"\u0008\u0009\u000A\u000C\u000D\u0022\u005C"`, `"\b\t\n\f\r\"\\"`, Literal},
		{"3.2.2.2 escapes that need none", `"\u002f\u007F\u0080\u00E9\u2028\uFFFF\uD83C\uDF4C"`, "\"/\u007f\u0080é\u2028\uffff🍌\"", Literal},
		{"3.2.2.2 escapes that have no other form", `"\u0000\u000B\u001F"`, `"\u0000\u000b\u001f"`, Literal},
		{"3.2.3 members of members, elements stay", `{"b":[{"d":1,"c":2},3],"a":{"z":0,"":1}}`, `{"a":{"":1,"z":0},"b":[{"c":2,"d":1},3]}`, Literal},
		{"3.2.3 names that begin alike", `{"aa":1,"a":2,"A":3,"":4,"a ":5}`, `{"":4,"A":3,"a":2,"a ":5,"aa":1}`, Literal},
		{"3.2.3 no locale", `{"péché":1,"peach":2,"sin":3,"pêche":4}`, `{"peach":2,"péché":1,"pêche":4,"sin":3}`, Literal},
	} {
		t.Run(c.rule, func(t *testing.T) {
			same(t, c.numbers, c.in, c.out)
		})
	}
	// Section 3.1: a string is kept as it is, and no form of Unicode is another.
	different(t, Literal, `"A\u030a"`, `"\u00c5"`)
	different(t, Literal, `{"A\u030a":1}`, `{"\u00c5":1}`)
	different(t, Literal, `[1,2]`, `[2,1]`)
}

// RFC 8785, appendix B: float64 values by their bits, and how they are spelled.
// The number has the same decimal value however else it is written, and no two
// rows are the same.
func TestRFC8785Numbers(t *testing.T) {
	seen := map[Digest]string{}
	for _, c := range []struct {
		bits     uint64
		spelling string
	}{
		{0x0000000000000000, "0"},
		{0x0000000000000001, "5e-324"},
		{0x8000000000000001, "-5e-324"},
		{0x7fefffffffffffff, "1.7976931348623157e+308"},
		{0xffefffffffffffff, "-1.7976931348623157e+308"},
		{0x4340000000000000, "9007199254740992"},
		{0xc340000000000000, "-9007199254740992"},
		{0x4430000000000000, "295147905179352830000"},
		{0x44b52d02c7e14af5, "9.999999999999997e+22"},
		{0x44b52d02c7e14af6, "1e+23"},
		{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
		{0x444b1ae4d6e2ef4e, "999999999999999700000"},
		{0x444b1ae4d6e2ef4f, "999999999999999900000"},
		{0x444b1ae4d6e2ef50, "1e+21"},
		{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
		{0x3eb0c6f7a0b5ed8d, "0.000001"},
		{0x41b3de4355555553, "333333333.3333332"},
		{0x41b3de4355555554, "333333333.33333325"},
		{0x41b3de4355555555, "333333333.3333333"},
		{0x41b3de4355555556, "333333333.3333334"},
		{0x41b3de4355555557, "333333333.33333343"},
		{0xbecbf647612f3696, "-0.0000033333333333333333"},
		{0x43143ff3c1cb0959, "1424953923781206.2"},
	} {
		value := math.Float64frombits(c.bits)
		read, err := strconv.ParseFloat(c.spelling, 64)
		require.NoError(t, err)
		require.Equal(t, value, read, "the table is mistyped at %s", c.spelling)
		for _, other := range []string{strconv.FormatFloat(value, 'e', -1, 64), strconv.FormatFloat(value, 'f', -1, 64), strings.ToUpper(c.spelling)} {
			same(t, Decimal, c.spelling, other)
		}
		digest := parse(t, c.spelling).Sum(Decimal)
		require.Empty(t, seen[digest], c.spelling)
		seen[digest] = c.spelling
	}
	same(t, Decimal, "-0", "0") // 8000000000000000 is written as 0
}
