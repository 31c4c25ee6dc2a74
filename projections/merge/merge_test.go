package merge

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/tests/vectors"
)

func parseText(t require.TestingT, text string) canonicaltree.Node {
	tree, err := canonicaltree.Parse([]byte(text))
	require.NoError(t, err, text)
	return tree.Root()
}

func canonical(t require.TestingT, text []byte) string {
	if text == nil {
		return "none"
	}
	return string(parseText(t, string(text)).AppendCanonical(nil))
}

// parsed parses documents; nil is none.
func parsed(t require.TestingT, texts map[string][]byte) map[string]canonicaltree.Node {
	nodes := map[string]canonicaltree.Node{}
	for source, text := range texts {
		if text != nil {
			nodes[source] = parseText(t, string(text))
		}
	}
	return nodes
}

// composed returns the text of the merged document.
func composed(t require.TestingT, p *Plan, texts map[string][]byte) (doc []byte, complete bool) {
	node, complete, err := p.Compose(nil, parsed(t, texts))
	require.NoError(t, err)
	return node.Raw(), complete
}

// published reads cases of merge patches that another project publishes.
func published(t *testing.T, name string) (cases []map[string]json.RawMessage) {
	data, err := os.ReadFile(vectors.Published(t, "merge_patch/"+name)[0])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &cases))
	return cases
}

// RFC 7386 (now 7396), appendix A, row by row, and the cases that the rows leave open:
// depth, arrays in objects, null in the stored document, names, and numbers.
func TestRFC7386(t *testing.T) {
	plan := Compile(Spec{Sources: []Source{{Name: "s", Patch: true}}})
	for _, c := range []struct{ original, patch, result string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		// Depth: only the named members change.
		{`{"a":{"b":{"c":1,"d":2},"e":3}}`, `{"a":{"b":{"c":null}}}`, `{"a":{"b":{"d":2},"e":3}}`},
		{`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":1}}`},
		{`{"a":1}`, `{"a":{"b":{"c":null,"d":4}}}`, `{"a":{"b":{"d":4}}}`},
		{`{"a":{"b":1}}`, `{"a":2}`, `{"a":2}`},
		{`{"a":{"b":1},"c":2}`, `{}`, `{"a":{"b":1},"c":2}`},
		{`{"a":1}`, `{"z":null}`, `{"a":1}`},
		// Arrays are replaced as they are: null in them is a value, and so it is in
		// objects inside them.
		{`{"a":[1,2,3]}`, `{"a":[]}`, `{"a":[]}`},
		{`{"a":[1]}`, `{"a":[null,{"b":null},[null]]}`, `{"a":[null,{"b":null},[null]]}`},
		{`["a",null]`, `[null]`, `[null]`},
		{`{"a":[{"b":1,"c":2}]}`, `{"a":[{"b":3}]}`, `{"a":[{"b":3}]}`},
		// Null that is stored stays until it is named.
		{`{"a":null,"b":{"c":null}}`, `{"b":{"d":1}}`, `{"a":null,"b":{"c":null,"d":1}}`},
		{`{"a":null}`, `{"a":{"b":null}}`, `{"a":{}}`},
		{`{"a":null}`, `{"a":null}`, `{}`},
		// Values that are no objects.
		{`1`, `{"a":1}`, `{"a":1}`},
		{`null`, `{"a":null}`, `{}`},
		{`{"a":1}`, `false`, `false`},
		{`{"a":1}`, `0`, `0`},
		{`[]`, `{}`, `{}`},
		// A name is its meaning, not its spelling or another notation.
		{`{"a/b":1,"a.b":2,"":3}`, `{"a\u002fb":null,"":4}`, `{"a.b":2,"":4}`},
		{`{"é":1,"e\u0301":2}`, `{"\u00e9":null}`, `{"e\u0301":2}`},
		{`{"a":1}`, `{"a":1.0}`, `{"a":1.0}`},
	} {
		doc, changed, err := plan.NextNode(nil, "s", parseText(t, c.original), parseText(t, c.patch))
		require.NoError(t, err)
		require.Equal(t, canonical(t, []byte(c.result)), canonical(t, doc.Raw()), "%s and %s", c.original, c.patch)
		require.Equal(t, canonical(t, []byte(c.result)) != canonical(t, []byte(c.original)), changed, "%s and %s", c.original, c.patch)
	}
}

// TestPublishedMergePatches: every case of RFC 7396, appendix A, and those of a
// widely used implementation.
func TestPublishedMergePatches(t *testing.T) {
	plan := Compile(Spec{Sources: []Source{{Name: "s", Patch: true}}})
	for _, file := range []string{"rfc7396_appendix_a.json", "evanphx_apply_cases.json", "evanphx_create_cases.json"} {
		for i, c := range published(t, file) {
			want := c["result"]
			if want == nil {
				want = c["target"]
			}
			require.NotNil(t, want)
			doc, changed, err := plan.NextNode(nil, "s", parseText(t, string(c["original"])), parseText(t, string(c["patch"])))
			require.NoError(t, err)
			require.Equal(t, canonical(t, want), canonical(t, doc.Raw()), "%s case %d", file, i)
			require.Equal(t, canonical(t, want) != canonical(t, c["original"]), changed, "%s case %d", file, i)
		}
	}
}

func TestCompose(t *testing.T) {
	three := []Source{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for name, c := range map[string]struct {
		spec     Spec
		docs     map[string][]byte
		want     string
		complete bool
	}{
		"nothing":             {Spec{Sources: three}, nil, "none", true},
		"required is missing": {Spec{Sources: three, Required: []string{"b"}}, map[string][]byte{"a": []byte(`1`), "b": nil}, "1", false},
		"required is there":   {Spec{Sources: three, Required: []string{"b"}}, map[string][]byte{"b": []byte(`{}`)}, "{}", true},
		"objects merge deeply": {Spec{Sources: three}, map[string][]byte{"a": []byte(`{"x":{"p":1},"l":[1]}`), "b": []byte(`{"x":{"p":2,"q":{"r":3}},"l":[2,3],"y":4}`)},
			`{"l":[1],"x":{"p":1,"q":{"r":3}},"y":4}`, true},
		"precedence": {Spec{Sources: three, Precedence: []string{"c", "b"}}, map[string][]byte{"a": []byte(`{"v":"a","w":"a","u":"a"}`), "b": []byte(`{"v":"b","w":"b"}`), "c": []byte(`{"v":"c"}`)},
			`{"u":"a","v":"c","w":"b"}`, true},
		"null wins, absence does not": {Spec{Sources: three}, map[string][]byte{"a": []byte(`{"v":null}`), "b": []byte(`{"v":1,"w":2}`)}, `{"v":null,"w":2}`, true},
		"the first decides the kind":  {Spec{Sources: three}, map[string][]byte{"a": []byte(`{"v":{"x":1}}`), "b": []byte(`{"v":5}`), "c": []byte(`{"v":{"y":2}}`)}, `{"v":{"x":1,"y":2}}`, true},
		"a value hides objects":       {Spec{Sources: three}, map[string][]byte{"a": []byte(`{"v":5}`), "b": []byte(`{"v":{"x":1}}`)}, `{"v":5}`, true},
		"a root that is no object":    {Spec{Sources: three}, map[string][]byte{"a": []byte(`{"v":5}`), "b": []byte(`[1]`), "c": []byte(`{"w":1}`)}, `{"v":5,"w":1}`, true},
		"which may also win":          {Spec{Sources: three}, map[string][]byte{"a": []byte(`[1]`), "b": []byte(`{"v":5}`)}, `[1]`, true},
		"mounts": {Spec{Sources: []Source{{Name: "a"}, {Name: "b", Mount: canonicaltree.Path{"lab", "x.y"}}, {Name: "c", Mount: canonicaltree.Path{"lab"}}}},
			map[string][]byte{"a": []byte(`{"id":1,"lab":{"k":1}}`), "b": []byte(`[1]`), "c": []byte(`{"z":2,"k":3}`)}, `{"id":1,"lab":{"k":1,"x.y":[1],"z":2}}`, true},
		"a mount alone":       {Spec{Sources: []Source{{Name: "b", Mount: canonicaltree.Path{"l", "m"}}}}, map[string][]byte{"b": []byte(`1`)}, `{"l":{"m":1}}`, true},
		"a mount that loses":  {Spec{Sources: []Source{{Name: "a"}, {Name: "b", Mount: canonicaltree.Path{"l", "m"}}}}, map[string][]byte{"a": []byte(`{"l":1}`), "b": []byte(`1`)}, `{"l":1}`, true},
		"an unknown document": {Spec{Sources: three}, map[string][]byte{"a": []byte(`{"v":1}`), "gone": []byte(`{"w":1}`)}, `{"v":1}`, true},
	} {
		doc, complete := composed(t, Compile(c.spec), c.docs)
		require.Equal(t, c.want, canonical(t, doc), name)
		require.Equal(t, c.complete, complete, name)
	}
}

func TestOneDocumentIsPassedThrough(t *testing.T) {
	plan := Compile(Spec{Sources: []Source{{Name: "a"}, {Name: "b"}}})
	docs := parsed(t, map[string][]byte{"b": []byte(` {"b": 1}`)})
	doc, _, err := plan.Compose(nil, docs)
	require.NoError(t, err)
	require.Same(t, &docs["b"].Raw()[0], &doc.Raw()[0])
}

func TestFingerprint(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range []Spec{
		{Sources: []Source{{Name: "a"}, {Name: "b"}}}, {Sources: []Source{{Name: "b"}, {Name: "a"}}}, {Sources: []Source{{Name: "a", Patch: true}, {Name: "b"}}},
		{Sources: []Source{{Name: "a", Mount: canonicaltree.Path{"x"}}, {Name: "b"}}}, {Sources: []Source{{Name: "a"}, {Name: "b"}}, Required: []string{"a"}},
	} {
		var b strings.Builder
		Compile(s).Fingerprint(&b)
		require.False(t, seen[b.String()])
		seen[b.String()] = true
	}
	var a, b strings.Builder
	Compile(Spec{Sources: []Source{{Name: "a"}, {Name: "b"}}, Precedence: []string{"b"}}).Fingerprint(&a)
	Compile(Spec{Sources: []Source{{Name: "b"}, {Name: "a"}}}).Fingerprint(&b)
	require.Equal(t, a.String(), b.String(), "the same order said in two ways")
	b.Reset()
	Compile(Spec{Sources: []Source{{Name: "a"}, {Name: "b", Patch: true, Mount: canonicaltree.Path{"m"}}}, Precedence: []string{"b"}, Required: []string{"a"}}).Fingerprint(&b)
	require.Equal(t, "merge/1 2\n\"b\" patch [\"m\"]\n\"a\" replace []\nrequired [\"a\"]\n", b.String(), "another text makes another revision of every installation")
}

func TestStoredForm(t *testing.T) {
	docs := parsed(t, map[string][]byte{"b": []byte(`{"k": 1}`), "a\"é": []byte(`[1]`)})
	docs["gone"] = canonicaltree.Node{}
	packed := JoinNodes([]byte("x"), docs)
	require.Equal(t, `x{"a\"é":[1],"b":{"k": 1}}`, string(packed))
	back, err := SplitNodes(packed[1:])
	require.NoError(t, err)
	require.Len(t, back, 2)
	for source, doc := range back {
		require.Equal(t, string(docs[source].Raw()), string(doc.Raw()))
	}
	for _, none := range []string{"", "{}"} {
		back, err = SplitNodes([]byte(none))
		require.NoError(t, err)
		require.Empty(t, back)
	}
	require.Equal(t, "{}", string(JoinNodes(nil, nil)))
	_, err = SplitNodes([]byte("[]"))
	require.ErrorContains(t, err, "not a JSON object")
	_, err = SplitNodes([]byte(`{"secret"`))
	var syntax *canonicaltree.SyntaxError
	require.ErrorAs(t, err, &syntax)
	require.NotContains(t, err.Error(), "secret")
}

// A document as deep as the limit can be stored and read again; a mount that makes
// the merged one deeper is refused, as its text would be.
func TestDepthLimits(t *testing.T) {
	deepest := strings.Repeat("[", canonicaltree.DefaultDepth) + strings.Repeat("]", canonicaltree.DefaultDepth)
	nodes, err := SplitNodes(JoinNodes(nil, parsed(t, map[string][]byte{"a": []byte(deepest), "b": []byte(deepest[1 : len(deepest)-1])})))
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	plan := Compile(Spec{Sources: []Source{{Name: "a"}, {Name: "b", Mount: canonicaltree.Path{"m"}}, {Name: "p", Patch: true}}})
	one, _, err := plan.Compose(nil, map[string]canonicaltree.Node{"a": nodes["a"]})
	require.NoError(t, err)
	require.Equal(t, deepest, string(one.Raw()))
	_, _, err = plan.Compose(nil, map[string]canonicaltree.Node{"b": nodes["b"]})
	require.NoError(t, err)
	var limit *canonicaltree.LimitError
	_, _, err = plan.Compose(nil, map[string]canonicaltree.Node{"b": nodes["a"]})
	require.ErrorAs(t, err, &limit)
}

func BenchmarkCompose(b *testing.B) {
	plan := Compile(Spec{Sources: []Source{{Name: "registry"}, {Name: "lab", Mount: canonicaltree.Path{"lab"}}}})
	docs := map[string][]byte{
		"registry": []byte(`{"id":"B-007","weight":120,"farm":{"country":"EC","id":7},"history":[` + strings.Repeat(`{"at":"2026-01-02T12:00:00Z","grade":3.5},`, 20) + `null]}`),
		"lab":      []byte(`{"sugar":12.25,"ripeness_level":3,"samples":[` + strings.Repeat(`{"n":1,"value":0.25},`, 20) + `null]}`),
	}
	nodes, err := SplitNodes(JoinNodes(nil, parsed(b, docs)))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := plan.Compose(nil, nodes)
		require.NoError(b, err)
	}
}

// Random documents for the properties.

var names = []string{"a", "b", "c", "x.y", "é", ""}

func drawValue(t *rapid.T, depth int) any {
	value := rapid.Custom(func(t *rapid.T) any { return drawValue(t, depth-1) })
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	switch {
	case kind == 0:
		return nil
	case depth == 0 || kind == 1:
		return json.Number(rapid.SampledFrom([]string{"0", "1", "1.0"}).Draw(t, "number"))
	case kind == 2:
		return rapid.SliceOfN(value, 0, 2).Draw(t, "array")
	}
	return rapid.MapOfN(rapid.SampledFrom(names), value, 0, 4).Draw(t, "object")
}

// drawText writes v with the members in random order.
func drawText(t *rapid.T, v any) string {
	switch v := v.(type) {
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = drawText(t, v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		keys := rapid.Permutation(slices.Sorted(maps.Keys(v))).Draw(t, "order")
		parts := make([]string, len(keys))
		for i, k := range keys {
			parts[i] = string(canonicaltree.AppendString(nil, k)) + ":" + drawText(t, v[k])
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func drawPlan(t *rapid.T) *Plan {
	all := []string{"s1", "s2", "s3"}
	spec := Spec{Precedence: rapid.Permutation(all).Draw(t, "precedence")[:rapid.IntRange(0, 3).Draw(t, "listed")]}
	for _, name := range all {
		s := Source{Name: name}
		if rapid.IntRange(0, 2).Draw(t, "mounted") == 0 {
			s.Mount = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 2).Draw(t, "mount")
		}
		spec.Sources = append(spec.Sources, s)
	}
	return Compile(spec)
}

// merged is the definition on plain values: layers by precedence.
func merged(layers []any) any {
	if _, ok := layers[0].(map[string]any); !ok {
		return layers[0]
	}
	below := map[string][]any{}
	for _, l := range layers {
		if object, ok := l.(map[string]any); ok {
			for k, v := range object {
				below[k] = append(below[k], v)
			}
		}
	}
	out := map[string]any{}
	for k, l := range below {
		out[k] = merged(l)
	}
	return out
}

func TestMergeAgreesWithDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := drawPlan(t)
		first, again := map[string][]byte{}, map[string][]byte{}
		var layers []any
		for _, s := range plan.order {
			if rapid.IntRange(0, 4).Draw(t, "has") == 0 {
				continue
			}
			v := drawValue(t, 3)
			first[s.Name], again[s.Name] = []byte(drawText(t, v)), []byte(drawText(t, v))
			for _, name := range slices.Backward(s.Mount) {
				v = map[string]any{name: v}
			}
			layers = append(layers, v)
		}
		doc, complete := composed(t, plan, first)
		require.True(t, complete)
		if len(layers) == 0 {
			require.Nil(t, doc)
			return
		}
		want, err := json.Marshal(merged(layers))
		require.NoError(t, err)
		require.Equal(t, canonical(t, want), canonical(t, doc))

		// Documents that come from one tree, the stored form, give the same.
		stored := JoinNodes(nil, parsed(t, first))
		nodes, err := SplitNodes(stored)
		require.NoError(t, err)
		one, _, err := plan.Compose(nil, nodes)
		require.NoError(t, err)
		requireParsed(t, doc, one)
		require.Equal(t, string(stored), string(JoinNodes(nil, nodes)))

		// Neither the order of members nor a second time matters.
		other, _ := composed(t, plan, again)
		require.Equal(t, canonical(t, doc), canonical(t, other))
		repeated, _ := composed(t, plan, first)
		require.Equal(t, string(doc), string(repeated))

		// Idempotent: a document merged with itself is itself.
		same := Compile(Spec{Sources: []Source{{Name: "x"}, {Name: "y"}}})
		twice, _ := composed(t, same, map[string][]byte{"x": doc, "y": doc})
		require.Equal(t, canonical(t, doc), canonical(t, twice))

		requireParts(t, plan, nodes, one)
	})
}

// requireParsed: a document that was put together cannot be told from the one that
// parsing its text returns.
func requireParsed(t require.TestingT, text []byte, got canonicaltree.Node) {
	want := parseText(t, string(text))
	require.Equal(t, string(want.Raw()), string(got.Raw()))
	require.Equal(t, string(want.AppendCanonical(nil)), string(got.AppendCanonical(nil)))
	for _, numbers := range []canonicaltree.Numbers{canonicaltree.Literal, canonicaltree.Decimal} {
		require.Equal(t, want.Sum(numbers), got.Sum(numbers))
		require.True(t, canonicaltree.Equal(want, got, numbers))
	}
	canonicaltree.Diff(want, got, func(p canonicaltree.Path, _, _ canonicaltree.Node) bool {
		require.Fail(t, "they differ", "at %s", p)
		return false
	})
	for v := range want.Children() {
		if want.Kind() == canonicaltree.Object {
			requireParsed(t, v.Raw(), got.GetBytes(v.Name()))
		}
	}
}

// find returns the value at path; objects alone are entered.
func find(v canonicaltree.Node, path canonicaltree.Path) canonicaltree.Node {
	for _, name := range path {
		v = v.Get(name)
	}
	return v
}

// requireParts: every value that is not an object is in one part; a part
// is in the document of the source that it names, and no source of higher
// precedence has its place. Those of lower precedence that have it are Over.
func requireParts(t *rapid.T, plan *Plan, docs map[string]canonicaltree.Node, doc canonicaltree.Node) {
	var paths []canonicaltree.Path
	plan.Parts(docs, func(p Part) bool {
		paths = append(paths, slices.Clone(p.Path))
		require.True(t, canonicaltree.Equal(find(doc, p.Path), p.Value, canonicaltree.Literal), "%q", p.Path)
		var having []string
		for _, s := range plan.order {
			alone, _, err := plan.Compose(nil, map[string]canonicaltree.Node{s.Name: docs[s.Name]})
			require.NoError(t, err)
			if v := find(alone, p.Path); v.Exists() {
				having = append(having, s.Name)
				if s.Name == p.Source {
					require.True(t, canonicaltree.Equal(v, p.Value, canonicaltree.Literal), "%q from %s", p.Path, s.Name)
				}
			}
		}
		require.Equal(t, append([]string{p.Source}, p.Over...), having, "%q", p.Path)
		return true
	})
	requireCovered(t, paths, doc, nil)
}

func requireCovered(t *rapid.T, parts []canonicaltree.Path, v canonicaltree.Node, path canonicaltree.Path) {
	if v.Kind() == canonicaltree.Object {
		for name, m := range v.Members() {
			requireCovered(t, parts, m, append(path[:len(path):len(path)], name))
		}
		return
	}
	n := 0
	for _, p := range parts {
		if len(p) <= len(path) && slices.Equal(p, path[:len(p)]) {
			n++
		}
	}
	require.Equal(t, 1, n, "parts that hold %q", path)
}

// patched is MergePatch of RFC 7396, section 2, as it is written there.
func patched(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if o, ok := target.(map[string]any); ok {
		maps.Copy(out, o)
	}
	for name, v := range p {
		if v == nil {
			delete(out, name)
		} else {
			out[name] = patched(out[name], v)
		}
	}
	return out
}

func TestPatchAgreesWithDefinition(t *testing.T) {
	plan := Compile(Spec{Sources: []Source{{Name: "s", Patch: true}}})
	rapid.Check(t, func(t *rapid.T) {
		target, patch := drawValue(t, 3), drawValue(t, 3)
		stored := parseText(t, drawText(t, target))
		event := parseText(t, drawText(t, patch))
		doc, changed, err := plan.NextNode(nil, "s", stored, event)
		require.NoError(t, err)
		want, err := json.Marshal(patched(target, patch))
		require.NoError(t, err)
		require.Equal(t, canonical(t, want), canonical(t, doc.Raw()))
		require.Equal(t, canonical(t, want) != canonical(t, stored.Raw()), changed)
		requireParsed(t, doc.Raw(), doc)

		// The same patch again changes nothing.
		_, changed, err = plan.NextNode(nil, "s", doc, event)
		require.NoError(t, err)
		require.False(t, changed)
	})
}

func FuzzPatch(f *testing.F) {
	f.Add(`{"a":{"b":1}}`, `{"a":{"b":null,"c":{"d":null}}}`)
	f.Add(`[1]`, `{"a":null}`)
	f.Add(`{"a":[1]}`, `{"\u0061":2,"é":{}}`)
	plan := Compile(Spec{Sources: []Source{{Name: "s", Patch: true}}})
	f.Fuzz(func(t *testing.T, stored, patch string) {
		before, err := canonicaltree.Parse([]byte(stored))
		if err != nil {
			return
		}
		event, err := canonicaltree.Parse([]byte(patch))
		if err != nil {
			return
		}
		doc, changed, err := plan.NextNode(nil, "s", before.Root(), event.Root())
		if err != nil {
			return
		}
		require.Equal(t, canonical(t, []byte(stored)) != canonical(t, doc.Raw()), changed)
		_, changed, err = plan.NextNode(nil, "s", parseText(t, string(doc.Raw())), event.Root())
		require.NoError(t, err)
		require.False(t, changed)
	})
}
