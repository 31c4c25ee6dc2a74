package projections

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// numbered returns {"name": ["<prefix>0", "<prefix>1", …], …} as a document.
func numbered(t testing.TB, n int, prefixes map[string]string) canonicaltree.Node {
	t.Helper()
	var b strings.Builder
	b.WriteString(`{"none":null`)
	for name, prefix := range prefixes {
		fmt.Fprintf(&b, `,%q:[`, name)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"%s%d"`, prefix, i)
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return parseText(t, b.String())
}

// Each of these would run for minutes or days, or allocate gigabytes.
func TestAnEvaluationHasABudgetOfSteps(t *testing.T) {
	long := numbered(t, 300_000, map[string]string{"items": "a", "blocked": "b"})
	short := numbered(t, 1000, map[string]string{"items": "a", "blocked": "b"})
	megabytes := parseText(t, `{"t":"`+strings.Repeat("ab", 2<<20)+`","u":"`+strings.Repeat("ab", 2<<20)+`","l":[1,2],"o":{"a":1}}`)
	doubled := `let v0 = doc.t; `
	for i := range 40 {
		doubled += fmt.Sprintf("let v%d = v%d + v%d; ", i+1, i, i)
	}
	for when, doc := range map[string]canonicaltree.Node{
		`any(doc.items, # in doc.blocked)`:                                       long,
		`any(doc.items, any(doc.items, any(doc.blocked, # == "x")))`:             short,
		`all(doc.items, count(doc.items, count(doc.items, true) > 0) > 0)`:       short,
		`len(map(doc.items, filter(doc.blocked, # > "a"))) == 0`:                 long,
		`reduce(doc.items, #acc + len(filter(doc.items, # != "x")), 0) == 1`:     long,
		`sum(doc.items, sum(doc.items, 1)) == 1`:                                 long,
		`len(uniq(doc.items)) == 1`:                                              long,
		`all(1..9999, doc.t == doc.u)`:                                           megabytes,
		`any(1..9999, doc.t < doc.u)`:                                            megabytes,
		`any(1..9999, doc.t contains "bbb")`:                                     megabytes,
		`all(1..9999, doc.t endsWith doc.u)`:                                     megabytes,
		`any(1..9999, doc.t matches "(a|b)*c")`:                                  megabytes,
		`any(1..9999, doc.t in doc.o)`:                                           megabytes,
		`any(1..9999, doc.o[doc.t] == 1)`:                                        megabytes,
		`any(1..9999, len(doc.t) == 1)`:                                          megabytes,
		`any(1..9999, upper(doc.t) == "x")`:                                      megabytes,
		`all(1..9999, hasSuffix(doc.t, doc.u))`:                                  megabytes,
		`len(sortBy(1..9999, [doc.t, doc.u][# % 2])) == 1`:                       megabytes,
		`len(groupBy(1..9999, doc.t)) == 1`:                                      megabytes,
		`any(1..9999, [{(doc.t): 1}] == doc.none)`:                               megabytes,
		`len(split(doc.t, "")) == 1`:                                             megabytes,
		`len(replace(doc.t, "a", doc.t)) == 1`:                                   megabytes,
		`len(join(map(1..9999, doc.t), "")) == 1`:                                megabytes,
		`len(join(split("` + strings.Repeat("a,", 200) + `", ","), doc.t)) == 1`: megabytes,
		`any(1..9999, string(doc) == "x")`:                                       megabytes,
		`any(1..9999, len(doc.t + "x") == 1)`:                                    megabytes,
		doubled + `len(v40) == 1`:                                                megabytes,
		`len(flatten(map(doc.items, doc.items))) == 1`:                           long,
		`any(doc.items, len(sort(doc.items)) == 1)`:                              long,
		`any(doc.items, doc.items == doc.blocked)`:                               long,
		`all(doc.items, doc.items in [doc.items, doc.blocked])`:                  long,
		`len(concat(doc.items, doc.items, doc.items, doc.items, doc.items, doc.items, doc.items, doc.items, doc.items)) == 1`: long,
	} {
		_, _, err := compile(t, Spec{When: when}).Sum(doc)
		var bad *FilterError
		require.ErrorAs(t, err, &bad, "%.90s", when)
		require.Regexp(t, "takes more than 10000000 steps|memory budget exceeded", err.Error(), "%.90s", when)
	}
}

func TestOrdinaryFiltersStayWithinTheBudget(t *testing.T) {
	doc := numbered(t, 10_000, map[string]string{"items": "a", "blocked": "b"})
	for _, when := range []string{
		`any(doc.items, # == "x")`, `doc.items[0] in doc.blocked`, `len(filter(doc.items, # startsWith "a")) > 0`,
		`any(doc.items[0:1000], # in doc.blocked)`, `len(uniq(doc.items[0:5000])) == 1`, `len(sort(doc.items)) == 1`,
		`any(doc.items, # matches "^x")`, `join(doc.items, ",") == "a"`, `len(sortBy(doc.items, #)) == 1`,
		`string(doc.items) == "x"`, `any(map(doc.items, upper(#)), # == "x")`,
	} {
		_, _, err := compile(t, Spec{When: when}).Sum(doc)
		require.NoError(t, err, when)
	}
}

func TestFieldsHaveABudgetOfSteps(t *testing.T) {
	doc := parseText(t, `{"a":"`+strings.Repeat(`\"`, 100_000)+`","l":[`+strings.Repeat("1,", 100_000)+`1]}`)
	for path, want := range map[string]bool{
		"a": true, "a|@tostr": true, "l|@reverse": true, "[l,a]": true,
		"a" + strings.Repeat("|@tostr", 30):            false,
		"[a" + strings.Repeat("|@tostr", 30) + "]":     false,
		"[l,l]" + strings.Repeat("|[@this,@this]", 30): false,
		"[" + strings.Repeat("@this,", 10_000) + "l]":  false,
	} {
		p, err := Compile(Spec{Customer: "acme", Name: "x", Fields: []Field{{Out: "o", Path: path}}})
		require.NoError(t, err, "%.40s", path)
		_, _, err = p.Project(nil, doc)
		_, _, alike := p.Sum(doc)
		if want {
			require.NoError(t, err, "%.40s", path)
			require.NoError(t, alike)
			continue
		}
		require.True(t, errors.Is(err, errSteps) && errors.Is(alike, errSteps), "%.40s: %v, %v", path, err, alike)
		require.Equal(t, "projection acme/x: field o: the path has no value: takes more than 10000000 steps", err.Error())
	}
}

var ordinary = map[string]string{
	"member":  `doc.origin in ["EC", "CO"] and doc.ripeness_level >= 3`,
	"dynamic": `doc.origin == doc.home and doc.origin in doc.allowed`,
	"loop":    `any(doc.tags, .name == "none")`,
	"inner":   `any(doc.tags, .name in doc.allowed)`,
	"text":    `lower(doc.origin) startsWith "e" and doc.origin matches "^E"`,
}

func BenchmarkFilter(b *testing.B) {
	doc := parseText(b, `{"origin":"EC","home":"EC","ripeness_level":4,"allowed":["CO","PE","EC"],"tags":[`+
		strings.Repeat(`{"name":"bio","n":1},`, 20)+`{"name":"fair","n":2}]}`)
	for name, when := range ordinary {
		b.Run(name, func(b *testing.B) {
			p := compile(b, Spec{When: when})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.matches(source{root: doc}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
