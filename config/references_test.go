package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// An error shows the references of a value, even if the message repeats the value.
func TestFaultsShowReferencesNotValues(t *testing.T) {
	t.Parallel()
	const look = "look at what its references stand for"
	for name, c := range map[string]struct {
		value, source, main string
		path, problem, fix  string
	}{
		"no source there":       {value: "hunter2", main: `merge: {required: ["${HUNT}"]}`, path: "required[0]", problem: "is not a source"},
		"a step":                {value: "hunter2", source: `entity: "${HUNT}."`, path: "lab.entity", problem: "has an empty step"},
		"a modifier":            {value: "hunter2", source: `entity: "lab.@${HUNT}"`, path: "lab.entity", problem: "uses a modifier that gjson does not have"},
		"JSONPath":              {value: "hunter2", source: `entity: "$.${HUNT}[0]"`, path: "lab.entity", problem: "is written in JSONPath", fix: "write ${HUNT}.0; a member whose name is $ is \\$"},
		"JSONPath, short":       {value: "h2", source: `entity: "$.${HUNT}[0]"`, path: "lab.entity", problem: "is written in JSONPath", fix: look},
		"a pointer in it":       {value: "/hunter2/x", source: `entity: "${HUNT}"`, path: "lab.entity", problem: "is written as a JSON Pointer", fix: look},
		"a mode":                {value: "hunter2", source: `entity: id, mode: "${HUNT}"`, path: "lab.mode", problem: "is not allowed"},
		"a word of the message": {value: "sour", main: `merge: {precedence: ["${HUNT}"]}`, path: "precedence[0]", problem: "is not a source"},
		"a secret that is one":  {value: "short", main: `admin: {token: "${HUNT}"}`, path: "admin.token", problem: "is too short"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.source == "" {
				c.source = "entity: id"
			}
			path := write(t, map[string]string{
				"weir.yaml": "sources: {lab: {file: {path: a.jsonl}, mount: lab, " + c.source + "}}\ncustomers: [acme.yaml]\n" + c.main,
				"acme.yaml": "customer: acme\nprojections: {p: {fields: {c: lab}, deliver: {out: {file: {path: out.jsonl}}}}}\n",
			})
			_, err := assemble.Load(path, func(name string) (string, bool) {
				return map[string]string{"HUNT": c.value, "MORE": c.value + "more"}[name], name == "HUNT" || name == "MORE"
			})
			var faults *config.Faults
			require.ErrorAs(t, err, &faults)
			require.NotContains(t, err.Error(), "hunter2")
			found := false
			for _, f := range faults.List {
				if strings.HasSuffix(f.Path, c.path) {
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

// A customer's author need not be trusted with the variables and files of the process:
// a constant would carry them to the customer's own sink.
func TestReferencesOfCustomersAreConfined(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(outside, []byte("hunter2"), 0o600))
	load := func(field, secret string) error {
		path := write(t, map[string]string{
			"weir.yaml":           "sources: {lab: {file: {path: a.jsonl}, entity: id}}\ncustomers: [customers/acme.yaml]\ncustomers_env: [\"ACME_*\", HOOK]\ncustomers_secrets: [secrets]\n",
			"customers/acme.yaml": "customer: acme\nprojections:\n  p:\n    fields: {c: " + field + "}\n    deliver:\n      a: {webhook: {url: \"https://acme.example/\", secret: \"" + secret + "\"}}\n",
			"secrets/acme":        "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\n",
			"weir.token":          "hunter2",
		})
		require.NoError(t, os.Symlink(outside, filepath.Join(filepath.Dir(path), "secrets/link")))
		_, err := assemble.Load(path, func(name string) (string, bool) {
			if name == "HOOK" || name == "ACME_HOOK" {
				return "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", true
			}
			return "hunter2", true
		})
		if err != nil {
			require.NotContains(t, err.Error(), "hunter2")
		}
		return err
	}
	for _, secret := range []string{"${HOOK}", "${ACME_HOOK}", "${file:../secrets/acme}"} {
		require.NoError(t, load("{const: $$x}", secret), secret)
	}
	const elsewhere = "has a reference, which a customer's file may have in secrets of its sinks only"
	for _, field := range []string{`{const: "${HOOK}"}`, `{const: {a: ["${file:../secrets/acme}"]}}`, `"${HOOK}"`, `{path: id, default: "${NONE:-x}"}`} {
		require.ErrorContains(t, load(field, "${HOOK}"), elsewhere, field)
	}
	require.ErrorContains(t, load(`{const: "${HOOK}"}`, "${HOOK}"), "acme.yaml:4:25: ")
	for secret, want := range map[string]string{
		"${WEIR_ADMIN_TOKEN}":              "customers/acme.yaml:6:59: projections.p.deliver.a.webhook.secret: environment variable WEIR_ADMIN_TOKEN is not open to customers' files",
		"${HOOKS:-x}":                      "environment variable HOOKS is not open to customers' files",
		"${file:../weir.token}":            "is not open to customers' files",
		"${file:../secrets/../weir.token}": "is not open to customers' files",
		"${file:" + outside + "}":          "is not open to customers' files",
		"${file:../secrets/link}":          "cannot be read",
	} {
		require.ErrorContains(t, load("id", secret), want, secret)
	}
}
