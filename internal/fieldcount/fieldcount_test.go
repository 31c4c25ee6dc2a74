package fieldcount

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

func unread(Path) bool { return false }

// observe adds an event that changed some paths.
func observe(c *Counts, weight int64, read func(Path) bool, paths ...Path) {
	c.Add(Observation{Entity: "e", Paths: paths, Examples: make([]string, len(paths)), Weight: weight, Projections: 1}, read)
}

// lines are the fields in order: pattern, events, saves.
func lines(c *Counts) (all []string) {
	for _, f := range c.Fields {
		all = append(all, fmt.Sprint(f.Path.Pattern(), " ", f.Events, " ", f.Saves))
	}
	slices.Sort(all)
	return all
}

// An event saves all of its fields or none: one field that is read is enough.
func TestAnEventSavesAllItsFieldsOrNone(t *testing.T) {
	c := &Counts{}
	read := func(p Path) bool { return p[0] == "read" }
	observe(c, 5, read, Path{"a"}, Path{"b"})
	observe(c, 3, read, Path{"a"})
	observe(c, 2, read, Path{"a"}, Path{"read"})
	observe(c, 1, read, Path{}) // the whole document
	observe(c, 7, read)         // too many
	require.Equal(t, []string{" 1 0", "a 10 8", "b 5 5", "read 2 0"}, lines(c))
	assert.Equal(t, []int64{18, 8, 7, 0}, []int64{c.Suppressed, c.Unread, c.Other.Events, c.Other.Saves})
}

// Of more fields than there is room for, the first are kept, and no event is lost.
func TestLaterFieldsAreCountedTogether(t *testing.T) {
	c := &Counts{}
	read := func(p Path) bool { return p[0] == "read" }
	for i := range 3 * MaxFields {
		observe(c, 1, read, Path{fmt.Sprint("f", i)})
		observe(c, 2, read, Path{"frequent"})
	}
	observe(c, 1, read, Path{"read"}, Path{"late"})
	require.Len(t, c.Fields, MaxFields)
	require.Contains(t, lines(c), fmt.Sprint("frequent ", 6*MaxFields, " ", 6*MaxFields))
	require.EqualValues(t, 2*MaxFields+2, c.Other.Events)
	require.EqualValues(t, 2*MaxFields+1, c.Other.Saves)
}

// Counts of parts, added up through their stored form in any grouping, are the counts of the
// whole while the fields find room.
func TestCountsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, parts := &Counts{}, []*Counts{{}, {}, {}}
		read := func(p Path) bool { return p[0] == "r" }
		for range rapid.IntRange(0, 50).Draw(t, "events") {
			paths := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "r"}), 1, 3, rapid.ID).Draw(t, "paths")
			var changed []Path
			for _, p := range paths {
				changed = append(changed, Path{p})
			}
			weight := rapid.Int64Range(1, 20).Draw(t, "weight")
			observe(whole, weight, read, changed...)
			observe(parts[rapid.IntRange(0, 2).Draw(t, "part")], weight, read, changed...)
		}
		var stored []byte
		for _, part := range parts {
			var err error
			stored, err = Summary{"lab": part}.MergeInto(stored)
			require.NoError(t, err)
		}
		var sum Summary
		require.NoError(t, json.Unmarshal(stored, &sum))
		require.Equal(t, lines(whole), lines(sum["lab"]))
		require.Equal(t, []int64{whole.Suppressed, whole.Unread}, []int64{sum["lab"].Suppressed, sum["lab"].Unread})
	})
}

// All are observed at first, then one in sixteen with the weight of sixteen; counts that could
// not be stored are not lost.
func TestCollector(t *testing.T) {
	b := NewCollector()
	require.Nil(t, b.Take())
	for range dense {
		require.EqualValues(t, 1, b.Rate("lab"))
		b.Observe("lab", Observation{Weight: 1, Paths: []Path{{"x"}}, Examples: []string{"x"}}, unread)
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
	assert.Equal(t, []string{fmt.Sprint("x ", dense, " ", dense)}, lines(taken["lab"]))

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
