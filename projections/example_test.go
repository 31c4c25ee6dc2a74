package projections_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections"
)

// The example of docs/projections.md.
func ExampleProjection_Project() {
	p, err := projections.Compile(projections.Spec{
		Customer: "acme", Name: "ripeness", OmitEmpty: true,
		When: `doc.origin in ["EC", "CO"]`,
		Fields: []projections.Field{
			{Out: "banana_id", Path: "id"},
			{Out: "ripeness.level", Path: "ripeness_level"},
			{Out: "tags", Path: "tags.#.name"},
			{Out: "kind", Const: []byte(`"banana"`)},
			{Out: "weight", Path: "weight", Default: []byte("0")},
			{Out: "batches", Path: "batches", Each: []projections.Field{
				{Out: "number", Path: "nr"},
				{Out: "boxes", Path: "boxes.#"},
			}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := canonicaltree.Parse([]byte(`{
		"id": "B-007", "origin": "EC", "ripeness_level": 4, "stored_in": "hall 9",
		"tags": [{"name": "ripe"}, {"name": "bio"}], "batches": [{"nr": 7, "boxes": ["x1", "x2"]}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	out, match, err := p.Project(nil, tree.Root())
	fmt.Println(match, err)
	fmt.Println(string(out))
	fmt.Println("reads", p.ReadSet())
	// Output:
	// true <nil>
	// {"banana_id":"B-007","ripeness":{"level":4},"tags":["ripe","bio"],"kind":"banana","weight":0,"batches":[{"number":7,"boxes":2}]}
	// reads [batches.\#.boxes.\# batches.\#.nr id origin ripeness_level tags.\#.name weight]
}

// TestFiltersOfTheManualCompile catches a manual that is not true any more.
func TestFiltersOfTheManualCompile(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "docs", "projections.md"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(manual), "\n```\n")
	require.True(t, found)
	for _, block := range strings.Split(block, "\n```\n") {
		if !strings.HasPrefix(block, "doc.") {
			continue
		}
		for _, when := range strings.Split(block, "\n") {
			_, err := projections.Compile(projections.Spec{When: when, Fields: []projections.Field{{Out: "id", Path: "id"}}})
			require.NoError(t, err, when)
			t.Log(when)
		}
	}
}
