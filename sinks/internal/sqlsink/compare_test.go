package sqlsink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/sinks"
)

func TestDiffering(t *testing.T) {
	columns := config.Columns{{Name: "c", Path: "v"}}
	for _, tc := range []struct {
		doc, held, wanted string // "" is NULL
		same              bool
	}{
		{`1`, `1`, `1`, true},
		{`1`, ``, `1`, false},
		{`null`, ``, ``, true},
		{`null`, `null`, `false`, false},
		{`1.5`, `1.50`, `1.5`, true},
		{`1e400`, `10e399`, `1e400`, true},
		{`1`, `"1"`, `1`, false},
		{`{"a":1,"b":[2]}`, `{"b":[2.0],"a":1}`, `{"a":1,"b":[2]}`, true},
		{`{"a":1}`, `{"a":1,"b":null}`, `{"a":1}`, false},
		{`[1,2]`, `[2,1]`, `[1,2]`, false},
		{`"1.5"`, `"1.50"`, `"1.5"`, false},
		// A text column of other JSON.
		{`1.5`, `"1.50"`, `"1.5"`, true},
		{`{"a":1,"b":2}`, `"{\"b\": 2, \"a\":1}"`, `"{\"a\":1,\"b\":2}"`, true},
		{`{"a":1}`, `"{\"a\":2}"`, `"{\"a\":1}"`, false},
		{`{"a":1}`, `"{\"a\":"`, `"{\"a\":1}"`, false},
		{`["1.5",1.5]`, `["1.5","1.50"]`, `["1.5","1.5"]`, true},
		{`["1.5",1.5]`, `["1.50","1.5"]`, `["1.5","1.5"]`, false},
		{`{"k":{"a":1,"b":2}}`, `{"k":"{\"b\":2,\"a\":1}"}`, `{"k":"{\"a\":1,\"b\":2}"}`, true},
	} {
		pointer := func(s string) *string {
			if s == "" {
				return nil
			}
			return &s
		}
		names := Differing(columns, sinks.Expected{Doc: []byte(`{"v":` + tc.doc + `}`)}, []*string{pointer(tc.held)}, []*string{pointer(tc.wanted)})
		require.Equal(t, tc.same, len(names) == 0, "%+v", tc)
	}
}

// Values that are the same by the rules of the projection, or that it does not compare, do not
// differ; at any place of the document, and in any form that a column has.
func TestDifferingByContent(t *testing.T) {
	one := 1
	p, err := projections.Compile(projections.Spec{Customer: "acme", Name: "all", Fields: []projections.Field{
		{Out: "price", Path: "price", Same: &projections.Same{Round: &one}}, {Out: "by.name", Path: "name", Same: &projections.Same{Fold: true, Trim: true}},
		{Out: "tags", Path: "tags", Same: &projections.Same{Set: true}}, {Out: "id", Path: "id"}, {Out: `a\.b`, Path: "ab", Same: &projections.Same{Fold: true}},
		{Out: "rows", Path: "rows", Each: []projections.Field{{Out: "n", Path: "n", Same: &projections.Same{Round: &one}}}},
	}, Carry: []projections.Field{{Out: "by.at", Path: "at"}, {Out: "seen", Path: "seen"}}})
	require.NoError(t, err)
	e := sinks.Expected{
		Doc: []byte(`{"price":1.52,"by":{"name":"Ann","at":7},"tags":["a","b"],"id":1,"a.b":"x","rows":[{"n":1.01}]}`),
		Content: func(doc []byte) (string, error) {
			digest, err := p.Content(doc)
			return string(digest[:]), err
		},
	}
	for _, tc := range []struct {
		path, held, wanted string // "" is NULL
		same               bool
	}{
		{"price", `1.48`, `1.52`, true}, {"price", `1.56`, `1.52`, false}, {"price", ``, `1.52`, false}, {"price", `"1.48"`, `"1.52"`, true}, {"price", `"x"`, `"1.52"`, false},
		{"by.name", `" ANN "`, `"Ann"`, true}, {"by.name", `"Anne"`, `"Ann"`, false}, {"by.name", `"7"`, `"Ann"`, false},
		{"tags", `["b","a","a"]`, `["a","b"]`, true}, {"tags", `["b"]`, `["a","b"]`, false}, {"tags", `"[\"b\",\"a\"]"`, `"[\"a\",\"b\"]"`, true},
		{"id", `2`, `1`, false}, {"by.at", `8`, `7`, true}, {"by.at", ``, `7`, true}, {"seen", `"2026"`, ``, true}, {`a\.b`, `"X"`, `"x"`, true}, {`a\.b`, `"Y"`, `"x"`, false},
		{"rows.0.n", `0.99`, `1.01`, true}, {"rows.0.n", `1.1`, `1.01`, false}, {"rows", `["{\"n\":1.04}"]`, `["{\"n\":1.01}"]`, true}, {"by", `{"name":"ann"}`, `{"name":"Ann","at":7}`, true},
		{"", `{"price":1.49,"seen":1,"by":{"name":"ann"},"rows":[],"id":1}`, `{"id":1,"price":1.52,"by":{"name":"Ann","at":7},"rows":[]}`, true},
		{"", `{"price":1.49,"id":2}`, `{"id":1,"price":1.52}`, false},
	} {
		pointer := func(s string) *string {
			if s == "" {
				return nil
			}
			return &s
		}
		names := Differing(config.Columns{{Name: "c", Path: tc.path}}, e, []*string{pointer(tc.held)}, []*string{pointer(tc.wanted)})
		require.Equal(t, tc.same, len(names) == 0, "%+v", tc)
	}
}
