package merge

import (
	"testing"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/stretchr/testify/require"
)

func TestNextNode(t *testing.T) {
	plan := Compile(Spec{Sources: []Source{{Name: "whole"}, {Name: "patch", Patch: true}}})
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
		var stored, event canonicaltree.Node
		if c.stored != "" {
			stored = parseText(t, c.stored)
		}
		if c.event != "" {
			event = parseText(t, c.event)
		}
		doc, changed, err := plan.NextNode(nil, c.source, stored, event)
		require.NoError(t, err)
		require.Equal(t, c.changed, changed, "%+v", c)
		require.Equal(t, c.want, string(doc.Raw()), "%+v", c)
		require.Equal(t, c.want != "", doc.Exists())
	}

	_, _, err := plan.NextNode(nil, "other", canonicaltree.Node{}, parseText(t, "{}"))
	require.EqualError(t, err, `source "other": not declared`)
}

// Small patches make no document without end; one that is too large may shrink.
func TestPatchesAreBounded(t *testing.T) {
	plan := Compile(Spec{Sources: []Source{{Name: "s", Patch: true, MaxBytes: 20}, {Name: "whole", MaxBytes: 20}}})
	for _, c := range []struct {
		stored, event, want string
	}{
		{"", `{"a":"0123456789abc"}`, ""},
		{"", `{"a":"0123456789ab"}`, `{"a":"0123456789ab"}`},
		{`{"a":"0123456789ab"}`, `{"b":1}`, ""},
		{`{"a":"0123456789ab"}`, `{"a":null,"b":1}`, `{"b":1}`},
		{`{"a":"0123456789abcdef","b":1}`, `{"b":null}`, `{"a":"0123456789abcdef"}`},
		{`{"a":"0123456789abcdef","b":1}`, `{"b":12}`, ""},
	} {
		var stored canonicaltree.Node
		if c.stored != "" {
			stored = parseText(t, c.stored)
		}
		doc, _, err := plan.NextNode(nil, "s", stored, parseText(t, c.event))
		if c.want == "" {
			require.ErrorContains(t, err, "the limit (max_event) is 20", "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, string(doc.Raw()))
	}
	_, _, err := plan.NextNode(nil, "whole", canonicaltree.Node{}, parseText(t, `{"a":"0123456789abcdef"}`))
	require.NoError(t, err, "whole documents are bounded as events")
}
