package projections

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/expr-lang/expr/builtin"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections/merge"
)

const filtered = `{
  "origin": "EC", "n": 5, "f": 1.5, "yes": true, "no": false, "null": null, "s": "abc", "empty": [],
  "big": 9007199254740993, "huge": 18446744073709551616, "far": 1e400,
  "tags": [{"name": "a", "x": 1}, {"x": 2}, {"name": "b"}], "o": {"b": 1, "a": [1, 2.0]}, "list": [3, 1, 2],
  "0": "zero", "in": {"0": "member"}
}`

// A requirement agrees with the whole filter on its documents.
func TestRequirementsAreThoseOfTheirFilters(t *testing.T) {
	values := []string{`"a"`, `"\u0061"`, `"b"`, `""`, `1`, `1.0`, `10e-1`, `-0.0`, `0`, `2`, `9007199254740993`, `9007199254740992`, `1e400`,
		`18446744073709551616`, `true`, `false`, `null`, `[]`, `["a"]`, `{}`, `{"x":"a"}`, `[1]`}
	filters := map[string]bool{ // whether it has a requirement
		`doc.v == "a"`: true, `"a" == doc.v`: true, `doc["v"] == 1`: true, `doc.v == 0`: true, `doc.v == 1.5`: true, `doc?.v == true`: true, `doc.v == false`: true,
		`doc.v in ["a", 1, true]`: true, `doc.v in ["a", "a"]`: true, `doc.v in []`: true, `doc.v == 9007199254740993`: true, `doc.v == 9007199254740992.0`: true,
		`doc.v[0] == 1`: true, `doc.v.x == "a"`: true, `doc == "a"`: true, `doc.v == "a" && doc.v > 1`: true, `doc.v in [1, 2] and doc.v < 2`: true,
		`doc.v == "a" || doc.v == 1`: false, `doc.v != "a"`: false, `not (doc.v == 1)`: false, `doc.v == null`: false, `doc.v in 1..3`: false, `doc.v == doc.w`: false,
		`doc.v == -1`: false, `doc.v in ["a", doc.w]`: false, `doc.v > 1 && doc.v == "a"`: false, `"a" in doc.v`: false, `doc.v[-1] == 1`: false,
	}
	for when, requires := range filters {
		p := compile(t, Spec{When: when})
		require.Equal(t, requires, p.filter.required != nil, when)
		if !requires {
			continue
		}
		plain := compile(t, Spec{When: when})
		plain.filter.required = nil
		index := NewIndex([]*Projection{p})
		for _, v := range append(values, "absent") {
			text := `{"v":` + v + `,"n":1}`
			if v == "absent" {
				text = `{"n":1}`
			}
			doc := parseText(t, text)
			got, err1 := p.filter.match(source{root: doc})
			want, err2 := plain.filter.match(source{root: doc})
			require.Equal(t, err2, err1)
			require.Equal(t, want, got, "%s of %s", when, text)
			if want {
				require.Equal(t, []int{0}, index.root.below.of[0].meeting(documentOf(index, merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "s"}}}), map[string]canonicaltree.Node{"s": doc})), "%s of %s", when, text)
			}
		}
	}
}

func TestFilterMatches(t *testing.T) {
	doc := parseText(t, filtered)
	for when, want := range map[string]bool{
		`doc.origin in ["EC", "CO"]`: true, `doc.origin not in ["EC"]`: false, `doc.n in [1, 5]`: true, `doc.n in 1..9`: true,
		`doc.n in [doc.s, 5.0]`: true, `"b" in doc.o`: true, `"c" in doc.o`: false, `1 in doc.o`: false, `doc.n == 5.0`: true,
		`doc.f > 1 && doc.f <= 1.5`: true, `doc.s < "abd"`: true, `doc.s startsWith "ab"`: true, `doc.s matches "^a.c$"`: true,
		`doc.o == {"a": [1, 2], "b": 1.0}`: true, `doc.o != {"a": [1]}`: true, `doc.list == [3, 1, 2]`: true, `doc.n == "5"`: false,

		// A missing member is null.
		`doc.x == null`: true, `doc.x == nil`: true, `doc.x.y[3].z == null`: true, `doc.s.y == null`: true, `doc.n[0] == null`: true,
		`doc.tags[7] == null`: true, `doc.tags.name == null`: true, `doc.o[0] == null`: true, `doc.tags["0"] == null`: true,
		`doc.in["0"] == "member"`: true, `doc.in[0] == null`: true, `doc["0"] == "zero"`: true, `doc.tags[-1].name == "b"`: true,
		`doc.tags[-9] == null`: true, `doc?.x?.y == null`: true, `(doc?.o).b == 1`: true, `doc["o"]?.b == 1`: true, `doc[doc.x] == null`: true,
		`doc.tags[doc.o.b].x == 2`: true, `get(doc, "n") == 5`: true, `get(doc.x, "n") == null`: true, `doc.null == doc.x`: true,

		// Null in operators and functions.
		`doc.x < 1`: false, `doc.x >= 1`: false, `1 > doc.x`: false, `not (doc.x < 1)`: true, `doc.x < doc.y`: false, `doc.x <= doc.x`: false,
		`doc.x`: false, `not doc.x`: true, `!doc.x`: true, `doc.x or doc.yes`: true, `doc.x and doc.yes`: false, `doc.x ? true : doc.yes`: true,
		`if doc.x { false } else { true }`: true, `doc.x in [1]`: false, `doc.x in [null]`: true, `1 in doc.x`: false,
		`doc.x contains "a"`: false, `"a" contains doc.x`: false, `doc.x matches "a"`: false, `doc.x endsWith "a"`: false,
		`any(doc.x, true)`: false, `all(doc.x, false)`: true, `none(doc.x, true)`: true, `one(doc.x, true)`: false, `count(doc.x, true) == 0`: true,
		`filter(doc.x, true) == []`: true, `map(doc.x, 1) == []`: true, `sum(doc.x) == 0`: true, `find(doc.x, true) == null`: true,
		`len(doc.x) == 0`: true, `lower(doc.x) == null`: true, `type(doc.x) == "nil"`: true, `int(doc.x) == null`: true, `first(doc.x) == null`: true,
		`doc.x[0:1] == null`: true, `(doc.x ?? 3) == 3`: true, `(doc.x?.y ?? "d") == "d"`: true,

		// Predicates over elements.
		`any(doc.tags, .name == "b")`: true, `all(doc.tags, .x > 0)`: false, `count(doc.tags, .name != null) == 2`: true, `any(doc.tags, .zip.zap)`: false,
		`sum(doc.tags, .x ?? 0) == 3`: true, `find(doc.tags, .x == 2).name == null`: true, `doc.tags | any(#.x == 2)`: true,
		`any(doc.tags, {let q = .x; q == 2})`: true, `len(filter(doc.list, # > 1)) == 2`: true, `reduce(doc.list, #acc + #, 0) == 6`: true,
		`sort(doc.list)[0] == 1`: true, `max(doc.list) == 3`: true, `mean(doc.list) == 2`: true, `doc.list[1:] == [1, 2]`: true,
		`groupBy(doc.list, # > 1)[true] == [3, 2]`: true, `all(doc.empty, false)`: true, `split(doc.s, "")[1] == "b"`: true,
		`"b" in split(doc.s, "")`: true, `join(["a", "b"]) == "ab"`: true, `last(doc.list) == 2`: true, `concat(doc.list, [9])[3] == 9`: true,
		`let v = doc.o; v.a[1] == 2 and v.q == null`: true, `::len(doc.list) == 3`: true, `upper(doc.s) == "ABC"`: true,

		// Numbers keep their value where int64 and float64 can hold it.
		`doc.big == 9007199254740993`: true, `doc.big == 9007199254740992`: false, `doc.big == 9007199254740992.0`: false,
		`doc.big > 9007199254740992.0`: true, `doc.huge > doc.big`: true, `doc.far > doc.huge`: true, `doc.n / 2 == 2.5`: true, `doc.n % 2 == 1`: true,
	} {
		_, match, err := compile(t, Spec{When: when}).Project(nil, doc)
		require.NoError(t, err, when)
		require.Equal(t, want, match, when)
	}
}

// TestFilterErrors: an operation on a type that it is not made for has no answer,
// and says so without a word of the document.
func TestFilterErrors(t *testing.T) {
	doc := parseText(t, filtered)
	for when, want := range map[string]string{
		`doc.yes and doc.s < 1`:        `when 1:19: cannot compare string < number`,
		`doc.yes >= doc.no`:            `cannot compare boolean >= boolean`,
		`doc.list < doc.list`:          `cannot compare array < array`,
		`doc.s`:                        `when 1:1: cannot use string as a condition`,
		`doc.s and doc.yes`:            `cannot use string as a condition`,
		`not doc.n`:                    `cannot use number as a condition`,
		`any(doc.tags, .name)`:         `cannot use string as a condition`,
		`any(doc.o, true)`:             `cannot loop over object`,
		`1 in doc.s`:                   `cannot look for number in string`,
		`doc.x + 1 == 1`:               `cannot compute null + number`,
		`doc.s + doc.n == 1`:           `cannot compute string + number`,
		`doc.n contains "x"`:           `cannot use number with contains, it needs strings`,
		`upper(doc.n) == "x"`:          `upper(number) cannot be computed`,
		`int(doc.s) == 1`:              `int(string) cannot be computed, it needs the digits of a whole number`,
		`hasPrefix(doc.s, doc.x)`:      `hasPrefix(string, null) cannot be computed`,
		`doc.n % (doc.n - doc.n) == 0`: `cannot divide by zero`,
	} {
		out, match, err := compile(t, Spec{When: when}).Project([]byte("kept"), doc)
		var bad *FilterError
		require.ErrorAs(t, err, &bad, when)
		require.ErrorContains(t, err, want, when)
		require.False(t, match)
		require.Equal(t, "kept", string(out))
		require.Equal(t, "acme", bad.Customer)
		require.Positive(t, bad.Line)
		require.NotContains(t, err.Error(), "abc", "no payload in errors")
	}
}

func TestFilterFaults(t *testing.T) {
	for when, want := range map[string]string{
		`doc.n +`: `when 1:7: unexpected token`, "doc.n == 1 and\n  foo": `when 2:3: unknown name foo`, `1 + 2`: `1:3: is a number or a text, which is neither true nor false`,
		`"a"`: `1:1: is a text, which is neither`, `"a" < 1`: `1:5: invalid operation`, `now() > 1`: `1:1: now() depends on time`,
		`date(doc.s) > date("2020-01-01")`: `date() depends on time`, `timezone("UTC") == 1`: `time zones`, `duration("1s") == doc.n`: `depends on time`,
		`len(keys(doc.o)) == 1`: `in no certain order`, `doc.o | values() == 1`: `in no certain order`, `::now() == 1`: `depends on time`,
		`repeat(doc.s, 9) == ""`: `repeat() is not offered`, `foo(1)`: `unknown function foo()`, `doc.foo() == 1`: `calls a value`,
		`$env == 1`: `unknown name $env`, `let $0 = 1; $0 == 1`: `reserved`, `let doc = 1; doc == 1`: `cannot redeclare`,
		`doc.s matches doc.o`: `pattern that is not a constant`, `doc.s matches "("`: `missing closing`, `len(1..doc.n) == 1`: `range without a fixed size`,
		`len(1..1000000) == 1`: `range without a fixed size`, `lower() == ""`: `not enough arguments`, `lower(1) == ""`: `cannot use int`,
		`any(doc.a, any(doc.b, any(doc.c, any(doc.d, true))))`: `more than 3 predicates`, `$get(doc, 1) == 1`: `unknown function $get`,
		strings.Repeat("doc.a == 1 or ", 2000) + "true": `exceeds maximum allowed nodes`,
	} {
		_, err := Compile(Spec{When: when, Fields: []Field{{Out: "a", Path: "a"}}})
		var bad *CompileError
		require.ErrorAs(t, err, &bad, "%.60s", when)
		require.Contains(t, err.Error(), want, "%.60s", when)
		for _, f := range bad.Faults {
			require.Equal(t, "when", f.Part)
			require.Positive(t, f.Line)
			require.Positive(t, f.Column)
			require.NotEmpty(t, f.Want)
		}
	}
}

// TestEveryFunctionIsDecidedOn: a function that a new release of the library
// brings is not offered before a decision about it.
func TestEveryFunctionIsDecidedOn(t *testing.T) {
	refused := strings.Fields("now date timezone duration keys values toPairs fromPairs toJSON fromJSON toBase64 fromBase64 repeat splitAfter bitand bitor bitxor bitnand bitshl bitshr bitushr bitnot")
	for _, name := range builtin.Names {
		n := 0
		for _, r := range refused {
			if r == name {
				n++
			}
		}
		if offered(name) {
			n++
		}
		require.Equal(t, 1, n, "function %s", name)
	}
	require.Len(t, builtin.Names, len(refused)+len(predicates)+len(scalars))
}

func TestFilterMemoryIsBounded(t *testing.T) {
	p := compile(t, Spec{When: `len(map(1..9999, map(1..9999, #))) == 0`})
	_, _, err := p.Project(nil, parseText(t, `{}`))
	require.ErrorContains(t, err, "memory budget exceeded")

	doubled := `let v0 = concat(doc.l, doc.l); `
	for i := range 9 {
		doubled += fmt.Sprintf("let v%d = concat(v%d, v%d); ", i+1, i, i)
	}
	for length, want := range map[string]string{"1..900": "", "1..1000": "memory budget exceeded"} {
		p = compile(t, Spec{When: strings.ReplaceAll(doubled, "doc.l", length) + `len(v9) > 0`})
		_, _, err = p.Project(nil, parseText(t, `{}`))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// TestNumbersCompareExactly holds the comparison of int64 with float64 against
// decimal text.
func TestNumbersCompareExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.Int64().Draw(t, "int")
		f := rapid.Float64().Draw(t, "float")
		if rapid.Bool().Draw(t, "near") {
			f = math.Nextafter(float64(i), rapid.Float64().Draw(t, "towards"))
		}
		x, y := number{i: i}, number{f: f, real: true}
		order, ok := x.compare(y)
		require.True(t, ok)
		back, _ := y.compare(x)
		require.Equal(t, -order, back)
		// Equal exactly when the exact decimal of the float is the integer. A zero may have a sign,
		// which says nothing.
		decimal := fmt.Sprintf("%.1f", f)
		if f == 0 {
			decimal = "0.0"
		}
		require.Equal(t, fmt.Sprintf("%d.0", i) == decimal && math.Trunc(f) == f, order == 0)
		if math.Abs(f) < 1<<53 && i > -1<<53 && i < 1<<53 {
			require.Equal(t, float64(i) < f, order < 0)
		}
	})
	_, ok := number{i: 1}.compare(number{f: math.NaN(), real: true})
	require.False(t, ok)
}

// FuzzFilter: no expression makes the compiler or an evaluation panic, and one
// that compiles returns the same for two spellings of a document.
func FuzzFilter(f *testing.F) {
	for _, when := range append(filters, `doc.s matches "^a"`, `sortBy(doc.tags, .x)[0].x == 1`, `doc.a..b`, `let x = doc; x == doc`) {
		f.Add(when)
	}
	var canonical canonicaltree.Node
	tree, err := canonicaltree.Parse([]byte(filtered))
	require.NoError(f, err)
	doc := tree.Root()
	again, err := canonicaltree.Parse(doc.AppendCanonical(nil))
	require.NoError(f, err)
	canonical = again.Root()
	f.Fuzz(func(t *testing.T, when string) {
		p, err := Compile(Spec{When: when, Fields: []Field{{Out: "a", Const: []byte("1")}}})
		if err != nil {
			return
		}
		_, match1, err1 := p.Project(nil, doc)
		_, match2, err2 := p.Project(nil, canonical)
		require.Equal(t, match1, match2)
		require.Equal(t, err1 == nil, err2 == nil)
	})
}
