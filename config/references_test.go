package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// An error shows the references of a value, whatever the message repeats of it.
func TestFaultsShowReferencesNotValues(t *testing.T) {
	t.Parallel()
	const wrong, look = "is wrong with the values of its references", "look at what its references stand for"
	for name, c := range map[string]struct {
		value, source, when, field, deliver string
		path, problem, fix                  string
	}{
		"no source there":       {value: "hunter2", field: "${HUNT}", path: "fields.c", problem: "reads ${HUNT}, where no source is mounted"},
		"behind other text":     {value: "hunter2", field: "a${HUNT}.b", path: "fields.c", problem: "reads a${HUNT}.b, where no source is mounted"},
		"two, one in the other": {value: "hunter2", field: "${HUNT}.${MORE}", path: "fields.c", problem: "reads ${HUNT}.${MORE}, where no source is mounted"},
		"a part of it":          {value: "hunter2.#.x", field: "${HUNT}", path: "fields.c", problem: wrong},
		"short":                 {value: "h2", field: "lab${HUNT}", path: "fields.c", problem: wrong},
		"empty":                 {value: "", field: "plain${HUNT}", path: "fields.c", problem: "reads plain, where no source is mounted"},
		"a filter reads":        {value: "hunter2", when: "doc.${HUNT} == 1", path: "when", problem: "reads ${HUNT}, where no source is mounted"},
		"a filter's name":       {value: "hunter2", when: "${HUNT} == 1", path: "when", problem: "unknown name ${HUNT}"},
		"a filter's number":     {value: "12hunter2", when: "doc.lab == ${HUNT}", path: "when", problem: wrong},
		"a modifier":            {value: "hunter2", field: "lab.@${HUNT}", path: "fields.c", problem: "has an unknown modifier @${HUNT}"},
		"JSONPath":              {value: "hunter2", field: "$.${HUNT}[0]", path: "fields.c", problem: "is written in JSONPath", fix: "write ${HUNT}.0; a member whose name is $ is \\$"},
		"JSONPath, short":       {value: "h2", field: "$.${HUNT}[0]", path: "fields.c", problem: "is written in JSONPath", fix: look},
		"a pointer in it":       {value: "/hunter2/x", field: "${HUNT}", path: "fields.c", problem: "is written as a JSON Pointer", fix: look},
		"a column": {value: "hunter2", deliver: `postgres: {url: "postgres://db/x?sslmode=verify-full", table: t, columns: {w: {type: text, path: "${HUNT}"}}}`,
			path: "deliver.out.postgres.columns.w", problem: "shows ${HUNT}, which the projection does not have"},
		"a mode": {value: "hunter2", deliver: `postgres: {url: "postgres://db/x?sslmode=verify-full", table: t, mode: "${HUNT}", retention: 30d, columns: {c: text}}`,
			path: "deliver.out.postgres.mode", problem: "is not allowed"},
		"a kind": {value: "hunter2", deliver: "kind: \"${HUNT}\"\n        webhook: {url: \"https://acme.example/\", secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz, mode: log}",
			path: "deliver.out.kind", problem: "is not allowed"},
		"a word of the message": {value: "sour", source: "merge: {precedence: [\"${HUNT}\"]}", path: "precedence[0]", problem: "is not a source"},
		"a secret that is one":  {value: "short", source: `admin: {token: "${HUNT}"}`, path: "admin.token", problem: "is too short"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.field == "" {
				c.field = "lab"
			}
			if c.deliver == "" {
				c.deliver = "file: {path: out.jsonl}"
			}
			if c.when == "" {
				c.when = "doc.lab == 1"
			}
			path := write(t, map[string]string{
				"weir.yaml": "sources: {lab: {file: {path: a.jsonl}, entity: id, mount: lab}}\ncustomers: [acme.yaml]\n" + c.source,
				"acme.yaml": "customer: acme\nprojections:\n  p:\n    when: '" + c.when + "'\n    fields: {c: '" + c.field + "'}\n    deliver:\n      out:\n        " + c.deliver + "\n",
			})
			_, err := assemble.Load(path, func(name string) (string, bool) {
				return map[string]string{"HUNT": c.value, "MORE": c.value + "more"}[name], name == "HUNT" || name == "MORE"
			})
			var faults *config.Faults
			require.ErrorAs(t, err, &faults)
			require.NotContains(t, err.Error(), "hunter2")
			found := false
			for _, f := range faults.List {
				if len(f.Path) >= len(c.path) && f.Path[len(f.Path)-len(c.path):] == c.path {
					found = true
					require.Equal(t, c.problem, f.Problem)
					if c.fix != "" {
						require.Equal(t, c.fix, f.Fix)
					}
				}
			}
			require.True(t, found, "%v", err)
		})
	}
}

// The other number may be that of a reference.
func TestSharedConnectionsShowTheReference(t *testing.T) {
	t.Parallel()
	const sink = `{webhook: {url: "https://acme.example/", secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz, max_connections: `
	path := write(t, map[string]string{
		"weir.yaml": "sources: {lab: {file: {path: a.jsonl}, entity: id}}\ncustomers: [acme.yaml]\n",
		"acme.yaml": "customer: acme\nprojections:\n  p:\n    fields: {c: lab}\n    deliver:\n      a: " + sink + "\"${MOST}\"}}\n      b: " + sink + "7}}\n",
	})
	_, err := assemble.Load(path, func(string) (string, bool) { return "4711", true })
	require.ErrorContains(t, err, "which has ${MOST}")
	require.NotContains(t, err.Error(), "4711")
}
