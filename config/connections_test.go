package config_test

import (
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// One service names the bound of a target, and it holds for the others.
func TestServicesOfATargetAgreeOnConnections(t *testing.T) {
	c := sinksOf(t, `
customer: acme
projections:
  a:
    fields: {id: id}
    deliver:
      one: {postgres: {url: "postgres://a@pg/db?sslmode=verify-full", table: a}}
      two: {postgres: {url: "postgres://a@pg/db?sslmode=verify-full", table: b, max_connections: 20}}
      user: {postgres: {url: "postgres://b@pg/db?sslmode=verify-full", table: c}}
      house: {clickhouse: {url: "https://x@house:8443/db", table: t, max_connections: 3}}
      home: {clickhouse: {url: "https://x@house:8443/db", table: u}}
      hook: {webhook: {url: "https://hooks.example/a", secret: "${HOOK}"}}
      wide: {webhook: {url: "https://hooks.example/b", secret: "${HOOK}", concurrency: 100}}
      narrow: {webhook: {url: "https://hooks.example:444/b", secret: "${HOOK}", concurrency: 100, max_connections: 2}}
      plain: {webhook: {url: "https://other.example/b", secret: "${HOOK}"}}
      private: {webhook: {url: "https://hooks.example/c", secret: "${HOOK}", insecure: true}}
`, "hunter2")
	got := map[string]int{}
	for _, s := range c.Services() {
		_, name, _ := strings.Cut(s.Name, "@")
		if p, ok := s.Delivery.Sink.(config.Pooled); ok {
			got[name] = *p.Connections().Most
		}
	}
	require.Equal(t, map[string]int{
		"one": 20, "two": 20, "user": 8, "house": 3, "home": 3,
		"hook": 100, "wide": 100, "narrow": 2, "plain": 32, "private": 32,
	}, got)
}
