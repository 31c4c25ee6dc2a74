package projections

import (
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

func sums(t testing.TB, s Spec, a, b string) bool {
	t.Helper()
	p := compile(t, s)
	x, match1, err1 := p.Sum(parseText(t, a))
	y, match2, err2 := p.Sum(parseText(t, b))
	require.NoError(t, err1)
	require.NoError(t, err2)
	require.True(t, match1 && match2)
	return x == y
}

func TestSameness(t *testing.T) {
	places := func(n int) *Same { return &Same{Round: &n} }
	set := &Same{Set: true}
	for _, c := range []struct {
		same *Same
		a, b string
		want bool
	}{
		{places(2), "1.001", "1.0", true}, {places(2), "1.005", "1.01", true}, {places(2), "1.004", "1.01", false}, {places(2), "-0.001", "0", true},
		{places(2), "-1.005", "-1.01", true}, {places(0), "0.5", "1", true}, {places(0), "9.5", "10", true}, {places(0), "99999999999999999999.4", "99999999999999999999", true},
		{places(-2), "149", "100", true}, {places(-2), "150", "2e2", true}, {places(2), "1e400", "10e399", true}, {places(2), "1e-99999999999999999999", "0", true},
		{places(2), "1e99999999999999999999", "2e99999999999999999999", false}, {places(2), `"1.001"`, "1.0", false}, {places(1), "[1.01,{\"a\":2}]", "[1.0,{\"a\":2.04}]", true},
		{set, "[1,2]", "[2,1]", true}, {set, "[1,1,2]", "[2,1]", true}, {set, "[1,2]", "[1,2,3]", false}, {set, `[{"a":1,"b":2}]`, `[{"b":2,"a":1}]`, true}, {set, "[1]", "[1.0]", false},
		{set, "1", "2", false}, {set, "[[1,2]]", "[[2,1]]", false}, {&Same{Fold: true}, `"Straße"`, `"STRAßE"`, true}, {&Same{Fold: true}, `"K"`, "\"\u212a\"", true}, {&Same{Fold: true}, `"a"`, `"b"`, false},
		{&Same{Trim: true}, `" a\n"`, `"a"`, true}, {&Same{Trim: true}, `"a b"`, `"ab"`, false}, {&Same{Set: true, Fold: true, Trim: true}, `["A ","b"]`, `["B","a","A"]`, true}, {nil, "1", "1.0", false},
	} {
		s := Spec{Fields: []Field{{Out: "g.v", Path: "v", Same: c.same}}}
		require.Equal(t, c.want, sums(t, s, `{"v":`+c.a+`}`, `{"v":`+c.b+`}`), "%v: %s and %s", c.same, c.a, c.b)
		require.Equal(t, `{"g":{"v":`+c.a+`}}`, project(t, s, `{"v":`+c.a+`}`), "the real value is sent")
	}
	decimal := Spec{Numbers: canonicaltree.Decimal, Fields: []Field{{Out: "v", Path: "v", Same: set}}}
	require.True(t, sums(t, decimal, `{"v":[1,1.0,2]}`, `{"v":[2.00,1]}`))
}

func TestSamenessOfMappedArrays(t *testing.T) {
	one := 1
	s := Spec{Fields: []Field{{Out: "v", Path: "v", Same: &Same{Set: true}, Each: []Field{{Out: "n", Path: "n", Same: &Same{Round: &one}}, {Out: "t", Path: "t"}}}}}
	require.True(t, sums(t, s, `{"v":[{"n":1.01,"t":1},{"n":2,"t":2}]}`, `{"v":[{"n":2.04,"t":2},{"n":1,"t":1},{"n":1.02,"t":1}]}`))
	require.False(t, sums(t, s, `{"v":[{"n":1.01,"t":1}]}`, `{"v":[{"n":1.01,"t":2}]}`))
}

// Rounding is that of exact decimal arithmetic.
func TestRoundingIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,6})?(e-?[0-9])?`).Draw(t, "literal")
		places := rapid.IntRange(-4, 6).Draw(t, "places")
		v, _ := new(big.Rat).SetString(literal)
		unit, _ := new(big.Rat).SetString("1e" + big.NewInt(int64(places)).String())
		scaled := new(big.Rat).Mul(v, unit)
		half := big.NewRat(int64(scaled.Sign()), 2)
		sum := new(big.Rat).Add(scaled, half)
		want := new(big.Rat).Quo(new(big.Rat).SetInt(new(big.Int).Quo(sum.Num(), sum.Denom())), unit)
		got, ok := new(big.Rat).SetString(string(appendRounded(nil, []byte(literal), places)))
		require.True(t, ok)
		require.Zero(t, want.Cmp(got), "%s to %d places: %s", literal, places, got)
	})
}

func TestCarriedFields(t *testing.T) {
	s := Spec{Fields: []Field{{Out: "id", Path: "id"}, {Out: "meta.kind", Path: "kind"}}, Carry: []Field{{Out: "meta.at", Path: "at"}, {Out: "trace", Expr: "doc.m.trace"}}}
	require.Equal(t, `{"id":1,"meta":{"kind":"k","at":5},"trace":"t"}`, project(t, s, `{"id":1,"kind":"k","at":5,"m":{"trace":"t"}}`))
	require.True(t, sums(t, s, `{"id":1,"at":5,"m":{"trace":"t"}}`, `{"id":1,"at":6}`))
	require.False(t, sums(t, s, `{"id":1,"at":5}`, `{"id":2,"at":5}`))
	p := compile(t, s)
	require.Len(t, p.ReadSet(), 2, "carried fields cause nothing")
	reads := 0
	for range p.Reads() {
		reads++
	}
	require.Equal(t, 4, reads, "and are read all the same")
	require.False(t, p.Exact())
	// One that fails has no part in the comparison, and no output is sent without it.
	s.Carry = []Field{{Out: "trace", Expr: "doc.m.trace + 1"}}
	p = compile(t, s)
	_, match, err := p.Sum(parseText(t, `{"id":1}`))
	require.NoError(t, err)
	require.True(t, match)
	_, _, err = p.Project(nil, parseText(t, `{"id":1}`))
	require.ErrorContains(t, err, "field trace")
	// Nor one with which the output breaks a limit.
	deep := `{"id":1,"at":` + strings.Repeat("[", canonicaltree.DefaultDepth-1) + strings.Repeat("]", canonicaltree.DefaultDepth-1) + `}`
	p = compile(t, Spec{Fields: []Field{{Out: "id", Path: "id"}}, Carry: []Field{{Out: "g.h.at", Path: "at"}}})
	_, _, err = p.Project(nil, parseText(t, deep))
	var limit *OutputError
	require.ErrorAs(t, err, &limit)
}

func TestSamenessFaults(t *testing.T) {
	far := 16
	for _, c := range []struct {
		field Field
		want  string
	}{
		{Field{Const: []byte("1"), Same: &Same{Set: true}}, "a constant, which never changes"},
		{Field{Path: "a", Same: &Same{}}, "has no rule"},
		{Field{Path: "a", Same: &Same{Round: &far}}, "rounds to 16 decimal places; use -15 to 15"},
		{Field{Path: "a", Each: []Field{{Out: "b", Path: "b"}}, Same: &Same{Fold: true}}, "elements of a mapped array"},
	} {
		c.field.Out = "v"
		_, err := Compile(Spec{Fields: []Field{c.field}})
		require.ErrorContains(t, err, c.want)
	}
	_, err := Compile(Spec{Fields: []Field{{Out: "v", Path: "a"}}, Carry: []Field{{Out: "w", Path: "b", Same: &Same{Set: true}}}})
	require.ErrorContains(t, err, "carry[0] (w) same: is a rule for a carried field")
}

func BenchmarkSame(b *testing.B) {
	doc := parseText(b, person)
	two := 2
	fields := []Field{{Out: "first", Path: "first"}, {Out: "price", Path: "price"}, {Out: "tags", Path: "tags"}, {Out: "n", Path: "n"}}
	carrying := Spec{Fields: fields, Carry: []Field{{Out: "at", Path: "at"}}}
	rounded := append([]Field(nil), fields...)
	rounded[1].Same, rounded[2].Same = &Same{Round: &two}, &Same{Set: true}
	for name, s := range map[string]Spec{"plain": {Fields: fields}, "carry": carrying, "same": {Fields: rounded}} {
		p := compile(b, s)
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
