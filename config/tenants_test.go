package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// Tenants with sources of their own do not write one another's documents: places
// that overlap are refused, at load and in a file that comes later, unless both
// sources say that they are shared.
func TestTenantsStayApartInTheDocument(t *testing.T) {
	token := func(tenant, may, sources string) string {
		return fmt.Sprintf("  - {id: %s-%d, hash: \"sha256:%064d\", tenant: %s, may: [%s], sources: [%s]}\n", tenant, len(may+sources), 0, tenant, may, sources)
	}
	both := token("acme", "ingest", "ours") + token("beta", "ingest", "theirs")
	for name, c := range map[string]struct {
		ours, theirs, tokens string
		good                 bool
	}{
		"both at the root":     {"", "", both, false},
		"one at the root":      {", mount: a", "", both, false},
		"one inside the other": {", mount: a", ", mount: b", both, true},
		"shared":               {", shared: true", ", shared: true", both, true},
		"one says that it is":  {", shared: true", "", both, false},
		"all sources":          {"", "", token("acme", "ingest", "ours") + token("beta", "ingest", `"*"`), false},
		"a source's own token": {"", `, http: {token: "0123456789abcdef"}`, token("acme", "ingest", "ours"), false},
		"not by that for all":  {", mount: a", `, mount: b, http: {token: "0123456789abcdef"}`, token("acme", "ingest", `ours, "*"`), true},
		"one tenant":           {"", "", token("acme", "ingest", "ours") + token("acme", "ingest", "theirs"), true},
		"a right to both":      {"", "", token("acme", "ingest", "ours, theirs") + token("beta", "ingest", "ours, theirs"), true},
		"checks alone":         {"", "", token("acme", "ingest", "ours") + strings.Replace(token("beta", "check", ""), ", sources: []", "", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := "http: {}" + c.theirs
			if strings.Contains(c.theirs, "http:") {
				theirs = strings.TrimPrefix(c.theirs, ", ")
			}
			main := "sources:\n  ours: {http: {}, entity: id, event_id: e" + c.ours + "}\n  theirs: {" + theirs + ", entity: id, event_id: e}\n" +
				"  local: {file: {path: local.jsonl}, entity: id}\ncustomers: [acme.yaml]\n"
			files := map[string]string{"acme.yaml": "customer: acme\nchecks: {crm: {}}\n", "tokens.yaml": "tokens:\n" + c.tokens}
			load := func(more string) (*config.Config, error) {
				files["weir.yaml"] = main + more
				return assemble.Load(write(t, files), env)
			}
			_, err := load("api: {tokens: tokens.yaml}\n")
			require.Equal(t, c.good, err == nil, "%v", err)
			if !c.good {
				require.ErrorContains(t, err, "would write one another's")
			}
			// As a file that comes while the process runs.
			cfg, err := load("")
			require.NoError(t, err)
			tokens, err := config.ParseTokens([]byte(files["tokens.yaml"]))
			require.NoError(t, err)
			require.Equal(t, c.good, cfg.TenantsApart(tokens) == nil)
		})
	}
}

// Sources with tokens of their own are tenants, too, with a file of tokens and without.
func TestSourcesWithTokensAreTenants(t *testing.T) {
	load := func(ours, theirs string) error {
		_, err := assemble.Load(write(t, map[string]string{
			"weir.yaml": "sources:\n  ours: {http: {token: " + ours + "}, entity: id, event_id: e}\n  theirs: {http: {token: " + theirs + "}, entity: id, event_id: e}\n" +
				"  free: {http: {}, entity: id, event_id: e}\ncustomers: [acme.yaml]\n",
			"acme.yaml": "customer: acme\nchecks: {crm: {}}\n",
		}), env)
		return err
	}
	const one, two = "0123456789abcdef", "fedcba9876543210"
	require.ErrorContains(t, load(one, two), "weir.yaml:3:3: sources.theirs: has its documents where source ours has them, and tenants [source:ours source:theirs] would write one another's")
	require.NoError(t, load(one, one), "one holder")
}
