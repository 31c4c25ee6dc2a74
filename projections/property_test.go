package projections

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections/merge"
)

// names are those of members in random documents: few, so that paths meet them,
// and with everything that paths give a meaning to.
var names = []string{"a", "b", "c", "0", "1", "x.y", "#", "é", "a*", "@keys", `q"`, "|"}

func drawValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth > 0 {
		kinds = 10 + 4*depth
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2, 3:
		return json.Number(rapid.SampledFrom([]string{"0", "1", "2", "1.0", "-3.5", "1e3"}).Draw(t, "number"))
	case 4, 5:
		return rapid.SampledFrom([]string{"", "a", "b", "ripe", "é\"\\"}).Draw(t, "string")
	case 6, 7, 10, 12, 14, 16, 18, 20:
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return drawValue(t, depth-1) }), 0, 3).Draw(t, "array")
	default:
		return rapid.MapOfN(rapid.SampledFrom(names), rapid.Custom(func(t *rapid.T) any { return drawValue(t, depth-1) }), 1, 4).Draw(t, "object")
	}
}

// drawText writes v as JSON with members in random order and random escapes.
func drawText(t *rapid.T, v any) string {
	switch v := v.(type) {
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = drawText(t, v[i])
		}
		return "[" + strings.Join(parts, " , ") + "]"
	case map[string]any:
		keys := make([]string, 0, len(v))
		for _, n := range names {
			if _, ok := v[n]; ok {
				keys = append(keys, n)
			}
		}
		keys = rapid.Permutation(keys).Draw(t, "order")
		parts := make([]string, len(keys))
		for i, k := range keys {
			parts[i] = drawText(t, k) + ": " + drawText(t, v[k])
		}
		return "{" + strings.Join(parts, ",") + "}"
	case string:
		if strings.HasPrefix(v, "a") && rapid.Bool().Draw(t, "escape") {
			return `"\u0061` + v[1:] + `"`
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// drawChange returns a value that differs from v in a few places at most.
func drawChange(t *rapid.T, v any, depth int) any {
	if depth > 0 && rapid.IntRange(0, 4).Draw(t, "deeper") > 0 {
		switch v := v.(type) {
		case []any:
			if len(v) > 0 {
				w := append([]any(nil), v...)
				i := rapid.IntRange(0, len(w)-1).Draw(t, "element")
				w[i] = drawChange(t, w[i], depth-1)
				return w
			}
		case map[string]any:
			w := make(map[string]any, len(v))
			for k, m := range v {
				w[k] = m
			}
			k := rapid.SampledFrom(names).Draw(t, "member")
			if m, ok := w[k]; ok && rapid.Bool().Draw(t, "inside") {
				w[k] = drawChange(t, m, depth-1)
			} else if ok && rapid.Bool().Draw(t, "remove") {
				delete(w, k)
			} else {
				w[k] = drawValue(t, 1)
			}
			return w
		}
	}
	return drawValue(t, depth)
}

func drawDocument(t *rapid.T) any {
	if rapid.IntRange(0, 19).Draw(t, "any root") == 0 {
		return drawValue(t, 3)
	}
	return rapid.MapOfN(rapid.SampledFrom(names), rapid.Custom(func(t *rapid.T) any { return drawValue(t, 3) }), 2, 6).Draw(t, "root")
}

func parseText(t require.TestingT, text string) canonicaltree.Node {
	tree, err := canonicaltree.Parse([]byte(text))
	require.NoError(t, err, text)
	return tree.Root()
}

// drawPlain draws a path of names, indexes and hashes, which mostly follows from.
func drawPlain(t *rapid.T, from any) string {
	var parts []string
	for range rapid.IntRange(1, 4).Draw(t, "parts") {
		part := rapid.SampledFrom([]string{"#", "0", "1", "2", "a", "b", `x\.y`, `\#`, `\0`, "é"}).Draw(t, "part")
		if rapid.IntRange(0, 4).Draw(t, "follow") > 0 {
			switch v := from.(type) {
			case []any:
				part = rapid.SampledFrom([]string{"#", "#", "0", "1"}).Draw(t, "of array")
				if from = nil; len(v) > 0 {
					from = v[rapid.IntRange(0, len(v)-1).Draw(t, "element")]
				}
			case map[string]any:
				name := rapid.SampledFrom(names).Draw(t, "of object")
				for i := 0; i < len(names) && len(v) > 0; i++ {
					if _, ok := v[name]; ok {
						break
					}
					name = names[(i+1)%len(names)]
				}
				from = v[name]
				if part = gjson.Escape(name); part == "0" || part == "1" {
					part = `\` + part
				}
			}
		}
		parts = append(parts, part)
		switch from.(type) {
		case []any, map[string]any:
		default:
			if rapid.IntRange(0, 4).Draw(t, "go on") > 0 {
				return strings.Join(parts, ".")
			}
		}
	}
	return strings.Join(parts, ".")
}

func drawPath(t *rapid.T, from any) string {
	plain := drawPlain(t, from)
	switch rapid.IntRange(0, 7).Draw(t, "shape") {
	case 0:
		return plain + "." + rapid.SampledFrom([]string{"*", "a*", "?", "*.b", "*.#.a"}).Draw(t, "wild")
	case 1:
		return plain + "." + rapid.SampledFrom([]string{`#(a==1)`, `#(a>0)#`, `#(b=="ripe").c`, `#(b%"r*")#.a`, `#(==1)#`, `#(a)#.a|0`, `#(a.#(==1))#`, `#(b==~true)#`}).Draw(t, "query")
	case 2:
		return plain + rapid.SampledFrom([]string{"|@keys", ".@values", "|@reverse", ".@this.a", "|@flatten", `.@pretty:{"indent":""}`, "|@tostr", "|@join", "|@dig:a", "|a", "|#", ".@ugly|0", "|@valid", ".a*|@keys", ".*.@values", ".#(a>0)|@tostr", ".#(a>0)#.@keys", ".#.a|@reverse|0", ".#.@this.a", ".#.[a,b]|0", "|{a}.a", ".?|[a,b]|@join.0"}).Draw(t, "modifier")
	case 3:
		if rapid.Bool().Draw(t, "plain") {
			return plain
		}
		return rapid.SampledFrom([]string{"@this", "*", "@keys", `{a,"z":b.c}`, "[a,b.#]", "*.a", "@this|a", "@dig:b", "a.{b,c}", "a.[0,1]"}).Draw(t, "root path")
	}
	return plain
}

var filters = []string{
	`doc.a == 1`, `doc.a.b in ["ripe", "a"]`, `doc.b > 0`, `any(doc.a, .b == "ripe")`, `doc.a[0] != null`,
	`len(doc.c) > 1`, `"a" in doc.b`, `doc["x.y"] == doc.b`, `doc.a[-1] == 1`, `let v = doc.c; v.a == v.b`,
	`doc == {"a": 1}`, `count(doc.b, # == 1) > 0 or doc.c`, `doc.a[doc.b] == null`, `doc?.a?.b == nil`,
	`doc.a["0"] == 1`, `not (doc.b < doc.c)`, `all(doc.a, any(#.b, # == 1))`, `first(doc.a) == 1`,
	`doc.a[0:1] == [1]`, `(doc.b ?? doc.c) == true`, `get(doc.a, "b") == 1`, `doc.b ? doc.c : doc.a`,
}

// arrayIn returns the name of an array in an object, and an element of it.
func arrayIn(from any) (name string, element any) {
	object, _ := from.(map[string]any)
	for _, name := range names {
		if array, _ := object[name].([]any); len(array) > 0 && !strings.Contains("01#", name) {
			return name, array[len(array)-1]
		}
	}
	return "", nil
}

// computed are expressions, those of item for the fields of each.
var computed = []string{
	`doc.a`, `doc.b.c`, `(doc.a ?? 0) + 1`, `doc.a + doc.b`, `sum(map(doc.a, .b ?? 0))`, `len(doc.c)`, `format("%s-%s", doc.a, doc["x.y"])`,
	`json(doc.b)`, `sha256(doc.a)`, `uniq(doc.c)`, `sort(doc.a)`, `doc.a == 1 ? doc.b : null`, `{"n": doc.a, "m": [doc.b]}`, `filter(doc.a, .b == 1)`,
	`doc.a * 2 - 1`, `hmac(doc.a, "s")`, `year(doc.a)`, `groupBy(doc.a, .b)`, `split(doc.a ?? "", "")`, `upper(doc.a)`,
}

var ofItem = []string{`item`, `item.a`, `item.b ?? doc.a`, `item == doc.a`, `doc.c`, `(item.b ?? 0) + 1`, `[item.a, doc.b]`, `1`}

func drawSame(t *rapid.T) *Same {
	places := rapid.IntRange(-1, 1).Draw(t, "places")
	return rapid.SampledFrom([]*Same{nil, nil, nil, {Round: &places}, {Set: true}, {Fold: true, Trim: true}, {Set: true, Fold: true, Round: &places}}).Draw(t, "same")
}

func drawFields(t *rapid.T, depth int, from any) []Field {
	outs := []string{"p", "g.q", "g.h.r", `s\.t`, "e"}
	fields := make([]Field, rapid.IntRange(1, 3).Draw(t, "fields"))
	for i := range fields {
		f := Field{Out: outs[i]}
		switch rapid.IntRange(0, 7).Draw(t, "field") {
		case 0:
			f.Const = []byte(`{"k": 1}`)
		case 6, 7:
			expressions := computed
			if depth < 2 {
				expressions = append(ofItem[:len(ofItem):len(ofItem)], computed...)
			}
			f.Expr = rapid.SampledFrom(expressions).Draw(t, "expr")
			if rapid.Bool().Draw(t, "default") {
				f.Default = []byte(`"d"`)
			}
		case 1:
			f.Path, f.Default = drawPath(t, from), []byte(rapid.SampledFrom([]string{"0", "null", `""`, "[]"}).Draw(t, "default"))
		case 2:
			f.Path = drawPath(t, from)
			if depth > 0 {
				name, element := arrayIn(from)
				if name == "" || rapid.IntRange(0, 3).Draw(t, "any array") == 0 {
					element = drawValue(t, 2)
				} else {
					f.Path = gjson.Escape(name)
				}
				f.Each = drawFields(t, depth-1, element)
			}
		default:
			f.Path = drawPath(t, from)
		}
		if f.Same = drawSame(t); f.Const != nil || f.Each != nil && f.Same != nil && *f.Same != (Same{Set: true}) {
			f.Same = nil
		}
		fields[i] = f
	}
	return fields
}

func drawSpec(t *rapid.T, from any) Spec {
	s := Spec{Customer: "acme", Name: "p", Fields: drawFields(t, 2, from), OmitEmpty: rapid.Bool().Draw(t, "omit")}
	s.Secrets = map[string][]byte{"s": []byte("key")}
	if rapid.IntRange(0, 3).Draw(t, "carrying") == 0 {
		for _, f := range drawFields(t, 2, from) {
			f.Out, f.Same = "carried."+f.Out, nil
			for i := range f.Each {
				f.Each[i].Same = nil
			}
			if f.Each == nil {
				s.Carry = append(s.Carry, f)
			}
		}
	}
	if rapid.Bool().Draw(t, "filtered") {
		s.When = rapid.SampledFrom(filters).Draw(t, "when")
	}
	return s
}

// outcome is the projection of a document, in canonical form.
func outcome(t require.TestingT, p *Projection, doc canonicaltree.Node) string {
	return outcomeOf(t, p, doc, false)
}

// compared is outcome without carried fields.
func compared(t require.TestingT, p *Projection, doc canonicaltree.Node) string {
	return outcomeOf(t, p, doc, true)
}

func outcomeOf(t require.TestingT, p *Projection, doc canonicaltree.Node, compared bool) string {
	out, match, err := p.project([]byte("kept"), source{root: doc}, compared)
	require.True(t, strings.HasPrefix(string(out), "kept"))
	if err != nil || !match {
		require.Len(t, out, len("kept"))
		return fmt.Sprintf("%t %v", match, err)
	}
	return "true " + string(parseText(t, string(out[len("kept"):])).AppendCanonical(nil))
}

// touchedBy adds the projections that may show a difference of two documents.
func touchedBy(x *Index, a, b canonicaltree.Node, set *Set) {
	plan := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "s"}}})
	before, after := documentOf(x, plan, map[string]canonicaltree.Node{"s": a}), documentOf(x, plan, map[string]canonicaltree.Node{"s": b})
	plan.Differences(before.found[0].layers, "s", a, b, func(p canonicaltree.Path) { x.TouchedBy(p, before, after, set) })
}

func documentOf(x *Index, plan *merge.Plan, docs map[string]canonicaltree.Node) *Document {
	layers, _, err := plan.Layers(nil, docs)
	if err != nil {
		panic(err)
	}
	d := new(Document)
	d.Reset(x, layers)
	return d
}

// TestPruningIsSound: a projection that the index does not mark for the
// differences of two documents says the same of both.
func TestPruningIsSound(t *testing.T) {
	pruned, touched := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		from := drawDocument(t)
		to := drawDocument(t)
		if rapid.IntRange(0, 3).Draw(t, "near") > 0 {
			to = drawChange(t, from, 3)
		}
		a, b := parseText(t, drawText(t, from)), parseText(t, drawText(t, to))
		ps := make([]*Projection, rapid.IntRange(1, 4).Draw(t, "projections"))
		for i := range ps {
			p, err := Compile(drawSpec(t, from))
			require.NoError(t, err)
			ps[i] = p
		}
		var set Set
		touchedBy(NewIndex(ps), a, b, &set)
		for i, p := range ps {
			if set.Has(i) {
				touched++
				continue
			}
			pruned++
			require.Equal(t, compared(t, p, a), compared(t, p, b), "reads %v\na %s\nb %s\nspec %+v", p.ReadSet(), a.Raw(), b.Raw(), p.Spec())
		}
	})
	require.Positive(t, pruned, "nothing was ever pruned: the property says nothing")
	require.Positive(t, touched)
}

// TestSpellingDoesNotMatter: two texts of one value have one outcome.
func TestSpellingDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawDocument(t)
		a, b := parseText(t, drawText(t, v)), parseText(t, drawText(t, v))
		p, err := Compile(drawSpec(t, v))
		require.NoError(t, err)
		require.Equal(t, outcome(t, p, a), outcome(t, p, b), "a %s\nb %s\nspec %+v", a.Raw(), b.Raw(), p.Spec())
	})
}

// viaGjson is what gjson returns for a path, in canonical form.
func viaGjson(t require.TestingT, doc canonicaltree.Node, path string) string {
	result := gjson.GetBytes(doc.AppendCanonical(nil), path)
	if !result.Exists() {
		return "absent"
	}
	return string(parseText(t, result.Raw).AppendCanonical(nil))
}

func viaTree(t require.TestingT, doc canonicaltree.Node, path string) string {
	p, err := Compile(Spec{Fields: []Field{{Out: "v", Path: path}}})
	require.NoError(t, err, path)
	out, _, err := p.Project(nil, doc)
	require.NoError(t, err, path)
	v := parseText(t, string(out)).Get("v")
	if !v.Exists() {
		return "absent"
	}
	return string(v.AppendCanonical(nil))
}

// TestPathsAgreeWithGjson: paths mean what gjson says, whether they are read from
// the tree, by gjson, or by both in turn.
func TestPathsAgreeWithGjson(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawDocument(t)
		doc := parseText(t, drawText(t, v))
		switch doc.Kind() {
		case canonicaltree.Object, canonicaltree.Array:
		default:
			return // gjson looks for brackets inside a string
		}
		path := drawPath(t, v)
		// gjson hands some modifiers an empty text behind a pipe; nothing is nothing.
		p, _ := parsePath(path)
		absent := false
		if len(p.rest) > 0 {
			v, _ := follow(doc, p.steps)
			absent = !v.Exists()
		}
		for from := len(path); len(p.rest) > 1 && !absent; {
			from -= 1 + len(p.rest[len(p.rest)-1])
			p.rest = p.rest[:len(p.rest)-1]
			absent = viaGjson(t, doc, path[:from]) == "absent"
		}
		if absent {
			require.Equal(t, "absent", viaTree(t, doc, path), path)
			return
		}
		require.Equal(t, viaGjson(t, doc, path), viaTree(t, doc, path), "%s of %s", path, doc.AppendCanonical(nil))
	})
}

func TestPlainPathsAreReadFromTheTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := drawPlain(t, drawDocument(t))
		p, fault := parsePath(path)
		require.Nil(t, fault, path)
		require.Empty(t, p.rest, path)
	})
}

// FuzzPath: no path makes the compiler or a projection fail in any way but by a
// fault, plain paths agree with gjson, and a path never reads what its read-set
// leaves out.
func FuzzPath(f *testing.F) {
	const doc = `{"a":[{"b":1,"c":["x",null]},{"b":2},3,"s"],"b":{"a":{"0":true},"x.y":"z","#t":[[1],[2]]},"c":null,"é":"\u00e9"}`
	for _, path := range []string{"a.0.b", "a.#.b", "a.#", `b.x\.y`, "a.#(b==1).c", "*", "b.@keys", "{a,b}", `a.#(b>1)#.b|0`, `b.\#t.#.0`, "@this", `[a.#,"x":c]`, "!true", "a..b", `\`, "a.#(b", "@nope", `@pretty:{"a":1}`} {
		f.Add(doc, path)
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		tree, err := canonicaltree.Parse([]byte(text))
		if err != nil {
			return
		}
		p, err := Compile(Spec{Fields: []Field{{Out: "v", Path: path}}})
		if err != nil {
			return
		}
		out, match, err := p.Project(nil, tree.Root())
		if err != nil {
			return
		}
		require.True(t, match)
		shown := parseText(t, string(out)).Get("v")
		compiled, _ := parsePath(path)
		root := tree.Root()
		if len(compiled.rest) == 0 && path != "@this" && root.Len() > 0 && !strings.ContainsAny(text, `\`) && !hasBracketInString(root) {
			want := gjson.GetBytes(root.Raw(), path)
			require.Equal(t, want.Exists(), shown.Exists())
			if shown.Exists() {
				require.True(t, canonicaltree.Equal(parseText(t, want.Raw), shown, canonicaltree.Literal))
			}
		}
	})
}

// hasBracketInString: gjson reads on inside such strings where a path goes
// deeper than the document.
func hasBracketInString(n canonicaltree.Node) bool {
	if text, ok := n.Text(); ok {
		return strings.ContainsAny(text, "{[")
	}
	for _, v := range n.Elements() {
		if hasBracketInString(v) {
			return true
		}
	}
	for name, v := range n.Members() {
		if strings.ContainsAny(name, "{[") || hasBracketInString(v) {
			return true
		}
	}
	return false
}
