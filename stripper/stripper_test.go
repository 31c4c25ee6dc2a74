package stripper

import (
	"cmp"
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

// text returns doc without the stripped members, and whether something was removed.
func text(t require.TestingT, r *Rules, doc string) (out string, changed bool) {
	tree, err := r.Strip(parseText(t, doc))
	require.NoError(t, err)
	if tree == nil {
		return doc, false
	}
	out = string(tree.Root().Raw())
	parsed := parseText(t, out) // the tree is that of its text
	require.True(t, canonicaltree.Equal(parsed, tree.Root(), canonicaltree.Literal))
	require.Equal(t, parsed.Sum(canonicaltree.Literal), tree.Root().Sum(canonicaltree.Literal))
	return out, true
}

func TestStrip(t *testing.T) {
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
		out, changed := text(t, r, doc)
		require.Equal(t, c.want != "", changed, "%q", c.patterns)
		if changed {
			require.JSONEq(t, c.want, out, "%q", c.patterns)
		}
	}
}

func TestRootIsNeverRemoved(t *testing.T) {
	r, err := Compile([]string{"*", "**.a", "0.a"})
	require.NoError(t, err)
	for doc, want := range map[string]string{`5`: "", `"a"`: "", `[]`: "", `{}`: "", `[1,2]`: "", `[{"a":1,"b":2},[{"a":1}]]`: `[{"b":2},[{}]]`, `{"q":1}`: `{}`} {
		out, changed := text(t, r, doc)
		require.Equal(t, want != "", changed, doc)
		require.Equal(t, cmp.Or(want, doc), out)
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
	_, changed := text(t, none, `{}`)
	require.False(t, changed)
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
		doc, err := json.Marshal(v)
		require.NoError(t, err)
		want, err := json.Marshal(stripped(v, rules, nil, nil))
		require.NoError(t, err)
		out, changed := text(t, r, string(doc))
		require.Equal(t, string(doc) != string(want), changed, "%q of %s", patterns, doc)
		require.JSONEq(t, string(want), out, "%q of %s", patterns, doc)
		_, again := text(t, r, out)
		require.False(t, again)
		requireNotCovered(t, r, parseText(t, out), nil)
	})
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
	_, changed := text(t, r, strings.Repeat(`{"a":`, 400)+"1"+strings.Repeat("}", 400))
	require.False(t, changed)
}

func FuzzStrip(f *testing.F) {
	f.Add("updated_at", "**.trace_id", `{"updated_at":1,"a":[{"trace_id":2}]}`)
	f.Add("a.*.b", `x\.y`, `{"a":{"q":{"b":1}},"x.y":[]}`)
	f.Add("a.0", `\`, `{}`)
	f.Fuzz(func(t *testing.T, p1, p2, doc string) {
		if _, err := canonicaltree.Parse([]byte(doc)); err != nil {
			return
		}
		r, err := Compile([]string{p1, p2})
		if err != nil {
			return
		}
		out, _ := text(t, r, doc)
		_, again := text(t, r, out)
		require.False(t, again)
	})
}

// Wide objects whose members come in no order, escapes, long arrays.
func TestStripOfWideObjects(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(`{"z":0`)
	for i := range 60 {
		doc.WriteString(`,"m` + strconv.Itoa(i*37%60) + `":{"\u0062":[1.0,"\n\u00e9"],"a\"":{"gone":1},"list":[` + strings.Repeat(`{"gone":1,"k":2},`, 30) + `3]}`)
	}
	doc.WriteString("}")
	for _, patterns := range [][]string{nil, {"nope"}, {"**.gone"}, {"m3", "*.list.17.gone"}, {"*.b", `*.a".gone`}, {"*"}} {
		r, err := Compile(patterns)
		require.NoError(t, err)
		text(t, r, doc.String())
	}
	deep, err := canonicaltree.ParseLimits([]byte(strings.Repeat(`{"a":`, 600)+"1"+strings.Repeat("}", 600)), canonicaltree.Limits{Depth: 700})
	require.NoError(t, err)
	r, err := Compile([]string{strings.Repeat("a.", 599) + "a"})
	require.NoError(t, err)
	var limit *canonicaltree.LimitError
	_, err = r.Strip(deep.Root())
	require.ErrorAs(t, err, &limit)
}

func BenchmarkStrip(b *testing.B) {
	doc := parseText(b, `{"id":"B-007","updated_at":1,"meta":{"lsn":7,"trace_id":"x"},"ripeness_level":3.5,"farm":{"id":7,"country":"EC"}}`)
	for name, patterns := range map[string][]string{
		"names": {"updated_at", "meta.lsn"}, "nothing matches": {"modified"}, "any depth": {"updated_at", "meta.lsn", "**.trace_id"},
	} {
		b.Run(name, func(b *testing.B) {
			r, err := Compile(patterns)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				tree, err := r.Strip(doc)
				require.NoError(b, err)
				if tree != nil {
					tree.Release()
				}
			}
		})
	}
}
