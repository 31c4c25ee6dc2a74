package canonicaltree

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// same and different check Equal, the digests and, for literal numbers, Diff,
// which must all say the same.
func same(t *testing.T, numbers Numbers, a, b string) {
	t.Helper()
	assert.True(t, verdict(t, numbers, a, b), "%q and %q must be equal", a, b)
}

func different(t *testing.T, numbers Numbers, a, b string) {
	t.Helper()
	assert.False(t, verdict(t, numbers, a, b), "%q and %q must differ", a, b)
}

func verdict(t *testing.T, numbers Numbers, a, b string) bool {
	t.Helper()
	x, y := parse(t, a), parse(t, b)
	equal := Equal(x, y, numbers)
	assert.Equal(t, equal, Equal(y, x, numbers), "Equal must be symmetric")
	assert.Equal(t, equal, x.Sum(numbers) == y.Sum(numbers), "digests of %q and %q against Equal", a, b)
	p, err := Sum([]byte(a), numbers)
	require.NoError(t, err)
	assert.Equal(t, x.Sum(numbers), p, "Sum and Node.Sum of %q", a)
	if numbers == Literal {
		assert.Equal(t, equal, len(differences(x, y)) == 0, "Diff of %q and %q against Equal", a, b)
	}
	return equal
}

func parse(t testing.TB, doc string) Node {
	t.Helper()
	tree, err := Parse([]byte(doc))
	require.NoError(t, err, "%q", doc)
	return tree.Root()
}

// refused checks that Parse and Sum refuse doc with the same error and returns
// its offset.
func refused(t *testing.T, doc string) int64 {
	t.Helper()
	_, err := Parse([]byte(doc))
	require.Error(t, err, "%q", doc)
	_, sumErr := Sum([]byte(doc), Decimal)
	require.Equal(t, err, sumErr, "%q", doc)
	if limit := (*LimitError)(nil); errors.As(err, &limit) {
		return limit.Offset
	}
	var syntax *SyntaxError
	require.ErrorAs(t, err, &syntax)
	return syntax.Offset
}

func TestEscapesAreComparedUnescaped(t *testing.T) {
	same(t, Literal, `"\u0061"`, `"a"`)
	same(t, Literal, `"\/"`, `"/"`)
	same(t, Literal, `"\ud83c\udf4c"`, `"🍌"`)
	same(t, Literal, `"\uD83C\uDF4C!"`, `"🍌\u0021"`)
	same(t, Literal, `"\"\\\b\f\n\r\t"`, `"\u0022\u005C\u0008\u000c\u000A\u000d\u0009"`)
	different(t, Literal, `"\\u0061"`, `"a"`)
	different(t, Literal, `"a\u0000"`, `"a"`)
}

func TestEscapedNamesSortByWhatTheyMean(t *testing.T) {
	same(t, Literal, `{"\u0061":1,"b":2,"\u0063":3}`, `{"c":3,"a":1,"\u0062":2}`)
	same(t, Literal, `{"\ud83c\udf4c":1,"\uffee":2}`, `{"\uffee":2,"🍌":1}`)
	same(t, Literal, `{"a":1,"a\u0000":2,"":3}`, `{"":3,"a\u0000":2,"a":1}`)
}

func TestBadTextIsRefused(t *testing.T) {
	for doc, offset := range map[string]int64{
		`"ab\ud800"`:        3,
		`"\ud800\u0041"`:    1,
		`"\ud800\ud800"`:    1,
		`"\udc00\ud800"`:    1,
		`{"\udfff":1}`:      2,
		"\"abcdefghi\xff\"": 10,
		"\"\xed\xa0\x80\"":  1,
		"\"\xc0\x80\"":      1,
		"{\"é\xe9\":1}":     4,
		"\"ab\x1f\"":        3,
		"\"\\n\x00\"":       3,
		"\"abcdefgh\n\"":    9,
		`"\x"`:              2,
		`"\u12G4"`:          5,
	} {
		assert.Equal(t, offset, refused(t, doc), "%q", doc)
	}
	assert.EqualValues(t, 5, refused(t, `"\u12`))
}

func TestDuplicateNamesAreRefused(t *testing.T) {
	for doc, offset := range map[string]int64{
		`{"a\"":1,"b":2,"a\"":3}`:                     15,
		`{"\\":1,"b":2,"\\":3}`:                       14,
		`{"a":1,"a":1}`:                               7,
		`{"a":1,"b":2,"a":1}`:                         13,
		`{"a":1, "\u0061" : 1}`:                       8,
		`{"b":1,"\\\"":{"":0}, "\u005c\u0022" : 1}`:   22,
		`[{"x":{"b":1,"":2,"":3}}]`:                   18,
		`{"abcdefgh1":1,"abcdefgh2":2,"abcdefgh1":3}`: 29,
	} {
		assert.Equal(t, offset, refused(t, doc), "%q", doc)
	}
}

func TestNumberLiterals(t *testing.T) {
	literals := []string{"1", "1.0", "1e0", "-0", "0", "10e-1", "0.0", "0e5"}
	for i, a := range literals {
		for _, b := range literals[:i] {
			different(t, Literal, a, b)
		}
	}
	for _, one := range []string{"1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000e-0000", "0.001e3"} {
		same(t, Decimal, "1", one)
		different(t, Decimal, "0", one)
		different(t, Decimal, "-1", one)
	}
	for _, zero := range []string{"-0", "0.0", "-0.000", "0e5", "-0E-999999999999999999999"} {
		same(t, Decimal, "0", zero)
	}
	different(t, Decimal, `1`, `"1"`)
	same(t, Decimal, `[100,-1e2]`, `[1e2,-1.00E+2]`)
}

func TestNumbersNeverGoThroughFloatingPoint(t *testing.T) {
	long := strings.Repeat("1234567890", 40)
	for _, numbers := range []Numbers{Literal, Decimal} {
		different(t, numbers, "9007199254740993", "9007199254740992")
		different(t, numbers, "1e400", "1e401")
		different(t, numbers, "1e-400", "0")
		different(t, numbers, long+"1", long+"2")
		different(t, numbers, "1e999999999", "1e999999998")
		different(t, numbers, "1e99999999999999999999", "1e99999999999999999998")
	}
	same(t, Decimal, long, long+".0")
	same(t, Decimal, "1e999999999", "10e999999998")
	same(t, Decimal, "0.1e-9223372036854775808", "1e-9223372036854775809")
	same(t, Decimal, "0.01e1000000000000000001", "1e999999999999999999")
	same(t, Decimal, "100e-1000000000000000001", "1e-999999999999999999")
	same(t, Decimal, "10e999999999999999999", "1e1000000000000000000")
	same(t, Decimal, "0.1e-999999999999999999", "1e-1000000000000000000")
	same(t, Decimal, "1000e99999999999999999999999999999", "1e100000000000000000000000000002")
	same(t, Decimal, "1000e-100000000000000000000000000002", "1e-99999999999999999999999999999")
	tree := parse(t, "1e999999999")
	assert.LessOrEqual(t, len(tree.AppendEncoding(nil, Decimal)), 12, "an exponent must not be expanded")
}

func TestExactlyOneDocument(t *testing.T) {
	for doc, offset := range map[string]int64{
		"":               0,
		"  ":             2,
		"\xEF\xBB\xBF{}": 0,
		"{} {}":          3,
		"1 2":            2,
		"[1]]":           3,
		"{}\x00":         2,
		"null\ufeff":     4,
		"[1,":            3,
		`{"a":1,}`:       7,
		`{"a" 1}`:        5,
		"[1,]":           3,
		"[01]":           1,
		"[-]":            2,
		"[1.]":           3,
		"[1e+]":          4,
		"[truE]":         1,
		"nul":            0,
		`["a`:            3,
	} {
		assert.Equal(t, offset, refused(t, doc), "%q", doc)
	}
}

func TestNestingIsLimited(t *testing.T) {
	const n = 100_000
	for _, open := range []string{"[", `{"a":`} {
		_, err := Parse([]byte(strings.Repeat(open, n)))
		var limit *LimitError
		require.ErrorAs(t, err, &limit)
		assert.Equal(t, LimitError{Limit: "depth", Max: DefaultDepth, Offset: int64(DefaultDepth * len(open))}, *limit)
	}
	deepest := strings.Repeat("[", DefaultDepth) + strings.Repeat("]", DefaultDepth)
	same(t, Literal, deepest, deepest+" ")
	refused(t, "["+deepest+"]")
	_, err := ParseLimits([]byte("[[1]]"), Limits{Depth: 1})
	require.ErrorContains(t, err, "depth limit of 1 exceeded at offset 1")
}

func TestSizeIsLimited(t *testing.T) {
	_, err := ParseLimits([]byte("[1]"), Limits{Size: 3})
	require.NoError(t, err)
	_, err = ParseLimits([]byte("[1] "), Limits{Size: 3})
	assert.Equal(t, &LimitError{Limit: "size", Max: 3, Offset: 3}, err)
}

func TestErrorsSayWhereNotWhat(t *testing.T) {
	for _, doc := range []string{`{"secret":1,"secret":2}`, `["secret`, "\"secret\xff\"", `{"secret" secret}`} {
		_, err := Parse([]byte(doc))
		require.ErrorContains(t, err, "at offset ")
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestNullIsNotAbsent(t *testing.T) {
	different(t, Literal, `{"a":null}`, `{}`)
	different(t, Literal, `[null]`, `[]`)
	null := parse(t, `null`)
	assert.True(t, null.Exists())
	assert.False(t, Equal(null, Node{}, Literal))
	assert.False(t, Equal(Node{}, null, Literal))
	assert.True(t, Equal(Node{}, Node{}, Literal))
	assert.NotEqual(t, null.Sum(Literal), Node{}.Sum(Literal))
}

func TestArrayOrderMatters(t *testing.T) {
	different(t, Literal, `[1,2]`, `[2,1]`)
}

func TestNoTwoDocumentsShareAnEncoding(t *testing.T) {
	docs := []string{
		`["a,b"]`, `["a","b"]`, `["ab"]`, `["a","b",""]`, `[["a"],"b"]`, `[["a","b"]]`,
		`{}`, `[]`, `""`, `"1"`, `1`, `null`, `"null"`, `true`, `false`, `[[]]`, `[{}]`, `[[],[]]`,
		`{"a":"b"}`, `{"a":{"b":1}}`, `{"a":{},"b":1}`, `{"a":1,"b":1}`, `{"ab":1}`, `["a","b",1]`,
		`{"":0}`, `{"a":[1,2]}`, `{"a":[1],"b":2}`, `[0]`, `[1]`, `[12]`, `[1,2]`,
	}
	for i, a := range docs {
		for _, b := range docs[:i] {
			different(t, Literal, a, b)
			different(t, Decimal, a, b)
		}
	}
}
