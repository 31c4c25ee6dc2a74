package noise

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
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

// seen adds events that changed paths and nothing else, under views of a source at a mount.
func seen(c *fieldcount.Counts, views []*projections.Projection, mount canonicaltree.Path, events int64, paths ...fieldcount.Path) {
	c.Events += events
	c.Add(fieldcount.Observation{Entity: "e", Examples: make([]string, len(paths)), Weight: events, Projections: 2, Paths: paths},
		func(p fieldcount.Path) bool { return len(readBy(p, mount, readersOf(views))) > 0 })
}

// Rules cover unread members only: no field or filter reads them, their parents or their
// children, at the source's mount.
func TestRulesCoverUnreadMembers(t *testing.T) {
	views := []*projections.Projection{
		view("a", `doc.lab.origin == "EC"`, projections.Field{Out: "name", Path: "lab.info.name"}, projections.Field{Out: "all", Path: "lab.whole"}),
		view("b", "", projections.Field{Out: "names", Path: "lab.items.#.name"}),
	}
	s := &fieldcount.Counts{Events: 100, Noise: 100}
	mount := canonicaltree.Path{"lab"}
	seen := func(events int64, paths ...fieldcount.Path) { seen(s, views, mount, events, paths...) }
	seen(60, fieldcount.Path{"seen_at"})
	seen(50, fieldcount.Path{"items", fieldcount.Any, "seen_at"})
	seen(40, fieldcount.Path{"origin"})                             // a filter
	seen(30, fieldcount.Path{"info"})                               // above what is read
	seen(20, fieldcount.Path{"whole", "x"})                         // below what is read
	seen(10, fieldcount.Path{"seen_at"}, fieldcount.Path{"origin"}) // together with what is read
	seen(9, fieldcount.Path{"items"})                               // elements came or went
	seen(8, fieldcount.Path{"old"}, fieldcount.Path{"seen_at"})
	seen(7, fieldcount.Path{}) // no object
	seen(6, fieldcount.Path{"name"})

	r := Make(fieldcount.Summary{"lab": s}, []Source{{Name: "lab", Strip: []string{"updated_at"}, Mount: mount}, {Name: "silent"}}, views)
	require.Len(t, r, 2)
	require.Empty(t, r[1].Strip)
	lab := r[0]
	assert.EqualValues(t, 340, lab.Events)
	assert.EqualValues(t, 100, lab.Noise)
	assert.EqualValues(t, 240, lab.Suppressed)
	assert.Equal(t, []string{"items.*.seen_at", "name", "old", "seen_at"}, lab.Offered)
	assert.Equal(t, []string{"updated_at", "items.*.seen_at", "name", "old", "seen_at"}, lab.Strip)
	assert.EqualValues(t, 60+50+8+6, lab.Saved)
	assert.InDelta(t, 124.0/340, lab.SavedShare, 1e-9)
	require.Len(t, lab.Fields, 9)
	assert.Equal(t, Field{Pattern: "seen_at", Events: 78, Share: 78.0 / 340, Saves: 68, Projections: 156, Entity: "e", Strippable: true}, lab.Fields[0])
	assert.Equal(t, "origin", lab.Fields[2].Pattern)
	assert.Equal(t, []string{"acme/a (when)"}, lab.Fields[2].ReadBy)
	assert.Equal(t, []string{"acme/a (name)"}, lab.Fields[3].ReadBy)
	assert.False(t, lab.Fields[7].Strippable, "the whole document")

	// At the root the same source is read at other places.
	s = &fieldcount.Counts{}
	mount = nil
	seen(1, fieldcount.Path{"origin"})
	require.Equal(t, []string{"origin"}, Make(fieldcount.Summary{"lab": s}, []Source{{Name: "lab"}}, views)[0].Offered)
}

// A rule for a whole object includes its members; rare members get no rule.
func TestRulesAreFew(t *testing.T) {
	s := &fieldcount.Counts{Events: 1_000_000}
	seen(s, nil, nil, 5000, fieldcount.Path{"meta", "lsn"})
	seen(s, nil, nil, 4000, fieldcount.Path{"meta"})
	seen(s, nil, nil, 3000, fieldcount.Path{"map", fieldcount.Any, "x"})
	seen(s, nil, nil, 2000, fieldcount.Path{"map", "k", "x"}) // in the form that it has now
	seen(s, nil, nil, 10, fieldcount.Path{"rare"})
	r := Make(fieldcount.Summary{"lab": s}, []Source{{Name: "lab"}}, nil)[0]
	assert.Equal(t, []string{"map.*.x", "meta"}, r.Offered)
	assert.EqualValues(t, 14_000, r.Saved)
}

// A saving is a lower bound: an event with a field that no rule covers is not counted.
func TestOnlyCertainSavingsCount(t *testing.T) {
	s := &fieldcount.Counts{Events: 100_000}
	for i := range 5000 {
		seen(s, nil, nil, 1, fieldcount.Path{"often"}, fieldcount.Path{fmt.Sprint("f", i)})
	}
	seen(s, nil, nil, 500, fieldcount.Path{"often"})
	r := Make(fieldcount.Summary{"lab": s}, []Source{{Name: "lab"}}, nil)[0]
	assert.Equal(t, []string{"often"}, r.Offered)
	assert.EqualValues(t, 500, r.Saved)
}

// document draws a document of few members.
func document(t *rapid.T) string {
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

// With any projections, documents and suppressed events, the offered rules change no
// customer's updates.
func TestOfferedRulesChangeNoUpdates(t *testing.T) {
	paths := []string{"a", "b", "a.b", "a.b.c", "list", "list.#.x", "list.0", "list.#", "list.#.y.z", "map.k1", "map", "sub.list.#.x", "list.#(x==1).y", "a.2024", "@this"}
	filters := []string{"", "doc.b != null", "doc.a.b.c == 1", "len(doc.list) > 1", `any(doc.list, {.x == 1})`}
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
		s := &fieldcount.Counts{Events: 100}
		docs := []string{document(t), document(t), document(t)}
		for i := range docs[1:] {
			before, after := tree(t, docs[i]), tree(t, docs[i+1])
			unread := func(fieldcount.Path) bool { return false }
			o := fieldcount.Observation{Weight: 1}
			canonicaltree.Diff(before, after, func(p canonicaltree.Path, _, _ canonicaltree.Node) bool {
				o.Paths, o.Examples = append(o.Paths, fieldcount.Locate(p, before)), append(o.Examples, "")
				return true
			})
			s.Add(o, unread)
		}
		mount := rapid.SampledFrom([]canonicaltree.Path{nil, {"sub"}}).Draw(t, "mount")
		r := Make(fieldcount.Summary{"lab": s}, []Source{{Name: "lab", Mount: mount}}, views)[0]
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
