package config

import (
	"fmt"
	"maps"
	"slices"
)

// defaultTenant is the tenant of sources' own tokens, auth.DefaultTenant.
const defaultTenant = "default"

// writers returns the tenants that may write to each source under a file of
// tokens, by the source's name.
func (c *Config) writers(tokens *TokensFile) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	add := func(source, tenant string) {
		if all[source] == nil {
			all[source] = map[string]bool{}
		}
		all[source][tenant] = true
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		endpoint, posted := s.Endpoint()
		own := !endpoint.Token.IsZero()
		if own {
			add(s.Name, defaultTenant)
		}
		for _, t := range tokens.Tokens {
			imports, ingests := slices.Contains(t.May, "import"), slices.Contains(t.May, "ingest") && posted
			if (imports || ingests) && (slices.Contains(t.Sources, s.Name) || !own && slices.Contains(t.Sources, "*")) {
				add(s.Name, t.Tenant)
			}
		}
	}
	return all
}

// overlap is two sources of different tenants at one place of the merged document.
type overlap struct {
	source, other *Source
	tenants       []string
}

func (o overlap) problem() string {
	return fmt.Sprintf("has its documents where source %s has them, and tenants %v would write one another's", o.other.Name, o.tenants)
}

const wantApart = "a mount of its own for each, or shared: true in both"

// overlaps finds sources that are mounted at one place, or inside one another,
// and that different tenants write to. Tenants that may write to both are meant to.
func (c *Config) overlaps(tokens *TokensFile) (all []overlap) {
	writers := c.writers(tokens)
	for i := range c.Sources {
		for j := range c.Sources[:i] {
			a, b := &c.Sources[i], &c.Sources[j]
			m, n := a.MountPath(), b.MountPath()
			if a.Shared && b.Shared || !begins(m, n) && !begins(n, m) || maps.Equal(writers[a.Name], writers[b.Name]) {
				continue
			}
			if len(writers[a.Name]) > 0 && len(writers[b.Name]) > 0 {
				both := maps.Clone(writers[a.Name])
				maps.Copy(both, writers[b.Name])
				all = append(all, overlap{a, b, slices.Sorted(maps.Keys(both))})
			}
		}
	}
	return all
}

// TenantsApart reports a *Faults if tenants of a file of tokens would write one
// another's documents, since their sources are mounted at one place.
func (c *Config) TenantsApart(tokens *TokensFile) error {
	var faults Faults
	for _, o := range c.overlaps(tokens) {
		faults.add(Fault{File: c.API.Tokens, Line: 1, Column: 1, Path: "tokens", Problem: "source " + o.source.Name + " " + o.problem(), Want: wantApart})
	}
	if len(faults.List) == 0 {
		return nil
	}
	return faults.sorted()
}

// checkTenants reports them where the sources stand. A file of tokens that cannot
// be read is for the start to report.
func (l *loader) checkTenants() {
	if l.confined || l.config.API.Tokens == "" || !l.main.known("api.tokens") {
		return
	}
	tokens, err := LoadTokens(l.config.API.Tokens, nil)
	if err != nil {
		return
	}
	for _, o := range l.config.overlaps(tokens) {
		l.main.faultKey(member("sources", o.source.Name), o.problem(), wantApart)
	}
}
