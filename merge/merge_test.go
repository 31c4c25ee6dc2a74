package merge

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
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

func compile(t require.TestingT, s Spec) *Plan {
	p, err := Compile(s)
	require.NoError(t, err)
	return p
}

// vectors reads published cases of merge patches.
func vectors(t *testing.T, name string) (cases []map[string]json.RawMessage) {
	shared := os.Getenv("WEIR_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "shared")
	}
	data, err := os.ReadFile(filepath.Join(shared, "data", "merge_patch", name))
	if err != nil && testing.Short() {
		t.Skip("the published cases are not here; WEIR_SHARED names their folder")
	}
	require.NoError(t, err, "WEIR_SHARED names the folder of the published cases")
	require.NoError(t, json.Unmarshal(data, &cases))
	return cases
}

// TestPublishedMergePatches: every case of RFC 7396, appendix A, and those of a
// widely used implementation.
func TestPublishedMergePatches(t *testing.T) {
	plan := compile(t, Spec{Sources: []Source{{Name: "s", Mode: Patch}}})
	for _, file := range []string{"rfc7396_appendix_a.json", "evanphx_apply_cases.json", "evanphx_create_cases.json"} {
		for i, c := range vectors(t, file) {
			want := c["result"]
			if want == nil {
				want = c["target"]
			}
			require.NotNil(t, want)
			doc, changed, err := plan.Next("s", c["original"], parseText(t, string(c["patch"])))
			require.NoError(t, err)
			require.Equal(t, canonical(t, want), canonical(t, doc), "%s case %d", file, i)
			require.Equal(t, canonical(t, want) != canonical(t, c["original"]), changed, "%s case %d", file, i)
		}
	}
}

func TestNext(t *testing.T) {
	plan := compile(t, Spec{Sources: []Source{{Name: "whole"}, {Name: "patch", Mode: Patch}}})
	for _, c := range []struct {
		source, stored, event, want string
		changed                     bool
	}{
		{"whole", "", `{"a":1}`, `{"a":1}`, true},
		{"whole", `{"a":1,"b":2}`, ` { "b" : 2, "\u0061":1 }`, `{"a":1,"b":2}`, false},
		{"whole", `{"a":1}`, `{"a":1.0}`, `{"a":1.0}`, true},
		{"whole", `{"a":1}`, `{}`, `{}`, true},
		{"whole", `{"a":1}`, `null`, `null`, true},
		{"whole", `{"a":1}`, "", "", true},
		{"whole", "", "", "", false},
		{"patch", "", `{"a":{"b":null,"c":1},"d":null}`, `{"a":{"c":1}}`, true},
		{"patch", "", `[null]`, `[null]`, true},
		{"patch", `{"a":1,"b":{"c":2}}`, `{"b":{"c":2},"z":null}`, `{"a":1,"b":{"c":2}}`, false},
		{"patch", `{"a":1}`, `{}`, `{"a":1}`, false},
		{"patch", `[1]`, `{}`, `{}`, true},
		{"patch", `{"a":1}`, `{"b":{"c":null}}`, `{"a":1,"b":{}}`, true},
		{"patch", `{"a":1.0}`, `{"a":1}`, `{"a":1}`, true},
		{"patch", `{"x y":{"k":[1, 2]}}`, `{"x y":{"m":"é\n"}}`, `{"x y":{"k":[1, 2],"m":"é\n"}}`, true},
		{"patch", `{"a":1}`, "", "", true},
		{"patch", `{"a":1}`, "null", "null", true},
	} {
		var stored []byte
		if c.stored != "" {
			stored = []byte(c.stored)
		}
		var event canonicaltree.Node
		if c.event != "" {
			event = parseText(t, c.event)
		}
		doc, changed, err := plan.Next(c.source, stored, event)
		require.NoError(t, err)
		require.Equal(t, c.changed, changed, "%+v", c)
		require.Equal(t, c.want, string(doc), "%+v", c)
		require.Equal(t, c.want == "", doc == nil)
	}

	_, _, err := plan.Next("other", nil, parseText(t, "{}"))
	require.ErrorIs(t, err, ErrUnknownSource)
	_, _, err = plan.Next("whole", []byte(`{"secret"`), parseText(t, "{}"))
	var bad *SourceError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "whole", bad.Source)
	var syntax *canonicaltree.SyntaxError
	require.ErrorAs(t, err, &syntax)
	require.NotContains(t, err.Error(), "secret")
}

func TestMerge(t *testing.T) {
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
		m, err := compile(t, c.spec).Merge(c.docs)
		require.NoError(t, err, name)
		require.Equal(t, c.want, canonical(t, m.Doc), name)
		require.Equal(t, c.complete, m.Complete, name)
	}
}

func TestOneDocumentIsPassedThrough(t *testing.T) {
	plan := compile(t, Spec{Sources: []Source{{Name: "a"}, {Name: "b"}}})
	text := []byte(` {"b": 1}`)
	docs := map[string][]byte{"b": text}
	m, err := plan.Merge(docs)
	require.NoError(t, err)
	require.Same(t, &text[0], &m.Doc[0])
	require.Zero(t, testing.AllocsPerRun(10, func() { m, _ = plan.Merge(docs) }))
}

func TestMergeNamesTheBadDocument(t *testing.T) {
	plan := compile(t, Spec{Sources: []Source{{Name: "a"}, {Name: "b"}}})
	docs := map[string][]byte{"a": []byte("{}"), "b": []byte("{")}
	_, err := plan.Merge(docs)
	var bad *SourceError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "b", bad.Source)
	require.Empty(t, plan.Provenance(docs, nil))
}

func TestProvenance(t *testing.T) {
	plan := compile(t, Spec{Sources: []Source{{Name: "a"}, {Name: "b"}, {Name: "c", Mount: canonicaltree.Path{"lab"}}}, Precedence: []string{"b"}})
	docs := map[string][]byte{"a": []byte(`{"x":{"p":1,"q":2},"l":[{"k":1}],"lab":{"own":1}}`), "b": []byte(`{"x":{"p":3}}`), "c": []byte(`{"z":[5]}`)}
	for path, want := range map[string]string{
		"": "b", "x": "b", "x.p": "b", "x.q": "a", "x.nope": "", "x.p.q": "", "l": "a", "l.0.k": "a", "l.1": "", "l.k": "", "l.-1": "",
		"lab": "a", "lab.own": "a", "lab.z": "c", "lab.z.0": "c", "nope": "",
	} {
		var p canonicaltree.Path
		if path != "" {
			p = strings.Split(path, ".")
		}
		require.Equal(t, want, plan.Provenance(docs, p), path)
	}
	require.Empty(t, plan.Provenance(nil, nil))
}

func TestCompileTellsAllFaults(t *testing.T) {
	_, err := Compile(Spec{
		Sources:    []Source{{Name: "a"}, {Name: ""}, {Name: "a"}, {Name: "b", Mode: 7, Mount: canonicaltree.Path{"x", ""}}},
		Precedence: []string{"a", "nope", "a"}, Required: []string{"b", "nope", "b"},
	})
	var all *SpecError
	require.ErrorAs(t, err, &all)
	var got []string
	for _, f := range all.Faults {
		require.NotEmpty(t, f.Want)
		got = append(got, fmt.Sprintf("%s %d: %s", f.Field, f.Index, f.Msg))
	}
	require.Equal(t, []string{
		`sources 1: the name is empty or not valid UTF-8`, `sources 2: "a" is declared twice`, `sources 3: unknown mode(7)`,
		`sources 3: the mount has an empty part or one that is not valid UTF-8`,
		`precedence 1: there is no source "nope"`, `precedence 2: "a" is listed twice`,
		`required 1: there is no source "nope"`, `required 2: "b" is listed twice`,
	}, got)
	_, err = Compile(Spec{})
	require.EqualError(t, err, "merge sources: there is none; declare at least one source")
}

func TestFingerprint(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range []Spec{
		{Sources: []Source{{Name: "a"}, {Name: "b"}}}, {Sources: []Source{{Name: "b"}, {Name: "a"}}}, {Sources: []Source{{Name: "a", Mode: Patch}, {Name: "b"}}},
		{Sources: []Source{{Name: "a", Mount: canonicaltree.Path{"x"}}, {Name: "b"}}}, {Sources: []Source{{Name: "a"}, {Name: "b"}}, Required: []string{"a"}},
	} {
		var b strings.Builder
		compile(t, s).Fingerprint(&b)
		require.False(t, seen[b.String()])
		seen[b.String()] = true
	}
	var a, b strings.Builder
	compile(t, Spec{Sources: []Source{{Name: "a"}, {Name: "b"}}, Precedence: []string{"b"}}).Fingerprint(&a)
	compile(t, Spec{Sources: []Source{{Name: "b"}, {Name: "a"}}}).Fingerprint(&b)
	require.Equal(t, a.String(), b.String(), "the same order said in two ways")
}

func TestStoredForm(t *testing.T) {
	docs := map[string][]byte{"b": []byte(`{"k": 1}`), "a\"é": []byte(`[1]`), "gone": nil}
	packed := JoinDocs([]byte("x"), docs)
	require.Equal(t, `x{"a\"é":[1],"b":{"k": 1}}`, string(packed))
	back, err := SplitDocs(packed[1:])
	require.NoError(t, err)
	delete(docs, "gone")
	require.Equal(t, docs, back)
	for _, none := range []string{"", "{}"} {
		back, err = SplitDocs([]byte(none))
		require.NoError(t, err)
		require.Empty(t, back)
	}
	require.Equal(t, "{}", string(JoinDocs(nil, nil)))
	_, err = SplitDocs([]byte("[]"))
	require.ErrorIs(t, err, ErrNotObject)
	_, err = SplitDocs([]byte("{"))
	var syntax *canonicaltree.SyntaxError
	require.ErrorAs(t, err, &syntax)
}

// A document as deep as the limit can be stored and read again; a mount that makes
// the merged one deeper is refused, as its text would be.
func TestDepthLimits(t *testing.T) {
	deepest := strings.Repeat("[", canonicaltree.DefaultDepth) + strings.Repeat("]", canonicaltree.DefaultDepth)
	nodes, err := SplitNodes(JoinDocs(nil, map[string][]byte{"a": []byte(deepest), "b": []byte(deepest[1 : len(deepest)-1])}))
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	plan := compile(t, Spec{Sources: []Source{{Name: "a"}, {Name: "b", Mount: canonicaltree.Path{"m"}}, {Name: "p", Mode: Patch}}})
	one, _, err := plan.Compose(map[string]canonicaltree.Node{"a": nodes["a"]})
	require.NoError(t, err)
	require.Equal(t, deepest, string(one.Raw()))
	_, _, err = plan.Compose(map[string]canonicaltree.Node{"b": nodes["b"]})
	require.NoError(t, err)
	var limit *canonicaltree.LimitError
	_, _, err = plan.Compose(map[string]canonicaltree.Node{"b": nodes["a"]})
	require.ErrorAs(t, err, &limit)
	_, err = plan.Merge(map[string][]byte{"b": []byte(deepest)})
	require.ErrorAs(t, err, &limit)
}

func BenchmarkMerge(b *testing.B) {
	plan := compile(b, Spec{Sources: []Source{{Name: "registry"}, {Name: "lab", Mount: canonicaltree.Path{"lab"}}}})
	docs := map[string][]byte{
		"registry": []byte(`{"id":"B-007","weight":120,"farm":{"country":"EC","id":7},"history":[` + strings.Repeat(`{"at":"2026-01-02T12:00:00Z","grade":3.5},`, 20) + `null]}`),
		"lab":      []byte(`{"sugar":12.25,"ripeness_level":3,"samples":[` + strings.Repeat(`{"n":1,"value":0.25},`, 20) + `null]}`),
	}
	b.Run("text, parsed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m, err := plan.Merge(docs)
			require.NoError(b, err)
			tree, err := canonicaltree.Parse(m.Doc)
			require.NoError(b, err)
			tree.Release()
		}
	})
	nodes, err := SplitNodes(JoinDocs(nil, docs))
	require.NoError(b, err)
	b.Run("composed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, err := plan.Compose(nodes)
			require.NoError(b, err)
		}
	})
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
	return compile(t, spec)
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
		m, err := plan.Merge(first)
		require.NoError(t, err)
		if len(layers) == 0 {
			require.Nil(t, m.Doc)
			return
		}
		want, err := json.Marshal(merged(layers))
		require.NoError(t, err)
		require.Equal(t, canonical(t, want), canonical(t, m.Doc))

		// Documents that are parsed already, all in one tree, give the same.
		nodes, err := SplitNodes(JoinDocs(nil, first))
		require.NoError(t, err)
		composed, complete, err := plan.Compose(nodes)
		require.NoError(t, err)
		require.Equal(t, m.Complete, complete)
		requireParsed(t, m.Doc, composed)
		require.Equal(t, string(JoinDocs(nil, first)), string(JoinNodes(nil, nodes)))

		// Neither the order of members nor a second time matters.
		other, err := plan.Merge(again)
		require.NoError(t, err)
		require.Equal(t, canonical(t, m.Doc), canonical(t, other.Doc))
		repeated, err := plan.Merge(first)
		require.NoError(t, err)
		require.Equal(t, string(m.Doc), string(repeated.Doc))

		// Idempotent: a document merged with itself is itself.
		same := compile(t, Spec{Sources: []Source{{Name: "x"}, {Name: "y"}}})
		twice, err := same.Merge(map[string][]byte{"x": m.Doc, "y": m.Doc})
		require.NoError(t, err)
		require.Equal(t, canonical(t, m.Doc), canonical(t, twice.Doc))

		requireProvenance(t, plan, first, parseText(t, string(m.Doc)), nil)
	})
}

// requireParsed: a document that was put together cannot be told from the one that
// parsing its text gives.
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

// requireProvenance: every value that is not an object stands in the document of
// the source that is named, and no source of higher precedence has its place.
func requireProvenance(t *rapid.T, plan *Plan, docs map[string][]byte, v canonicaltree.Node, p canonicaltree.Path) {
	source := plan.Provenance(docs, p)
	require.NotEmpty(t, source, "%q", p)
	if v.Kind() == canonicaltree.Object {
		for name, m := range v.Members() {
			requireProvenance(t, plan, docs, m, append(p[:len(p):len(p)], name))
		}
		return
	}
	alone, err := plan.Merge(map[string][]byte{source: docs[source]})
	require.NoError(t, err)
	n := parseText(t, string(alone.Doc))
	for _, name := range p {
		n = n.Get(name)
	}
	require.True(t, canonicaltree.Equal(v, n, canonicaltree.Literal), "%q from %s", p, source)
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
	plan := compile(t, Spec{Sources: []Source{{Name: "s", Mode: Patch}}})
	rapid.Check(t, func(t *rapid.T) {
		target, patch := drawValue(t, 3), drawValue(t, 3)
		stored := []byte(drawText(t, target))
		event := parseText(t, drawText(t, patch))
		doc, changed, err := plan.Next("s", stored, event)
		require.NoError(t, err)
		want, err := json.Marshal(patched(target, patch))
		require.NoError(t, err)
		require.Equal(t, canonical(t, want), canonical(t, doc))
		require.Equal(t, canonical(t, want) != canonical(t, stored), changed)
		next, again, err := plan.NextNode("s", parseText(t, string(stored)), event)
		require.NoError(t, err)
		require.Equal(t, changed, again)
		requireParsed(t, doc, next)

		// The same patch again changes nothing.
		_, changed, err = plan.Next("s", doc, event)
		require.NoError(t, err)
		require.False(t, changed)
	})
}

func FuzzPatch(f *testing.F) {
	f.Add(`{"a":{"b":1}}`, `{"a":{"b":null,"c":{"d":null}}}`)
	f.Add(`[1]`, `{"a":null}`)
	f.Add(`{"a":[1]}`, `{"\u0061":2,"é":{}}`)
	plan, err := Compile(Spec{Sources: []Source{{Name: "s", Mode: Patch}}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, stored, patch string) {
		event, err := canonicaltree.Parse([]byte(patch))
		if err != nil {
			return
		}
		doc, changed, err := plan.Next("s", []byte(stored), event.Root())
		if err != nil {
			return
		}
		require.Equal(t, canonical(t, []byte(stored)) != canonical(t, doc), changed)
		_, changed, err = plan.Next("s", doc, event.Root())
		require.NoError(t, err)
		require.False(t, changed)
	})
}
