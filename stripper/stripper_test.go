package stripper

import (
	"bytes"
	"encoding/json"
	"strconv"
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

func TestApply(t *testing.T) {
	const doc = `{"updated_at": 1, "a": {"b": 1, "c": 1.0}, "items": [{"seen_at": 1, "k": 2}, {"k": 3}, 4], ` +
		`"deep": {"trace_id": 1, "in": [{"trace_id": 2, "x": {"trace_id": 3}}]}, "x.y": 1, "*": 2, "\u00e9": 3, "2024": {"1": 1}, "\\": 5}`
	for _, c := range []struct {
		patterns []string
		want     string // empty: unchanged
	}{
		{[]string{"updated_at"}, `{"a":{"b":1,"c":1.0},"items":[{"seen_at":1,"k":2},{"k":3},4],"deep":{"trace_id":1,"in":[{"trace_id":2,"x":{"trace_id":3}}]},"x.y":1,"*":2,"é":3,"2024":{"1":1},"\\":5}`},
		{[]string{"*"}, `{}`},
		{[]string{"items", "deep", "x\\.y", `\*`, "é", "2024.*", `\\`, "updated_at"}, `{"a":{"b":1,"c":1.0},"2024":{}}`},
		{[]string{"a.b", "items.*.seen_at", "**.trace_id", "x\\.y", `\*`, "é", `\2024`, `\\`, "updated_at"}, `{"a":{"c":1.0},"items":[{"k":2},{"k":3},4],"deep":{"in":[{"x":{}}]}}`},
		{[]string{"items.1.k", "deep.**.x", "a", "updated_at", "x\\.y", `\*`, "é", `\2024`, `\\`}, `{"items":[{"seen_at":1,"k":2},{},4],"deep":{"trace_id":1,"in":[{"trace_id":2}]}}`},
		{[]string{"items.*.*", "deep.in.**.trace_id", "a.*", "updated_at", "x\\.y", `\*`, "é", `2024.\1`, `\\`}, `{"a":{},"items":[{},{},4],"deep":{"trace_id":1,"in":[{"x":{}}]},"2024":{}}`},
		{[]string{"**.*"}, `{}`},
		{[]string{"nope", "a.nope", "items.*", "items.9.k", "items.k", "**.nope.trace_id", "a.b.c", `items.\0.seen_at`}, ``},
		{nil, ``},
	} {
		r, err := Compile(c.patterns)
		require.NoError(t, err)
		out, changed := r.Apply([]byte("kept"), parseText(t, doc))
		require.Equal(t, c.want != "", changed, "%q", c.patterns)
		if !changed {
			require.Equal(t, "kept", string(out))
			continue
		}
		require.True(t, bytes.HasPrefix(out, []byte("kept")))
		require.JSONEq(t, c.want, string(out[4:]), "%q", c.patterns)
	}
}

func TestRootIsNeverRemoved(t *testing.T) {
	r, err := Compile([]string{"*", "**.a", "0.a"})
	require.NoError(t, err)
	for doc, want := range map[string]string{`5`: "", `"a"`: "", `[]`: "", `{}`: "", `[1,2]`: "", `[{"a":1,"b":2},[{"a":1}]]`: `[{"b":2},[{}]]`, `{"q":1}`: `{}`} {
		out, changed := r.Apply(nil, parseText(t, doc))
		require.Equal(t, want != "", changed, doc)
		require.Equal(t, want, string(out), doc)
	}
}

func TestCompileTellsAllFaults(t *testing.T) {
	bad := []string{"", "a..b", ".a", "a.", "a.0", "**.3", "0", "a.**", "**", "a*", `*\a`, "***", `a\`, "a.01.b", "a\xff"}
	_, err := Compile(append([]string{"fine"}, bad...))
	var all *CompileError
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Faults, len(bad))
	for i, f := range all.Faults {
		require.Equal(t, i+1, f.Index)
		require.Equal(t, bad[i], f.Pattern)
		require.NotEmpty(t, f.Msg)
		require.NotEmpty(t, f.Want)
	}
	require.Contains(t, err.Error(), `strip pattern 5 ("a.0"): would remove an element of an array; name a member of the element`)
}

func TestCovers(t *testing.T) {
	r, err := Compile([]string{"a.b", "items.*.seen_at", "**.trace_id", "m.*", `years.\2024.x`, "n.3.q"})
	require.NoError(t, err)
	for path, want := range map[string]bool{
		"a": false, "a.b": true, "a.b.c": true, "a.c": false, "items": false, "items.0.seen_at": true, "items.x.seen_at.y": true,
		"trace_id": true, "q.3.trace_id": true, "m": false, "m.x": true, "m.0": false, "years.2024.x": false, "n.3.q": true, "n.4.q": false, "": false,
	} {
		var p canonicaltree.Path
		if path != "" {
			p = strings.Split(path, ".")
		}
		require.Equal(t, want, r.Covers(p), path)
	}
	require.False(t, r.Empty())
	var none *Rules
	require.True(t, none.Empty())
	require.False(t, none.Covers(canonicaltree.Path{"a"}))
	out, changed := none.Apply(nil, parseText(t, `{}`))
	require.False(t, changed)
	require.Nil(t, out)
}

func TestFingerprint(t *testing.T) {
	seen := map[string]bool{}
	for _, patterns := range [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {`a\.b`}, {"a.b"}, {"a\nb"}} {
		r, err := Compile(patterns)
		require.NoError(t, err)
		var b strings.Builder
		r.Fingerprint(&b)
		require.False(t, seen[b.String()])
		seen[b.String()] = true
	}
}

// matches is the meaning of a pattern by its definition: exponential, and plain.
func matches(steps []step, path []string, isIndex []bool) bool {
	if len(steps) == 0 {
		return len(path) == 0
	}
	if steps[0].kind == stepDeep {
		for i := 0; i <= len(path); i++ {
			if matches(steps[1:], path[i:], isIndex[i:]) {
				return true
			}
		}
		return false
	}
	if len(path) == 0 {
		return false
	}
	switch s := steps[0]; {
	case s.kind == stepName && (isIndex[0] || s.text != path[0]), s.kind == stepNumber && s.text != path[0]:
		return false
	}
	return matches(steps[1:], path[1:], isIndex[1:])
}

func stripped(v any, rules [][]step, path []string, isIndex []bool) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = stripped(v[i], rules, append(path[:len(path):len(path)], strconv.Itoa(i)), append(isIndex[:len(path):len(path)], true))
		}
		return out
	case map[string]any:
		out := map[string]any{}
	members:
		for name, m := range v {
			p, x := append(path[:len(path):len(path)], name), append(isIndex[:len(path):len(path)], false)
			for _, r := range rules {
				if matches(r, p, x) {
					continue members
				}
			}
			out[name] = stripped(m, rules, p, x)
		}
		return out
	}
	return v
}

func drawValue(t *rapid.T, depth int) any {
	value := rapid.Custom(func(t *rapid.T) any { return drawValue(t, depth-1) })
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	switch {
	case depth == 0 || kind == 0:
		return float64(rapid.IntRange(0, 3).Draw(t, "number"))
	case kind < 3:
		return rapid.SliceOfN(value, 0, 3).Draw(t, "array")
	}
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "0", "1", "x.y", "*"}), value, 0, 4).Draw(t, "object")
}

// TestAgreesWithDefinition: the automaton strips the same as the patterns one by
// one, nothing is left to strip after it, and Covers tells the truth.
func TestAgreesWithDefinition(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "c", "0", "1", `\0`, "*", "**", "*", "**", `x\.y`, `\*`})
	rapid.Check(t, func(t *rapid.T) {
		var patterns []string
		var rules [][]step
		for _, parts := range rapid.SliceOfN(rapid.SliceOfN(part, 1, 5), 1, 4).Draw(t, "patterns") {
			p := strings.Join(parts, ".")
			if steps, fault := parse(p); fault == nil {
				patterns, rules = append(patterns, p), append(rules, steps)
			}
		}
		r, err := Compile(patterns)
		require.NoError(t, err)
		v := drawValue(t, 4)
		text, err := json.Marshal(v)
		require.NoError(t, err)
		want, err := json.Marshal(stripped(v, rules, nil, nil))
		require.NoError(t, err)
		doc := parseText(t, string(text))
		out, changed := r.Apply(nil, doc)
		requireNoTextNeeded(t, r, doc)
		require.Equal(t, string(text) != string(want), changed, "%q of %s", patterns, text)
		if changed {
			require.JSONEq(t, string(want), string(out), "%q of %s", patterns, text)
			_, again := r.Apply(nil, parseText(t, string(out)))
			require.False(t, again)
		} else {
			out = text
		}
		after := parseText(t, string(out))
		requireNotCovered(t, r, after, nil)
	})
}

// requireNoTextNeeded: Strip and Sum return what parsing the text of Apply returns.
func requireNoTextNeeded(t require.TestingT, r *Rules, doc canonicaltree.Node) {
	want := doc
	out, changed := r.Apply(nil, doc)
	if changed {
		want = parseText(t, string(out))
	}
	got := doc
	tree, err := r.Strip(doc)
	require.NoError(t, err)
	require.Equal(t, changed, tree != nil)
	if changed {
		got = tree.Root()
	}
	require.Equal(t, string(want.Raw()), string(got.Raw()))
	require.True(t, canonicaltree.Equal(want, got, canonicaltree.Literal))
	for _, numbers := range []canonicaltree.Numbers{canonicaltree.Literal, canonicaltree.Decimal} {
		require.Equal(t, want.Sum(numbers), got.Sum(numbers))
		d, err := r.Sum(doc, numbers)
		require.NoError(t, err)
		require.Equal(t, want.Sum(numbers), d)
	}
}

func requireNotCovered(t *rapid.T, r *Rules, n canonicaltree.Node, p canonicaltree.Path) {
	require.False(t, r.Covers(p), "%q is still there", p)
	for i, v := range n.Elements() {
		requireNotCovered(t, r, v, append(p[:len(p):len(p)], strconv.Itoa(i)))
	}
	for name, v := range n.Members() {
		requireNotCovered(t, r, v, append(p[:len(p):len(p)], name))
	}
}

// TestDeepPatternsAreLinear: many ** in one pattern on a deep document take no
// time to speak of; by trying them out it would be 400 over 20.
func TestDeepPatternsAreLinear(t *testing.T) {
	r, err := Compile([]string{strings.Repeat("**.a.", 20) + "b", strings.Repeat("**.*.", 20) + "c"})
	require.NoError(t, err)
	doc := parseText(t, strings.Repeat(`{"a":`, 400)+"1"+strings.Repeat("}", 400))
	_, changed := r.Apply(nil, doc)
	require.False(t, changed)
}

func FuzzApply(f *testing.F) {
	f.Add("updated_at", "**.trace_id", `{"updated_at":1,"a":[{"trace_id":2}]}`)
	f.Add("a.*.b", `x\.y`, `{"a":{"q":{"b":1}},"x.y":[]}`)
	f.Add("a.0", `\`, `{}`)
	f.Fuzz(func(t *testing.T, p1, p2, text string) {
		tree, err := canonicaltree.Parse([]byte(text))
		if err != nil {
			return
		}
		r, err := Compile([]string{p1, p2})
		if err != nil {
			return
		}
		out, changed := r.Apply(nil, tree.Root())
		if !changed {
			return
		}
		_, again := r.Apply(nil, parseText(t, string(out)))
		require.False(t, again)
		requireNoTextNeeded(t, r, tree.Root())
	})
}

func BenchmarkApply(b *testing.B) {
	var text strings.Builder
	text.WriteString(`{"id":"B-007","updated_at":1`)
	for i := range 24 {
		text.WriteString(`,"member` + strconv.Itoa(i) + `":{"one":"some text of usual length","two":12345.75,"three":[1,2,3],"four":{"five":true}}`)
	}
	text.WriteString("}")
	for name, patterns := range map[string][]string{
		"names": {"updated_at", "meta.lsn"}, "nothing matches": {"modified", "meta.lsn"}, "any depth": {"**.trace_id", "updated_at"},
	} {
		b.Run(name, func(b *testing.B) {
			r, err := Compile(patterns)
			require.NoError(b, err)
			doc := parseText(b, text.String())
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			var out []byte
			for b.Loop() {
				out, _ = r.Apply(out[:0], doc)
			}
		})
	}
}

// Wide objects whose members come in no order, escapes, long arrays.
func TestStripNeedsNoText(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"z":0`)
	for i := range 60 {
		text.WriteString(`,"m` + strconv.Itoa(i*37%60) + `":{"\u0062":[1.0,"\n\u00e9"],"a\"":{"gone":1},"list":[` + strings.Repeat(`{"gone":1,"k":2},`, 30) + `3]}`)
	}
	text.WriteString("}")
	doc := parseText(t, text.String())
	for _, patterns := range [][]string{nil, {"nope"}, {"**.gone"}, {"m3", "*.list.17.gone"}, {"*.b", `*.a".gone`}, {"*"}} {
		r, err := Compile(patterns)
		require.NoError(t, err)
		requireNoTextNeeded(t, r, doc)
	}
	deep, err := canonicaltree.ParseLimits([]byte(strings.Repeat(`{"a":`, 600)+"1"+strings.Repeat("}", 600)), canonicaltree.Limits{Depth: 700})
	require.NoError(t, err)
	r, err := Compile([]string{strings.Repeat("a.", 599) + "a"})
	require.NoError(t, err)
	var limit *canonicaltree.LimitError
	_, err = r.Strip(deep.Root())
	require.ErrorAs(t, err, &limit)
	_, err = r.Sum(deep.Root(), canonicaltree.Literal)
	require.ErrorAs(t, err, &limit)
}

func BenchmarkStrip(b *testing.B) {
	doc := parseText(b, `{"id":"B-007","updated_at":1,"meta":{"lsn":7,"trace_id":"x"},"ripeness_level":3.5,"farm":{"id":7,"country":"EC"}}`)
	r, err := Compile([]string{"updated_at", "meta.lsn", "**.trace_id"})
	require.NoError(b, err)
	b.Run("text, parsed, hashed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, _ := r.Apply(nil, doc)
			tree, err := canonicaltree.Parse(out)
			if err != nil {
				b.Fatal(err)
			}
			tree.Root().Sum(canonicaltree.Literal)
			tree.Release()
		}
	})
	b.Run("tree, hashed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tree, err := r.Strip(doc)
			if err != nil {
				b.Fatal(err)
			}
			tree.Root().Sum(canonicaltree.Literal)
			tree.Release()
		}
	})
	b.Run("hashed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Sum(doc, canonicaltree.Literal); err != nil {
				b.Fatal(err)
			}
		}
	})
}
