package config

import (
	"fmt"
	"maps"
	"slices"
)

// Tokens returns the tokens of sources that have one of their own, by the
// source's name.
func (s Sources) Tokens() map[string]string {
	all := map[string]string{}
	for i := range s {
		if e, posted := s[i].Endpoint(); posted && !e.Token.IsZero() {
			all[s[i].Name] = e.Token.Reveal()
		}
	}
	return all
}

// SourceTenants returns the tenant behind each source's own token, by the source's name. Its name
// cannot occur in a file of tokens. Sources with one token are of one tenant, named after the
// first of them.
func SourceTenants(tokens map[string]string) map[string]string {
	first, all := map[string]string{}, map[string]string{}
	for _, source := range slices.Sorted(maps.Keys(tokens)) {
		token := tokens[source]
		if first[token] == "" {
			first[token] = "source:" + source
		}
		all[source] = first[token]
	}
	return all
}

// writers returns the tenants that may write to each source, by the source's name.
// Callers of this machine that need no token count as none: they may write anything.
func (s Sources) writers(tokens *TokensFile) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	add := func(source, tenant string) {
		if all[source] == nil {
			all[source] = map[string]bool{}
		}
		all[source][tenant] = true
	}
	tenants := SourceTenants(s.Tokens())
	for i := range s {
		name := s[i].Name
		tenant, own := tenants[name]
		if own {
			add(name, tenant)
		}
		for _, t := range tokens.Tokens {
			if isPosted(&s[i]) && slices.Contains(t.May, "ingest") && (slices.Contains(t.Sources, name) || !own && slices.Contains(t.Sources, "*")) {
				add(name, t.Tenant)
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
func (s Sources) overlaps(tokens *TokensFile) (all []overlap) {
	writers := s.writers(tokens)
	for i := range s {
		for j := range s[:i] {
			a, b := &s[i], &s[j]
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
	for _, o := range c.Sources.overlaps(tokens) {
		faults.add(Fault{File: c.API.Tokens, Line: 1, Column: 1, Path: "tokens", Problem: "source " + o.source.Name + " " + o.problem(), Want: wantApart})
	}
	if len(faults.List) == 0 {
		return nil
	}
	return faults.sorted()
}

// checkTenants reports overlaps at the sources. The start reports a file of tokens
// that cannot be read.
func (l *loader) checkTenants() {
	tokens := &TokensFile{}
	if l.config.API.Tokens != "" && l.main.known("api.tokens") {
		file, err := LoadTokens(l.config.API.Tokens, nil)
		if err != nil {
			return
		}
		tokens = file
	}
	for _, o := range l.config.Sources.overlaps(tokens) {
		l.main.faultKey(o.source.path(), o.problem(), wantApart)
	}
}
