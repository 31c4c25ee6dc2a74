package projections

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const person = `{"first": "Ada", "last": "Lovelace", "n": 7, "price": 1.50, "big": 9007199254740993, "most": 9223372036854775807,
  "wide": 18446744073709551616, "at": "2026-03-01T00:30:00+02:00", "bad": "yesterday", "null": null, "tags": ["b", "a", "b"], "mixed": [3, 1.5, 2],
  "rates": [{"price": 3}, {"price": 2}], "o": {"b": [1, 2.0], "a": "é\u0000"}, "batches": [{"nr": 1, "boxes": 2}, {"nr": 2}]}`

func TestComputedFields(t *testing.T) {
	for text, want := range map[string]string{
		`doc.first + ' ' + doc.last`: `"Ada Lovelace"`, `min(map(doc.rates, .price))`: `2`, `doc.n * 2 - 1`: `13`, `doc.big + 1`: `9007199254740994`,
		`doc.n / 2`: `3.5`, `doc.n / 7`: `1`, `0 - 0.0`: `0`, `1e30 * 1`: `1e+30`, `1e-9 * 1`: `1e-09`, `doc.price * 2`: `3`, `doc.n % 4`: `3`,
		`doc.most - 1`: `9223372036854775806`, `sum(doc.mixed)`: `6.5`, `sum(doc.rates, .price)`: `5`, `sum(doc.none)`: `0`, `sum(1..4)`: `10`,
		`doc.none`: ``, `doc.null`: ``, `doc.none ?? "x"`: `"x"`, `upper(doc.none)`: ``, `doc.o`: `{"a":"é\u0000","b":[1,2]}`, `doc.n > 3`: `true`,
		`sort(doc.mixed)`: `[1.5,2,3]`, `uniq(doc.tags)`: `["b","a"]`, `sort(uniq(doc.tags))`: `["a","b"]`, `split("a,b", ",")`: `["a","b"]`, `1..3`: `[1,2,3]`,
		`groupBy(doc.rates, doc.first)`: `{"Ada":[{"price":3},{"price":2}]}`, `{"k": doc.n, "l": [doc.first]}`: `{"k":7,"l":["Ada"]}`, `json(doc.rates)`: `"[{\"price\":3},{\"price\":2}]"`,
		`json(doc.none)`: ``, `format("%s-%05d|%.2f|%x|%5s|%-5s|%%", doc.first, doc.n, doc.price, 255, "r", "l")`: `"Ada-00007|1.50|ff|    r|l    |%"`,
		`format("%.1f", doc.big)`: `"9007199254740993.0"`, `format("%s %s %s", doc.n, doc.price, true)`: `"7 1.5 true"`, `format("%s", doc.none)`: ``,
		`year(doc.at)`: `2026`, `month(doc.at)`: `2`, `day(doc.at)`: `28`, `hour(doc.at)`: `22`, `minute(doc.at)`: `30`, `second(doc.at)`: `0`, `weekday(doc.at)`: `6`,
		`unix(doc.at)`: `1772317800`, `utc(doc.at)`: `"2026-02-28T22:30:00.000000000Z"`, `year(doc.none)`: ``,
		`sha256("abc")`: `"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`,
		`hmac("what do ya want for nothing?", "jefe")`: `"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"`, `hmac(doc.none, "jefe")`: ``,
		`let n = doc.n; n > 5 ? "many" : "few"`: `"many"`, `first(doc.tags)`: `"b"`, `doc.tags[1:]`: `["a","b"]`, `reduce(doc.mixed, #acc + #, 0)`: `6.5`,
	} {
		s := Spec{Fields: []Field{{Out: "v", Expr: text}}, Secrets: map[string][]byte{"jefe": []byte("Jefe")}}
		if want != "" {
			want = `"v":` + want
		}
		require.Equal(t, "{"+want+"}", project(t, s, person), text)
	}
}

// A field that fails is its default; without one the record is a dead letter, which holds
// types and never values.
func TestComputedFieldsFail(t *testing.T) {
	for text, want := range map[string]string{
		`doc.first + doc.n`: `field v: expr 1:11: cannot compute string + number; convert with`, `doc.none + ' '`: `cannot compute null + string; write (doc.x ?? 0)`, `doc.most + 1`: `integer overflow`, `doc.most * 2`: `integer overflow`,
		`0 - doc.most - 2`: `integer overflow`, `sum([doc.most, 1])`: `integer overflow`, `reduce([doc.most, 1], #acc + #)`: `integer overflow`, `doc.wide + 1`: `more digits than 64 bits hold`,
		`round(doc.wide)`: `more digits than 64 bits hold`, `year(doc.bad)`: `a time that is not RFC 3339`, `year(doc.n)`: `cannot read number as a time`, `sha256(doc.n)`: `cannot hash number`,
		`hmac(doc.o, "k")`: `cannot hash object`, `format("%d", doc.price)`: `cannot format this number as %d`, `format("%s", doc.o)`: `cannot format object`, `format("%f", doc.first)`: `cannot format string`,
		`doc.n / 0`: `cannot divide by zero; test the divisor first`, `groupBy(doc.rates, .price)`: `a member named by number`, `upper(doc.n)`: `upper(number) cannot be computed, it needs strings; write string(doc.x)`, `any(doc.o, true)`: `cannot loop`,
	} {
		doc := parseText(t, person)
		f := Field{Out: "v", Expr: text}
		p := compile(t, Spec{Fields: []Field{f}, Secrets: map[string][]byte{"k": nil}})
		_, _, err := p.Project(nil, doc)
		var bad *ValueError
		require.ErrorAs(t, err, &bad, text)
		require.ErrorContains(t, err, want)
		for _, value := range []string{"Ada", "yesterday", "9223372036854775807", "1.5"} {
			require.NotContains(t, err.Error(), value)
		}
		_, _, summed := p.Sum(doc)
		require.Equal(t, err, summed)
		f.Default = []byte(`"else"`)
		require.Equal(t, `{"v":"else"}`, project(t, Spec{Fields: []Field{f}, Secrets: map[string][]byte{"k": nil}}, person), text)
	}
}

// An exceeded budget is no matter for a default: which field exceeds it depends on their order.
func TestComputedFieldsShareTheBudget(t *testing.T) {
	list := "[" + strings.Repeat("1,", 1999) + "1]"
	doc := parseText(t, `{"l":`+list+`}`)
	heavy := Field{Expr: `count(doc.l, count(doc.l, # > 0) > 0)`, Default: []byte("0")}
	heavy.Out = "a"
	_, _, err := compile(t, Spec{Fields: []Field{heavy}}).Project(nil, doc)
	require.ErrorContains(t, err, "takes more than 10000000 steps")
	light := heavy
	light.Expr = `len(doc.l)`
	require.Equal(t, `{"a":2000}`, project(t, Spec{Fields: []Field{light}}, `{"l":`+list+`}`))
}

func TestItemInsideEach(t *testing.T) {
	s := Spec{Fields: []Field{{Out: "b", Path: "batches", Each: []Field{
		{Out: "id", Expr: `format("%s/%d", doc.first, item.nr)`}, {Out: "boxes", Expr: `item.boxes ?? doc.n`}, {Out: "nr", Path: "nr"},
	}}}}
	require.Equal(t, `{"b":[{"id":"Ada/1","boxes":2,"nr":1},{"id":"Ada/2","boxes":7,"nr":2}]}`, project(t, s, person))
	require.Equal(t, `[batches.\#.boxes batches.\#.nr first n]`, fmt.Sprint(compile(t, s).ReadSet()))
	// Elements that only doc fills are read by their number.
	s.Fields[0].Each = []Field{{Out: "id", Expr: `doc.first`}}
	require.Equal(t, `[batches.\# first]`, fmt.Sprint(compile(t, s).ReadSet()))
	s = Spec{Fields: []Field{{Out: "b", Expr: `filter(doc.batches, .boxes != null)`, Each: []Field{{Out: "n", Path: "nr"}, {Out: "l", Expr: "doc.last"}}}}}
	require.Equal(t, `{"b":[{"n":1,"l":"Lovelace"}]}`, project(t, s, person))
	require.Equal(t, `[batches last]`, fmt.Sprint(compile(t, s).ReadSet()))
}

func TestExpressionFaults(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Fields: []Field{{Out: "v", Expr: "now()"}}}, `fields[0] (v) expr 1:1: now() depends on time`},
		{Spec{Fields: []Field{{Out: "v", Expr: "doc.a +"}}}, `expr 1:7: unexpected token`},
		{Spec{Fields: []Field{{Out: "v", Expr: "item.a"}}}, `unknown name item`},
		{Spec{Fields: []Field{{Out: "v", Expr: "x"}}}, `unknown name x`},
		{Spec{Fields: []Field{{Out: "v", Expr: "doc.a", Path: "a"}}}, `is set together with a path`},
		{Spec{Fields: []Field{{Out: "v", Expr: "doc.a", Const: []byte("1")}}}, `is set together with an expression`},
		{Spec{Fields: []Field{{Out: "v", Expr: `hmac(doc.a, "none")`}}}, `hmac() names no secret; name one in secrets`},
		{Spec{Fields: []Field{{Out: "v", Expr: `hmac(doc.a, doc.b)`}}, Secrets: map[string][]byte{"k": nil}}, `the secrets are k`},
		{Spec{Fields: []Field{{Out: "v", Expr: `format(doc.a)`}}}, `template that is not a constant`},
		{Spec{Fields: []Field{{Out: "v", Expr: `format("%s")`}}}, `1 verbs and 0 values`},
		{Spec{Fields: []Field{{Out: "v", Expr: `format("%v %q", doc.a, doc.b)`}}}, `unknown verb`},
		{Spec{Fields: []Field{{Out: "v", Expr: `format("%*d", doc.a, doc.b)`}}}, `unknown verb`},
		{Spec{Fields: []Field{{Out: "v", Expr: `year()`}}}, `not enough arguments`},
		{Spec{When: `sha256(doc.a)`}, `neither true nor false`},
		{Spec{When: `hmac(doc.a, "x") == "1"`}, `when 1:1: hmac() names no secret`},
		{Spec{Carry: []Field{{Out: "id", Path: "a"}}}, `carry[0] (id) out: has the place of another field`},
		{Spec{Carry: []Field{{Out: "c", Path: "a..b"}}}, `carry[0] (c) path 1:3`},
	} {
		if c.spec.Fields == nil {
			c.spec.Fields = []Field{{Out: "id", Path: "id"}}
		}
		_, err := Compile(c.spec)
		require.ErrorContains(t, err, c.want)
	}
}

// Filters and fields have one language: a condition is true as a field exactly where it lets a
// document pass.
func TestFiltersAndFieldsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawDocument(t)
		doc := parseText(t, drawText(t, v))
		when := rapid.SampledFrom(filters).Draw(t, "when")
		id := []Field{{Out: "id", Const: []byte("1")}}
		p, err := Compile(Spec{When: when, Fields: id})
		require.NoError(t, err)
		q, err := Compile(Spec{Fields: []Field{{Out: "v", Expr: "(" + when + ") ? true : false"}}})
		require.NoError(t, err)
		_, match, err1 := p.Project(nil, doc)
		out, _, err2 := q.Project(nil, doc)
		require.Equal(t, err1 == nil, err2 == nil, "%s: %v, %v", when, err1, err2)
		if err1 == nil {
			require.Equal(t, fmt.Sprintf(`{"v":%t}`, match), string(out))
		}
	})
}

// Sums, differences and products of integers are exact or fail.
func TestIntegersAreExactOrFail(t *testing.T) {
	p := map[string]*Projection{}
	for _, op := range []string{"+", "-", "*"} {
		p[op] = compile(t, Spec{Fields: []Field{{Out: "v", Expr: "doc.a " + op + " doc.b"}}})
	}
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-5, 5), rapid.SampledFrom([]int64{1 << 62, -1 << 63, 1<<63 - 1, 3037000500}))
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		doc := parseText(t, fmt.Sprintf(`{"a":%d,"b":%d}`, a, b))
		x, y := big.NewInt(a), big.NewInt(b)
		for op, want := range map[string]*big.Int{"+": new(big.Int).Add(x, y), "-": new(big.Int).Sub(x, y), "*": new(big.Int).Mul(x, y)} {
			out, _, err := p[op].Project(nil, doc)
			if !want.IsInt64() {
				require.ErrorContains(t, err, "integer overflow", "%d %s %d", a, op, b)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf(`{"v":%s}`, want), string(out))
		}
	})
}

// Another secret, expression, rule or carried field is another projection.
func TestFingerprintKnowsComputedFields(t *testing.T) {
	two, seen := 2, map[string]bool{}
	field := func(f Field) Spec {
		f.Out = "v"
		return Spec{Fields: []Field{f}, Secrets: map[string][]byte{"k": []byte("one")}}
	}
	hashed := func(text string) Spec { return field(Field{Expr: text}) }
	other := hashed(`hmac(doc.a, "k")`)
	other.Secrets = map[string][]byte{"k": []byte("two")}
	carrying := field(Field{Path: "a"})
	carrying.Carry = []Field{{Out: "c", Path: "b"}}
	specs := []Spec{field(Field{Path: "a"}), field(Field{Expr: "doc.a"}), field(Field{Expr: "doc.b"}), field(Field{Path: "a", Same: &Same{Round: &two}}),
		field(Field{Path: "a", Same: &Same{Set: true}}), hashed(`hmac(doc.a, "k")`), other, carrying}
	for _, s := range specs {
		var w strings.Builder
		compile(t, s)
		s.Customer, s.Name = "acme", "ripeness"
		s.Fingerprint(&w)
		require.NotContains(t, w.String(), "one")
		seen[w.String()] = true
	}
	require.Len(t, seen, len(specs))
	var one, again strings.Builder
	plain := field(Field{Path: "a"})
	plain.Shape(&one)
	plain.Secrets = other.Secrets
	plain.Shape(&again)
	require.Equal(t, one.String(), again.String(), "a secret that nothing uses divides no projections")
}

func BenchmarkComputed(b *testing.B) {
	doc := parseText(b, person)
	for name, text := range map[string]string{"concatenation": `doc.first + ' ' + doc.last`, "minimum": `min(map(doc.rates, .price))`, "format": `format("%s-%05d", doc.first, doc.n)`, "hmac": `hmac(doc.first, "k")`} {
		p := compile(b, Spec{Fields: []Field{{Out: "v", Expr: text}}, Secrets: map[string][]byte{"k": []byte("key")}})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := p.Sum(doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
