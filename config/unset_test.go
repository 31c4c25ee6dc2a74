package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// What depends on a value that is not there is not checked: its default, or the
// reference itself, says nothing about it.
func TestWhatDependsOnUnsetValuesIsNotChecked(t *testing.T) {
	t.Parallel()
	path := write(t, map[string]string{
		"weir.yaml": `
sources: {a: {file: {path: a.jsonl}, entity: id, mount: "${NOT_SET}"}}
customers: [acme.yaml]
customers_env: [NOT_SET]
`,
		"acme.yaml": `
customer: acme
projections:
  p:
    when: doc.lab.ripe == true
    fields: {id: lab.id}
    deliver:
      a: {webhook: {url: "https://acme.example/", secret: "${NOT_SET}"}}
      b: {webhook: {url: "https://acme.example/", secret: "${NOT_SET}"}}
`,
	})
	_, err := assemble.Load(path, env, config.AllowUnsetEnv())
	require.NoError(t, err)
}
