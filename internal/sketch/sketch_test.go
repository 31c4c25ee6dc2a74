package sketch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

func parse(t testing.TB, text string) canonicaltree.Node {
	tree, err := canonicaltree.Parse([]byte(text))
	require.NoError(t, err)
	return tree.Root()
}

// located returns the patterns of all differences of two documents.
func located(t testing.TB, before, after string) (patterns []string) {
	a := parse(t, before)
	canonicaltree.Diff(a, parse(t, after), func(p canonicaltree.Path, _, _ canonicaltree.Node) bool {
		patterns = append(patterns, Locate(p, a).Pattern())
		return true
	})
	return patterns
}

func TestLocate(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20)
	for _, tc := range []struct{ before, after, want string }{
		{`{"a":{"b":1}}`, `{"a":{"b":2}}`, "a.b"},
		{`{"items":[{"s":1},{"s":1}]}`, `{"items":[{"s":1},{"s":2}]}`, "items.*.s"},
		{`{"tags":["a"]}`, `{"tags":["b"]}`, "tags"},
		{`{"tags":["a"]}`, `{"tags":["a","b"]}`, "tags"},
		{`{"grid":[[{"x":1}]]}`, `{"grid":[[{"x":2}]]}`, "grid.*.*.x"},
		{`{"years":{"2024":1}}`, `{"years":{"2024":2}}`, `years.\2024`},
		{`{"a.b":{"c*":{"d\\e":1}}}`, `{"a.b":{"c*":{"d\\e":2}}}`, `a\.b.c\*.d\\e`},
		{`{"a":{"":1}}`, `{"a":{"":2}}`, "a"},
		{`{"a":{"b":1}}`, `{"a":{}}`, "a.b"},
		{`{"a":{"b":1}}`, `{"a":[1]}`, "a"},
		{`{"` + strings.Repeat("n", 200) + `":1}`, `{}`, ""},
		{`[1]`, `[2]`, ""},
		{`[{"a":1}]`, `[{"a":2}]`, "*.a"},
		{deep + "1" + strings.Repeat("}", 20), deep + "2" + strings.Repeat("}", 20), strings.Repeat("a.", 15) + "a"},
	} {
		assert.Equal(t, []string{tc.want}, located(t, tc.before, tc.after), tc.before)
	}
}

func one(path ...string) []Path { return []Path{path} }

func find(s *Sketch, patterns ...string) *Set {
	for _, set := range s.Sets() {
		var got []string
		for _, p := range set.Paths {
			got = append(got, p.Pattern())
		}
		if slices.Equal(got, patterns) {
			return &set
		}
	}
	return nil
}

// The members of an object that is used as a map become a star, also those
// counted before; those of one with few names do not.
func TestMembersOfMapsAreGeneralised(t *testing.T) {
	s := &Sketch{}
	for i := range 500 {
		s.Add(Observation{Weight: 1, Paths: one("shops", fmt.Sprint("s", i), "seen_at")})
		s.Add(Observation{Weight: 1, Paths: []Path{{"shops", fmt.Sprint("s", i), "seen_at"}, {"other"}}})
		s.Add(Observation{Weight: 1, Paths: one("plain", fmt.Sprint("f", i%5), "x")})
	}
	require.NotNil(t, find(s, "shops.*.seen_at"))
	assert.EqualValues(t, 500, find(s, "shops.*.seen_at").Count)
	assert.EqualValues(t, 500, find(s, "other", "shops.*.seen_at").Count)
	assert.EqualValues(t, 100, find(s, "plain.f3.x").Count)
	assert.Zero(t, find(s, "shops.*.seen_at").Error)

	// Names right below the map: the map itself is what changes.
	for i := range 500 {
		s.Add(Observation{Weight: 1, Paths: one("prices", fmt.Sprint("p", i))})
	}
	assert.EqualValues(t, 500, find(s, "prices").Count)
}

// Memory is bounded for any input, and frequent sets are kept with bounds
// that hold.
func TestHeavyHittersAreKeptInBoundedMemory(t *testing.T) {
	s := &Sketch{}
	for i := range 60_000 {
		s.Add(Observation{Weight: 1, Paths: one(fmt.Sprint("rare", i%30_000))})
		if i%10 == 0 {
			s.Add(Observation{Weight: 16, Paths: one("often")})
		}
	}
	assert.LessOrEqual(t, len(s.sets), MaxSets)
	assert.LessOrEqual(t, s.size, maxNames+1)
	often := find(s, "often")
	require.NotNil(t, often)
	assert.LessOrEqual(t, often.Least(), int64(96_000))
	assert.GreaterOrEqual(t, often.Count, int64(96_000))
	assert.EqualValues(t, 60_000+96_000, s.Suppressed)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	assert.Less(t, len(text), 64<<10)
}

// Sketches of parts, added up in any grouping and through their stored form, are
// a sketch of the whole: exact when there is room, and with bounds that hold when
// there is not.
func TestSketchesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SampledFrom([]int{20, 400}).Draw(t, "kinds")
		parts := rapid.IntRange(1, 4).Draw(t, "parts")
		truth := map[string]int64{}
		total := Summary{}
		for range parts {
			s := &Sketch{Events: 1000, Noise: 10}
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, kinds-1), 0, 600).Draw(t, "events") {
				if rapid.Bool().Draw(t, "skewed") {
					i %= 7
				}
				name := fmt.Sprint("f", i)
				truth[name]++
				s.Add(Observation{Weight: 1, Paths: one(name), Projections: 2})
			}
			stored, err := Summary{"x": s}.MergeInto(nil)
			if err != nil {
				t.Fatal(err)
			}
			var again Summary
			if err := json.Unmarshal(stored, &again); err != nil {
				t.Fatal(err)
			}
			total.Merge(again)
		}
		s := total["x"]
		if s.Events != int64(1000*parts) || len(s.sets) > MaxSets {
			t.Fatalf("%d events, %d sets", s.Events, len(s.sets))
		}
		n := int64(0)
		for name, want := range truth {
			n += want
			set := find(s, name)
			switch {
			case set == nil && len(truth) <= MaxSets:
				t.Fatalf("%s is lost though there was room", name)
			case set == nil:
			case set.Least() > want || set.Count < want:
				t.Fatalf("%s: between %d and %d, was %d", name, set.Least(), set.Count, want)
			case len(truth) <= MaxSets && (set.Error != 0 || set.Projections != 2*want):
				t.Fatalf("%s is not exact: %+v", name, set)
			}
		}
		if s.Suppressed != n {
			t.Fatalf("%d suppressed, want %d", s.Suppressed, n)
		}
		for _, set := range s.Sets() { // none that is not there, but by its error
			if truth[set.Paths[0].Pattern()] == 0 {
				t.Fatalf("%v was never seen", set.Paths)
			}
		}
	})
}

// When both are full, what one of them does not hold may still have been counted
// by it and dropped: the bounds allow for that, and for no more.
func TestFullSketchesAddUp(t *testing.T) {
	truth := map[string]int64{}
	part := func(from, times int) *Sketch {
		s := &Sketch{}
		add := func(name string, n int) {
			for range n {
				truth[name]++
				s.Add(Observation{Weight: 1, Paths: one(name)})
			}
		}
		add("both", 1000)
		add(fmt.Sprint("only", from), 500)
		for i := from; i < from+600; i++ {
			add(fmt.Sprint("f", i), times)
		}
		return s
	}
	a, b := part(0, 2), part(300, 3)
	require.Len(t, a.sets, MaxSets)
	require.Len(t, b.sets, MaxSets)
	require.Nil(t, find(a, "f10"))
	truth["f10"]++
	small := &Sketch{}
	small.Add(Observation{Weight: 1, Paths: one("f10")})
	a.Merge(small)
	require.NotNil(t, find(a, "f10"), "what was dropped of it is allowed for, so it is not the smallest")
	assert.GreaterOrEqual(t, find(a, "f10").Count, truth["f10"])
	a.Merge(b)
	assert.Len(t, a.sets, MaxSets)
	for _, set := range a.Sets() {
		name := set.Paths[0].Pattern()
		assert.LessOrEqual(t, set.Least(), truth[name], name)
		assert.GreaterOrEqual(t, set.Count, truth[name], name)
	}
	both := find(a, "both")
	assert.EqualValues(t, 2000, both.Count)
	assert.Zero(t, both.Error, "it was in both all the time")
	for _, only := range []string{"only0", "only300"} {
		assert.EqualValues(t, 500, find(a, only).Least())
	}
}

// Any paths, in any order, split in any way: the general form does not depend on
// which process saw what, once all is added up, and no path is lost by it.
func TestGeneralFormCoversWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "c", Any, "0", "."})
		paths := rapid.SliceOfN(rapid.SliceOfN(name, 1, 5), 1, 20).Draw(t, "paths")
		s, other := &Sketch{}, &Sketch{}
		for i, p := range paths {
			to := s
			if i%2 == 1 {
				to = other
			}
			to.Add(Observation{Weight: 1, Paths: one(Path(p).trim()...)})
		}
		s.Merge(other)
		count := int64(0)
		for _, set := range s.Sets() {
			count += set.Count
		}
		if count != int64(len(paths)) {
			t.Fatalf("%d of %d are counted", count, len(paths))
		}
		for _, p := range paths {
			if !slices.ContainsFunc(s.Sets(), func(set Set) bool { return set.Paths[0].Covers(Path(p).trim()) }) {
				t.Fatalf("%q is not covered", p)
			}
		}
	})
}

func TestWideEventsAreOneKind(t *testing.T) {
	s := &Sketch{}
	s.Add(Observation{Weight: 3, Paths: make([]Path, MaxPaths+1)})
	assert.EqualValues(t, 3, s.Wide)
	assert.Empty(t, s.Sets())
}

// All are observed at first, then one in sixteen with the weight of sixteen; what
// could not be written down is not lost.
func TestBoard(t *testing.T) {
	b := NewCollector()
	require.Nil(t, b.Take())
	for range dense {
		require.EqualValues(t, 1, b.Rate("lab"))
		b.Observe("lab", Observation{Weight: 1, Paths: one("x")})
	}
	require.EqualValues(t, sparse, b.Rate("lab"))
	require.EqualValues(t, 1, b.Rate("another"))
	b.Count("lab", 5000, 7)
	taken := b.Take()
	require.Nil(t, b.Take())
	require.EqualValues(t, 1, b.Rate("lab"))
	b.Count("lab", 1, 0)
	b.Restore(taken)
	taken = b.Take()
	assert.EqualValues(t, 5001, taken["lab"].Events)
	assert.EqualValues(t, 7, taken["lab"].Noise)
	assert.EqualValues(t, dense, find(taken["lab"], "x").Count)

	_, err := taken.MergeInto([]byte("{"))
	require.Error(t, err)
}

// A sample is one in sixteen also of versions in a row or in steps.
func TestSelectedIsEven(t *testing.T) {
	for _, step := range []uint64{1, 2, 10, 16, 64, 1000} {
		n := 0
		for i := range uint64(16_000) {
			if Selected(1<<48|i*step, sparse) {
				n++
			}
		}
		assert.InDelta(t, 1000, n, 150, "step %d", step)
	}
}
