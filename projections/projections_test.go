package projections

import (
	"bytes"
	"crypto/sha256"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

const banana = `{
  "id": "B-007", "origin": "EC", "ripeness_level": 4, "weight": null, "price": 9007199254740993,
  "tags": [{"name": "ripe", "n": 1}, {"n": 2}, {"name": "bio", "n": 3}],
  "lab": {"results": [[1, 2], [3]], "by": {"first": "Ada", "last": ""}, "empty": {}, "none": []},
  "x.y": {"*": 1, "\u00e9": 2}, "42": {"7": "seven"}, "ratio": 1.50, "yes": true, "text": "{\"a\":1}"
}`

func compile(t testing.TB, s Spec) *Projection {
	t.Helper()
	s.Customer, s.Name = "acme", "ripeness"
	if s.Fields == nil {
		s.Fields = []Field{{Out: "id", Const: []byte(`"-"`)}}
	}
	p, err := Compile(s)
	require.NoError(t, err)
	return p
}

func project(t testing.TB, s Spec, doc string) string {
	t.Helper()
	out, match, err := compile(t, s).Project(nil, parseText(t, doc))
	require.NoError(t, err)
	require.True(t, match)
	return string(out)
}

func TestPaths(t *testing.T) {
	for path, want := range map[string]string{
		`id`:                           `{"v":"B-007"}`,
		`lab.by.first`:                 `{"v":"Ada"}`,
		`tags.1.n`:                     `{"v":2}`,
		`tags.3`:                       `{}`,
		`tags.name`:                    `{}`,
		`tags.#`:                       `{"v":3}`,
		`tags.#.name`:                  `{"v":["ripe","bio"]}`,
		`tags.#.nope`:                  `{"v":[]}`,
		`lab.results.#.#`:              `{"v":[2,1]}`,
		`lab.results.#.0`:              `{"v":[1,3]}`,
		`lab.#.x`:                      `{}`,
		`x\.y.\*`:                      `{"v":1}`,
		`x\.y.é`:                       `{"v":2}`,
		`42.7`:                         `{"v":"seven"}`,
		`\42.\7`:                       `{"v":"seven"}`,
		`tags.\1.n`:                    `{}`,
		`weight`:                       `{"v":null}`,
		`nope.deep.1`:                  `{}`,
		`text.a`:                       `{}`,
		`ratio`:                        `{"v":1.50}`,
		`tags.#(name=="bio").n`:        `{"v":3}`,
		`tags.#(n>1)#.n`:               `{"v":[2,3]}`,
		`tags.#(name=="none")`:         `{}`,
		`tags.#( n >= -1.5e0 ).n`:      `{"v":1}`,
		`tags.#(name==~null)#.n`:       `{"v":[2]}`,
		`tags.#(name=="none")#`:        `{"v":[]}`,
		`lab.by.f*`:                    `{"v":"Ada"}`,
		`lab.by|@keys`:                 `{"v":["first","last"]}`,
		`lab.by.@values`:               `{"v":["Ada",""]}`,
		`lab.results.@flatten`:         `{"v":[1,2,3]}`,
		`nope|@keys`:                   `{}`,
		`text.@fromstr.a`:              `{"v":1}`,
		`{id,"o":origin}`:              `{"v":{"id":"B-007","o":"EC"}}`,
		`lab.by.{first,"k":last}`:      `{"v":{"first":"Ada","k":""}}`,
		`[id,tags.#]`:                  `{"v":["B-007",3]}`,
		`tags.#.{name,n}|2`:            `{"v":{"name":"bio","n":3}}`,
		`lab.by.@pretty:{"indent":""}`: "{\"v\":{\n\"first\": \"Ada\",\n\"last\": \"\"\n}}",
	} {
		require.Equal(t, want, project(t, Spec{Fields: []Field{{Out: "v", Path: path}}}, banana), path)
	}
	require.JSONEq(t, `{"v":`+banana+`}`, project(t, Spec{Fields: []Field{{Out: "v", Path: "@this"}}}, banana))
}

// gjson itself looks for brackets in a string, and hands some modifiers an empty
// text for a wildcard, a query or a pipe without a match.
func TestPipesSelectFromWhatIsThere(t *testing.T) {
	const doc = `{"s":"[1,2]","o":{"f":"[7,8]"},"l":[{"n":1,"s":"[3,4]"}]}`
	for path, want := range map[string]string{
		`s|0`: `{}`, `s|#`: `{}`, `s.@this.0`: `{}`, `s|@this|#`: `{}`, `o.f*|0`: `{}`, `l.0.s|0`: `{}`,
		`o.z*|@keys`: `{}`, `o.z*.@tostr`: `{}`, `o.z*|[a]`: `{}`, `l.#(n==9)|@keys`: `{}`, `@this|z|@keys`: `{}`,
		`s|@fromstr|0`: `{"v":1}`, `o.f*.@fromstr.1`: `{"v":8}`, `o.f*|[@this]|0`: `{"v":"[7,8]"}`, `l.#(n==1)|@keys|1`: `{"v":"s"}`, `l.#.n|0`: `{"v":1}`,
	} {
		require.Equal(t, want, project(t, Spec{Fields: []Field{{Out: "v", Path: path}}}, doc), path)
	}
}

func TestOutput(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want string
	}{
		"order and groups": {
			Spec{Fields: []Field{{Out: "z", Path: "id"}, {Out: "r.level", Path: "ripeness_level"}, {Out: "a", Path: "yes"}, {Out: "r.of", Path: "origin"}, {Out: `r\.x`, Path: "yes"}}},
			`{"z":"B-007","r":{"level":4,"of":"EC"},"a":true,"r.x":true}`,
		},
		"a group without members is left out": {
			Spec{Fields: []Field{{Out: "g.a", Path: "nope"}, {Out: "g.h.b", Path: "nope"}, {Out: "id", Path: "id"}}},
			`{"id":"B-007"}`,
		},
		"literals survive": {
			Spec{Fields: []Field{{Out: "p", Path: "price"}, {Out: "r", Path: "ratio"}}},
			`{"p":9007199254740993,"r":1.50}`,
		},
		"constants and defaults": {
			Spec{Fields: []Field{
				{Out: "kind", Const: []byte(` {"a": 1} `)}, {Out: "weight", Path: "weight", Default: []byte("0")},
				{Out: "nope", Path: "nope", Default: []byte(`[]`)}, {Out: "level", Path: "ripeness_level", Default: []byte("0")},
				{Out: "null", Path: "nope", Default: []byte(`null`)},
			}},
			`{"kind":{"a": 1},"weight":0,"nope":[],"level":4,"null":null}`,
		},
		"omit empty": {
			Spec{OmitEmpty: true, Fields: []Field{
				{Out: "n", Path: "weight"}, {Out: "s", Path: "lab.by.last"}, {Out: "o", Path: "lab.empty"}, {Out: "a", Path: "lab.none"},
				{Out: "d", Path: "nope", Default: []byte(`""`)}, {Out: "zero", Const: []byte("0")}, {Out: "false", Const: []byte("false")},
				{Out: "inside", Const: []byte(`{"a":null}`)}, {Out: "q", Path: `tags.#(n>9)#`},
				{Out: "e", Path: "tags", Each: []Field{{Out: "name", Path: "name"}}},
			}},
			`{"zero":0,"false":false,"inside":{"a":null},"e":[{"name":"ripe"},{},{"name":"bio"}]}`,
		},
		"array mapping": {
			Spec{Fields: []Field{
				{Out: "t", Path: "tags", Each: []Field{{Out: "label.text", Path: "name", Default: []byte(`"?"`)}, {Out: "k", Const: []byte("1")}}},
				{Out: "q", Path: "tags.#(n>1)#", Each: []Field{{Out: "n", Path: "n"}}},
				{Out: "nested", Path: "lab.results", Each: []Field{{Out: "first", Path: "0"}, {Out: "all", Path: "@this"}, {Out: "n", Path: "#"}}},
				{Out: "none", Path: "lab.none", Each: []Field{{Out: "n", Path: "n"}}},
				{Out: "object", Path: "lab", Each: []Field{{Out: "n", Path: "n"}}},
				{Out: "fallback", Path: "origin", Default: []byte(`[]`), Each: []Field{{Out: "n", Path: "n"}}},
			}},
			`{"t":[{"label":{"text":"ripe"},"k":1},{"label":{"text":"?"},"k":1},{"label":{"text":"bio"},"k":1}],` +
				`"q":[{"n":2},{"n":3}],"nested":[{"first":1,"all":[1, 2],"n":2},{"first":3,"all":[3],"n":1}],"none":[],"fallback":[]}`,
		},
		"mapping inside a mapping": {
			Spec{Fields: []Field{{Out: "r", Path: "lab.results", Each: []Field{{Out: "x", Path: "@this", Each: []Field{{Out: "v", Path: "@this"}}}}}}},
			`{"r":[{"x":[{"v":1},{"v":2}]},{"x":[{"v":3}]}]}`,
		},
	} {
		require.Equal(t, c.want, project(t, c.spec, banana), name)
	}
}

func TestOutputOfOtherRoots(t *testing.T) {
	for doc, want := range map[string]string{
		`5`: `{"all":5}`, `"{\"id\":1}"`: `{"all":"{\"id\":1}"}`, `null`: `{"all":null}`, `[{"id":1}]`: `{"all":[{"id":1}],"first":1}`,
	} {
		require.Equal(t, want, project(t, Spec{Fields: []Field{{Out: "id", Path: "id"}, {Out: "all", Path: "@this"}, {Out: "first", Path: "0.id"}, {Out: "w", Path: "i*"}}}, doc))
	}
}

// TestTextOfModifierMustBeJSON: what gjson makes up is checked before it is sent.
func TestTextOfModifierMustBeJSON(t *testing.T) {
	p := compile(t, Spec{Fields: []Field{{Out: "id", Path: "id"}, {Out: "twice", Path: `{"a":id,"a":origin}`}}})
	out, match, err := p.Project([]byte("kept"), parseText(t, banana))
	var bad *ValueError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "twice", bad.Out)
	require.Equal(t, "acme", bad.Customer)
	var syntax *canonicaltree.SyntaxError
	require.ErrorAs(t, err, &syntax)
	require.False(t, match)
	require.Equal(t, "kept", string(out))
	require.NotContains(t, err.Error(), "B-007")
}

func TestCompileTellsAllFaults(t *testing.T) {
	_, err := Compile(Spec{
		Customer: "acme", Name: "ripeness", Numbers: 9,
		When: "doc.a ==\n  now()",
		Fields: []Field{
			{Out: "a", Path: "x"}, {Out: "a.b", Path: "x"}, {Out: "a", Path: "x"}, {Out: "c..d", Path: "x"}, {Out: `c\d`, Path: "x"},
			{Out: "", Path: "x"}, {Out: "p", Path: ""}, {Out: "q", Path: "é.@nope"}, {Out: "k", Path: "x", Const: []byte("1")},
			{Out: "l", Const: []byte("{")}, {Out: "m", Path: "x", Default: []byte("nope")}, {Out: "n", Path: "x", Each: []Field{}},
			{Out: "o", Path: "x", Each: []Field{{Out: "i", Path: "a"}, {Out: "i", Path: "a."}}}, {Out: "r", Const: []byte("1"), Default: []byte("1")},
			{Out: "s", Const: []byte("1"), Each: []Field{{Out: "i", Path: "a"}}}, {Out: "v.w", Path: "x"}, {Out: "v", Path: "x"},
		},
	})
	var all *CompileError
	require.ErrorAs(t, err, &all)
	var got []string
	for _, f := range all.Faults {
		require.NotEmpty(t, f.Want, f.String())
		got = append(got, strings.SplitN(strings.SplitN(f.String(), ";", 2)[0], ": json:", 2)[0])
	}
	require.Equal(t, []string{
		`fields[1] (a.b) out: has the place of another field, or is inside it`,
		`fields[2] (a) out: has the place of another field, or is inside it`,
		`fields[3] (c..d) out: has an empty name`,
		`fields[4] (c\d) out: has a backslash that escapes nothing`,
		`fields[5] out: has an empty name`,
		`fields[6] (p) path 1:1: is empty`,
		`fields[7] (q) path 1:3: has an unknown modifier @nope`,
		`fields[8] (k) const: is set together with a path`,
		`fields[9] (l) const: is not JSON`,
		`fields[10] (m) default: is not JSON`,
		`fields[11] (n) each: has no fields`,
		`fields[12].each[1] (i) path 1:3: has an empty part`,
		`fields[12].each[1] (i) out: has the place of another field, or is inside it`,
		`fields[13] (r) const: is set together with a default`,
		`fields[14] (s) const: is set together with an array mapping`,
		`fields[16] (v) out: has the place of another field, or is inside it`,
		`numbers: is unknown`,
		`when 2:3: now() depends on time or time zones`,
	}, got)
	require.Contains(t, err.Error(), "projection acme/ripeness: when 2:3: now()")

	_, err = Compile(Spec{Customer: "acme", Name: "x"})
	require.ErrorContains(t, err, "fields: there is none")
}

func TestBadPaths(t *testing.T) {
	for path, want := range map[string]string{
		``: "is empty", `.a`: "empty part", `a.`: "empty part", `a..b`: "empty part", `..0.a`: "empty part", `a|`: "empty part",
		"a\xff": "UTF-8", `a\`: "single backslash", `!true`: "literal", `a.007`: "not written plainly",
		`a.@nope`: "unknown modifier @nope", `@`: "unknown modifier @", `a|@type.b`: "unknown modifier", `a.#(b`: "never closed",
		`a.#(b=="x)`: "never closed", `a.#(b]`: "another kind", `a.#()`: "empty query", `a.#(b===1)`: "unknown operator",
		`a.#(b=<1)`: "unknown operator", `a.#(b==1)c`: "right after a query", `a.#(b..c==1)`: "empty part", `a.#(@nope==1)`: "unknown modifier",
		`a.#(b==1 && c==2)`: "compares with what is no number", `a.#(b=="x" && c=="y")#`: "compares with", `a.#(b==)`: "compares with", `a.#(b==ripe)`: "compares with",
		`a.#(b!=null)#`: "compares with", `a.#(b==0x1)`: "compares with", `a.#(b%"\*")`: "compares with", `a.#(b==~yes)`: "compares with", `a.#(c.#(b>1.))`: "compares with",
		`{a,b`: "never closed", `[a,,b]`: "selects nothing", `{"x":}`: "selects nothing", `{a}b`: "part has ended",
		`a|@pretty:`: "without an argument", `a|@pretty:{"x"}`: "not JSON", `[a.@nope]`: "unknown modifier", `a.*.`: "empty part",
		`a.#.@nope`: "unknown modifier", `a|!null`: "literal",
	} {
		_, err := Compile(Spec{Fields: []Field{{Out: "v", Path: path}}})
		var bad *CompileError
		require.ErrorAs(t, err, &bad, path)
		require.Len(t, bad.Faults, 1, path)
		require.Contains(t, bad.Faults[0].Msg, want, path)
		require.Equal(t, "path", bad.Faults[0].Part)
	}
}

func TestReadSet(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want []canonicaltree.Path
	}{
		{Spec{Fields: []Field{{Out: "k", Const: []byte("1")}}}, nil},
		{Spec{Fields: []Field{{Out: "a", Path: `a.b\.c.0`}, {Out: "b", Path: "a"}, {Out: "c", Path: "a.x"}, {Out: "d", Path: "ab"}}}, []canonicaltree.Path{{"a"}, {"ab"}}},
		{Spec{Fields: []Field{{Out: "a", Path: "t.#.name"}, {Out: "b", Path: "u.v.#(x==1).y"}, {Out: "c", Path: "w.*.z"}, {Out: "d", Path: "x.y|@keys"}}}, []canonicaltree.Path{{"t", "#", "name"}, {"u", "v"}, {"w"}, {"x", "y"}}},
		{Spec{Fields: []Field{{Out: "a", Path: "t", Each: []Field{{Out: "n", Path: "name"}, {Out: "i", Path: "in", Each: []Field{{Out: "k", Const: []byte("1")}}}, {Out: "k", Const: []byte("1")}}}}},
			[]canonicaltree.Path{{"t", "#", "in", "#"}, {"t", "#", "name"}}},
		{Spec{Fields: []Field{{Out: "a", Path: "t.#.u", Each: []Field{{Out: "n", Path: "name"}}}, {Out: "b", Path: "u|@reverse", Each: []Field{{Out: "n", Path: "name"}}}, {Out: "n", Path: "v.#"}}},
			[]canonicaltree.Path{{"t", "#", "u"}, {"u"}, {"v", "#"}}},
		{Spec{Fields: []Field{{Out: "a", Path: "{a,b}"}, {Out: "b", Path: "c"}}}, []canonicaltree.Path{{}}},
		{Spec{When: `doc.a.b == 1 and doc["c"][0].d > doc.e[doc.f].g`}, []canonicaltree.Path{{"a", "b"}, {"c", "0", "d"}, {"e"}, {"f"}}},
		{Spec{When: `any(doc.items, .kind == doc.kind) or len(doc?.x?.y) > 0`}, []canonicaltree.Path{{"items"}, {"kind"}, {"x", "y"}}},
		{Spec{When: `doc[doc.name] == 1`}, []canonicaltree.Path{{}}},
		{Spec{When: `let d = doc; d.a == 1`}, []canonicaltree.Path{{}}},
	} {
		require.Equal(t, c.want, compile(t, c.spec).ReadSet(), "%+v", c.spec)
	}
}

func TestReads(t *testing.T) {
	p := compile(t, Spec{When: "doc.w.x == 1", Fields: []Field{
		{Out: "a.b", Path: "p.0"}, {Out: "k", Const: []byte("1")}, {Out: "n", Path: "items.#.seen_at"}, {Out: "q", Path: "r.#(x==1).y"},
		{Out: "e", Path: "list", Each: []Field{{Out: "v", Path: "v.w"}, {Out: "i", Path: "inner", Each: []Field{{Out: "z", Path: "@this"}}}}},
	}})
	var got []string
	for what, path := range p.Reads() {
		got = append(got, what+" "+path.String())
	}
	require.Equal(t, []string{"a.b p.0", `n items.\#.seen_at`, "q r", `e.v list.\#.v.w`, `e.i.z list.\#.inner.\#`, "when w.x"}, got)
	for range p.Reads() {
		break
	}
}

// TestVersionsAreThoseInUse: another release of the libraries behind paths and
// filters is another configuration.
func TestVersionsAreThoseInUse(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(mod), "github.com/"+expressions+" ")
	require.Contains(t, string(mod), "github.com/"+paths+" ")
}

func TestIndex(t *testing.T) {
	specs := []Spec{
		{Fields: []Field{{Out: "a", Path: "a.b"}}},
		{Fields: []Field{{Out: "a", Path: "a"}, {Out: "c", Path: "c.d"}}},
		{Fields: []Field{{Out: "a", Path: "items.#.x"}}},
		{Fields: []Field{{Out: "a", Path: "@this"}}},
		{Fields: []Field{{Out: "a", Const: []byte("1")}}},
		{When: "doc.a.z == 1"},
	}
	ps := make([]*Projection, len(specs))
	for i, s := range specs {
		ps[i] = compile(t, s)
	}
	index := NewIndex(ps)
	var set Set
	for _, c := range []struct {
		before, after string
		want          []bool
	}{
		{`[]`, `{"a":{"z":1}}`, []bool{true, true, true, true, false, true}},
		{`[]`, `{"a":{"z":2}}`, []bool{true, true, true, true, false, false}},
		{`{"a":{"z":1}}`, `{"a":7}`, []bool{true, true, false, true, false, true}},
		{`{"a":{"b":{"x":1}}}`, `{"a":{"b":{"x":2}}}`, []bool{true, true, false, true, false, false}},
		{`{"a":{"q":1}}`, `{"a":{"q":2}}`, []bool{false, true, false, true, false, false}},
		{`{"a":{"z":2}}`, `{"a":{"z":1.0}}`, []bool{false, true, false, true, false, true}},
		{`{"items":[0,0,0,{"x":1}]}`, `{"items":[0,0,0,{"x":2}]}`, []bool{false, false, true, true, false, false}},
		{`{"c":1}`, `{"c":{}}`, []bool{false, true, false, true, false, false}},
		{`{"d":1}`, `{}`, []bool{false, false, false, true, false, false}},
	} {
		set.Clear()
		touchedBy(index, parseText(t, c.before), parseText(t, c.after), &set)
		for i, want := range c.want {
			require.Equal(t, want, set.Has(i), "%d from %s to %s", i, c.before, c.after)
		}
	}
	set.Clear()
	set.Add(4)
	touchedBy(index, parseText(t, `{"c":{"d":1},"x":[1]}`), parseText(t, `{"x":[1],"c":{"d":2}}`), &set)
	require.ElementsMatch(t, []int{1, 3, 4}, set.List(), "it adds and never clears")
}

func TestSet(t *testing.T) {
	for _, round := range []uint32{0, 1, math.MaxUint32} {
		set := Set{round: round}
		require.False(t, set.Has(0))
		require.Empty(t, set.List())
		set.Add(7)
		set.Add(2)
		set.Add(7)
		require.Equal(t, []int{7, 2}, set.List())
		require.True(t, set.Has(2))
		require.False(t, set.Has(3))
		set.Clear()
		require.False(t, set.Has(7))
		require.Empty(t, set.List())
	}
}

func TestFingerprint(t *testing.T) {
	sum := func(s Spec) [32]byte {
		var b bytes.Buffer
		s.Fingerprint(&b)
		return sha256.Sum256(b.Bytes())
	}
	seen := map[[32]byte]int{}
	for i, s := range []Spec{
		{Fields: []Field{{Out: "a", Path: "b"}}}, {Fields: []Field{{Out: "b", Path: "b"}}}, {Fields: []Field{{Out: "a", Path: "c"}}},
		{Fields: []Field{{Out: "a", Path: "b", Default: []byte("1")}}}, {Fields: []Field{{Out: "a", Const: []byte("1")}}},
		{Fields: []Field{{Out: "a", Path: "b", Each: []Field{{Out: "c", Path: "c"}}}}}, {Fields: []Field{{Out: "a", Path: "b"}, {Out: "c", Path: "c"}}},
		{When: "doc.a"}, {When: "doc.b"}, {OmitEmpty: true}, {Numbers: canonicaltree.Decimal},
	} {
		h := sum(s)
		require.NotContains(t, seen, h, "%d", i)
		seen[h] = i
		require.Equal(t, h, sum(s), "%d", i)
	}
}

func TestConcurrentUse(t *testing.T) {
	p := compile(t, Spec{When: `doc.origin in ["EC"] and any(doc.tags, .n == 3)`, Fields: []Field{{Out: "a", Path: "tags.#(n>1)#.n"}, {Out: "b", Path: "tags.#.name"}}})
	doc := parseText(t, banana)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				out, match, err := p.Project(nil, doc)
				if err != nil || !match || string(out) != `{"a":[2,3],"b":["ripe","bio"]}` {
					t.Errorf("%s %t %v", out, match, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// benchmarkSpecs returns 24 projections of 8 fields of one document.
func benchmarkSpecs() (specs []Spec, doc string) {
	var b strings.Builder
	b.WriteString(`{"id":"B-007"`)
	for i := range 24 {
		name := string(rune('a' + i))
		b.WriteString(`,"` + name + `":{"one":"some text of usual length","two":` + `12345.75` + `,"three":[1,2,3],"four":{"five":true}}`)
	}
	b.WriteString("}")
	for i := range 24 {
		s := Spec{Customer: "acme", Name: string(rune('a' + i))}
		for k, leaf := range []string{"one", "two", "three.1", "four.five"} {
			s.Fields = append(s.Fields,
				Field{Out: "x" + string(rune('0'+k)), Path: string(rune('a'+i)) + "." + leaf},
				Field{Out: "y" + string(rune('0'+k)), Path: string(rune('a'+(i*7+k)%24)) + "." + leaf})
		}
		specs = append(specs, s)
	}
	return specs, b.String()
}

func BenchmarkProject(b *testing.B) {
	specs, text := benchmarkSpecs()
	for name, when := range map[string]string{"all": "", "filtered": `doc.a.one != "x" and doc.id in ["B-007", "B-008"]`} {
		b.Run(name, func(b *testing.B) {
			ps := make([]*Projection, len(specs))
			for i, s := range specs {
				s.When = when
				ps[i] = compile(b, s)
			}
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var out []byte
			for b.Loop() {
				tree, err := canonicaltree.Parse([]byte(text))
				require.NoError(b, err)
				for _, p := range ps {
					out, _, _ = p.Project(out[:0], tree.Root())
				}
				tree.Release()
			}
		})
	}
}

func BenchmarkTouched(b *testing.B) {
	specs, text := benchmarkSpecs()
	ps := make([]*Projection, len(specs))
	for i, s := range specs {
		ps[i] = compile(b, s)
	}
	index := NewIndex(ps)
	x, y := parseText(b, text), parseText(b, strings.Replace(text, "12345.75", "0", 1))
	var set Set
	b.ReportAllocs()
	for b.Loop() {
		set.Clear()
		touchedBy(index, x, y, &set)
	}
}
