package noise

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/sketch"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/stripper"
)

func view(name, when string, fields ...projections.Field) *projections.Projection {
	p, err := projections.Compile(projections.Spec{Customer: "acme", Name: name, When: when, Fields: fields})
	if err != nil {
		panic(err)
	}
	return p
}

// seen adds events that changed paths and nothing else.
func seen(s *sketch.Sketch, events int64, paths ...sketch.Path) {
	s.Events += events
	s.Add(sketch.Observation{Entity: "e", Example: "x", Weight: events, Projections: 2, Paths: paths})
}

// Rules are offered for what nobody reads: neither a field nor a filter, neither
// above nor below, at the place where the source is mounted.
func TestRulesAreOfferedForWhatNobodyReads(t *testing.T) {
	views := []*projections.Projection{
		view("a", `doc.lab.origin == "EC"`, projections.Field{Out: "name", Path: "lab.info.name"}, projections.Field{Out: "all", Path: "lab.whole"}),
		view("b", "", projections.Field{Out: "names", Path: "lab.items.#.name"}),
	}
	s := &sketch.Sketch{Events: 100, Noise: 100}
	seen(s, 60, sketch.Path{"seen_at"})
	seen(s, 50, sketch.Path{"items", sketch.Any, "seen_at"})
	seen(s, 40, sketch.Path{"origin"})                         // a filter
	seen(s, 30, sketch.Path{"info"})                           // above what is read
	seen(s, 20, sketch.Path{"whole", "x"})                     // below what is read
	seen(s, 10, sketch.Path{"seen_at"}, sketch.Path{"origin"}) // together with what is read
	seen(s, 9, sketch.Path{"items"})                           // elements came or went
	seen(s, 8, sketch.Path{"old"}, sketch.Path{"seen_at"})
	seen(s, 7, sketch.Path{}) // no object
	seen(s, 6, sketch.Path{"name"})

	r := Make(sketch.Summary{"lab": s}, []Source{{Name: "lab", Strip: []string{"updated_at"}, Mount: canonicaltree.Path{"lab"}}, {Name: "silent"}}, views)
	require.Len(t, r, 2)
	require.Empty(t, r[1].Strip)
	lab := r[0]
	assert.EqualValues(t, 340, lab.Events)
	assert.EqualValues(t, 100, lab.Noise)
	assert.EqualValues(t, 240, lab.Suppressed)
	assert.Equal(t, []string{"items.*.seen_at", "name", "old", "seen_at"}, lab.Offered)
	assert.Equal(t, []string{"updated_at", "items.*.seen_at", "name", "old", "seen_at"}, lab.Strip)
	assert.EqualValues(t, 60+50+8+6, lab.Saved.Events)
	assert.EqualValues(t, 2*(60+50+8+6), lab.Saved.Projections)
	assert.InDelta(t, 124.0/340, lab.Saved.Share, 1e-9)
	require.Len(t, lab.Causes, 10)
	assert.Equal(t, "seen_at", lab.Causes[0].Fields[0].Pattern)
	assert.True(t, lab.Causes[0].Strippable)
	assert.Equal(t, []string{"acme/a (when)"}, lab.Causes[2].Fields[0].ReadBy)
	assert.Equal(t, []string{"acme/a (name)"}, lab.Causes[3].Fields[0].ReadBy)
	assert.False(t, lab.Causes[8].Strippable)

	// At the root the same source is read at other places.
	r = Make(sketch.Summary{"lab": s}, []Source{{Name: "lab"}}, views)
	assert.Contains(t, r[0].Offered, "origin")
}

// A rule for a whole object takes those for what is in it along; what is too rare
// is not worth a rule.
func TestRulesAreFew(t *testing.T) {
	s := &sketch.Sketch{Events: 1_000_000}
	seen(s, 5000, sketch.Path{"meta", "lsn"})
	seen(s, 4000, sketch.Path{"meta"})
	seen(s, 3000, sketch.Path{"map", sketch.Any, "x"})
	seen(s, 2000, sketch.Path{"map", "k", "x"}) // in the form that it has now
	seen(s, 10, sketch.Path{"rare"})
	r := Make(sketch.Summary{"lab": s}, []Source{{Name: "lab"}}, nil)[0]
	assert.Equal(t, []string{"map.*.x", "meta"}, r.Offered)
	assert.EqualValues(t, 14_000, r.Saved.Events)
}

// Counts that may be wrong count for their least.
func TestOnlyWhatIsCertainCounts(t *testing.T) {
	s := &sketch.Sketch{Events: 100_000}
	for i := range 5000 {
		seen(s, 1, sketch.Path{fmt.Sprint("f", i%1000)})
	}
	r := Make(sketch.Summary{"lab": s}, []Source{{Name: "lab"}}, nil)[0]
	total := int64(0)
	for _, c := range r.Causes {
		assert.LessOrEqual(t, c.Events, int64(5))
		total += c.Events
	}
	assert.LessOrEqual(t, total, int64(5000))
}

// Whatever the projections, the documents and what was suppressed: what a
// customer gets is the same with the offered rules and without.
func TestOfferedRulesChangeNothingForAnybody(t *testing.T) {
	paths := []string{"a", "b", "a.b", "a.b.c", "list", "list.#.x", "list.0", "list.#", "list.#.y.z", "map.k1", "map", "sub.list.#.x", "list.#(x==1).y", "a.2024", "@this"}
	filters := []string{"", "doc.b != null", "doc.a.b.c == 1", "len(doc.list) > 1", `any(doc.list, {.x == 1})`}
	value := rapid.SampledFrom([]string{"1", "2", `"t"`, "null", "[]", "{}"})
	object := func(t *rapid.T, members map[string]func(*rapid.T) string) string {
		text := "{"
		for _, name := range []string{"a", "b", "c", "x", "y", "z", "k1", "k2", "2024", "list", "map", "sub", "meta"} {
			if make := members[name]; make != nil && rapid.IntRange(0, 4).Draw(t, name) > 0 {
				if len(text) > 1 {
					text += ","
				}
				text += `"` + name + `":` + make(t)
			}
		}
		return text + "}"
	}
	leaf := func(t *rapid.T) string { return value.Draw(t, "value") }
	element := func(t *rapid.T) string {
		return object(t, map[string]func(*rapid.T) string{"x": leaf, "y": func(t *rapid.T) string {
			return object(t, map[string]func(*rapid.T) string{"z": leaf, "x": leaf})
		}})
	}
	list := func(t *rapid.T) string {
		text := "["
		for i := range rapid.IntRange(0, 3).Draw(t, "elements") {
			if i > 0 {
				text += ","
			}
			text += element(t)
		}
		return text + "]"
	}
	document := func(t *rapid.T) string {
		return object(t, map[string]func(*rapid.T) string{
			"a": func(t *rapid.T) string {
				return object(t, map[string]func(*rapid.T) string{"b": element, "c": leaf, "2024": leaf})
			},
			"b": leaf, "c": leaf, "list": list, "meta": element,
			"map": func(t *rapid.T) string {
				return object(t, map[string]func(*rapid.T) string{"k1": leaf, "k2": element})
			},
			"sub": func(t *rapid.T) string { return object(t, map[string]func(*rapid.T) string{"list": list, "x": leaf}) },
		})
	}
	offered := 0
	rapid.Check(t, func(t *rapid.T) {
		var views []*projections.Projection
		for i := range rapid.IntRange(1, 2).Draw(t, "views") {
			var fields []projections.Field
			for j, path := range rapid.SliceOfNDistinct(rapid.SampledFrom(paths[:len(paths)-1]), 1, 3, rapid.ID).Draw(t, "fields") {
				fields = append(fields, projections.Field{Out: fmt.Sprint("f", j), Path: path})
			}
			p, err := projections.Compile(projections.Spec{Customer: "acme", Name: fmt.Sprint(i), Fields: fields, When: rapid.SampledFrom(filters).Draw(t, "when")})
			if err != nil {
				t.Fatal(err)
			}
			views = append(views, p)
		}
		s := &sketch.Sketch{Events: 100}
		docs := []string{document(t), document(t), document(t)}
		for i := range docs[1:] {
			before, after := tree(t, docs[i]), tree(t, docs[i+1])
			o := sketch.Observation{Weight: 1}
			canonicaltree.Diff(before, after, func(p canonicaltree.Path, _, _ canonicaltree.Node) bool {
				one := sketch.Observation{Weight: 1, Paths: []sketch.Path{sketch.Locate(p, before)}}
				s.Add(one)
				o.Paths = append(o.Paths, one.Paths...)
				return true
			})
			s.Add(o)
		}
		mount := rapid.SampledFrom([]canonicaltree.Path{nil, {"sub"}}).Draw(t, "mount")
		r := Make(sketch.Summary{"lab": s}, []Source{{Name: "lab", Mount: mount}}, views)[0]
		rules, err := stripper.Compile(r.Strip)
		if err != nil {
			t.Fatalf("an offered rule is none: %v", err)
		}
		offered += len(r.Offered)
		m := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "lab", Mount: mount}, {Name: "other"}}})
		other := tree(t, document(t))
		for _, text := range docs {
			stripped := tree(t, text)
			if r.Strip != nil {
				next, err := rules.Strip(stripped)
				if err != nil {
					t.Fatal(err)
				}
				if next != nil { // something matched
					stripped = next.Root()
				}
			}
			for _, v := range views {
				with := shown(t, v, m, map[string]canonicaltree.Node{"lab": stripped, "other": other})
				without := shown(t, v, m, map[string]canonicaltree.Node{"lab": tree(t, text), "other": other})
				if with != without {
					t.Fatalf("rules %q: %s shows %s instead of %s", r.Strip, text, with, without)
				}
			}
		}
	})
	assert.NotZero(t, offered, "no rule was ever offered")
}

func tree(t interface{ Fatal(...any) }, text string) canonicaltree.Node {
	parsed, err := canonicaltree.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Root()
}

func shown(t *rapid.T, v *projections.Projection, m *merge.Plan, docs map[string]canonicaltree.Node) string {
	doc, _, err := m.Compose(nil, docs)
	if err != nil {
		t.Fatal(err)
	}
	out, match, err := v.Project(nil, doc)
	if err != nil {
		return "an error" // of the filter, which must be there with and without
	}
	text, err := json.Marshal([]any{match, string(out)})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
