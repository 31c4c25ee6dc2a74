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

const sinksFile = `
customer: acme
projections:
  all:
    fields: {id: id, name: name}
    deliver:
      archive: {file: {path: out/acme.jsonl}}
      hook: {webhook: {url: "https://${USER}:${PASSWORD}@acme.example/in?token=${PASSWORD}", secret: "${HOOK}", headers: {x-key: "${PASSWORD}"}}}
      topic: {kafka: {brokers: ["a:9092", "b:9092"], tls: {}, topic: acme, sasl: {mechanism: plain, username: user, password: "${PASSWORD}"}}}
      rows: {clickhouse: {url: "clickhouse://${USER}:${PASSWORD}@ch.example:9000/shop?secure=true&password=${PASSWORD}", table: acme, columns: {id: String, more: {type: String, path: id}}}}
      table: {postgres: {url: "postgres://${USER}:${PASSWORD}@one:5432,two:5432/shop?search_path=acme&sslmode=verify-full", table: acme, mode: append, retention: 30d}}
      plain: {postgres: {url: "host=db.example user=${USER} password='${PASSWORD}' dbname=shop sslmode=verify-full", table: acme}}
checks:
  crm: {numbers: literal}
`

// sinksOf loads a configuration whose secrets have a value.
func sinksOf(t *testing.T, customer, secret string) *config.Config {
	t.Helper()
	main := "sources: {events: {file: {path: e.jsonl}, entity: id}}\ncustomers: [\"customers/*.yaml\"]\ncustomers_env: [HOOK, USER, PASSWORD]\n"
	c, err := assemble.Load(write(t, map[string]string{"weir.yaml": main, "customers/acme.yaml": customer}), func(name string) (string, bool) {
		if name == "HOOK" {
			return "whsec_" + strings.Repeat(secret[:4], 8), true
		}
		return secret + name, true
	})
	require.NoError(t, err)
	return c
}

// A change of the customer's side is another revision, so that a process with the old
// settings is fenced. Entities are evaluated as they were.
func TestIdentityMoves(t *testing.T) {
	first := sinksOf(t, sinksFile, "hunter2")
	seen := map[string]string{string(first.Identity()): "as it was"}
	for _, change := range []struct{ name, old, new string }{
		{"file's path", "out/acme.jsonl", "out/other.jsonl"},
		{"webhook's host", "acme.example/in", "other.example/in"},
		{"webhook's path", "acme.example/in", "acme.example/other"},
		{"webhook's scheme", `url: "https://`, `insecure: true, url: "http://`},
		{"webhook's kind", `{x-key: "${PASSWORD}"}}}`, `{x-key: "${PASSWORD}"}}, kind: log}`},
		{"topic", "topic: acme,", "topic: other,"},
		{"brokers", "a:9092", "c:9092"},
		{"tombstones", "topic: acme,", "topic: acme, tombstones: true,"},
		{"clickhouse's database", "9000/shop", "9000/other"},
		{"clickhouse's table", "table: acme, columns", "table: other, columns"},
		{"a column", "more: {type", "other: {type"},
		{"a column's type", "type: String", "type: LowCardinality(String)"},
		{"a column's path", "path: id}", "path: name}"},
		{"postgres' hosts", "two:5432", "three:5432"},
		{"postgres' schema", "search_path=acme", "search_path=other"},
		{"postgres' mode", "mode: append, retention: 30d", "mode: upsert"},
		{"retention", "30d", "31d"},
		{"host in a connection string", "host=db.example", "host=other.example"},
		{"database in a connection string", "dbname=shop", "dbname=other"},
		{"kind", "{file: {path: out/acme.jsonl}}", "{file: {path: out/acme.jsonl}, kind: state}"},
		{"check's numbers", "numbers: literal", "numbers: decimal"},
		{"check's name", "crm:", "erp:"},
	} {
		c := sinksOf(t, replaced(t, sinksFile, change.old, change.new), "hunter2")
		identity := string(c.Identity())
		require.NotContains(t, seen, identity, "%s is like %s", change.name, seen[identity])
		seen[identity] = change.name
		require.Equal(t, first.Fingerprint(), c.Fingerprint(), change.name)
		require.True(t, first.DecidesLike(c.Identity()), change.name)
	}
}

// Nothing of a secret is in it, and what only tunes asks for no new revision.
func TestIdentityStays(t *testing.T) {
	want := sinksOf(t, sinksFile, "hunter2").Identity()
	require.Equal(t, want, sinksOf(t, sinksFile, "other123").Identity(), "secrets")
	for name, change := range map[string][2]string{
		"retry":          {"{file: {path: out/acme.jsonl}}", "{file: {path: out/acme.jsonl}, retry: {for: 3h, min_backoff: 1s}}"},
		"batches":        {"table: acme, columns", "max_batch: 7, linger: 1s, partition_by: entity, table: acme, columns"},
		"webhook":        {`secret: "${HOOK}"`, `timeout: 3s, concurrency: 2, insecure: true, secret: "${HOOK}"`},
		"tls":            {"sslmode=verify-full\"", "sslmode=disable\", insecure: true"},
		"create":         {"mode: append", "mode: append, create: false"},
		"order":          {`brokers: ["a:9092", "b:9092"]`, `brokers: ["b:9092", "a:9092"]`},
		"columns' order": {"{id: String, more: {type: String, path: id}}", "{more: {type: String, path: id}, id: String}"},
		"host's case":    {"acme.example/in", "ACME.example/in"},
	} {
		require.Equal(t, want, sinksOf(t, replaced(t, sinksFile, change[0], change[1]), "hunter2").Identity(), name)
	}
}

// Files that move with the configuration's folder are the same targets, those
// elsewhere are known by where they are.
func TestIdentityOfFiles(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "acme.jsonl")
	one := sinksOf(t, replaced(t, sinksFile, "out/acme.jsonl", elsewhere), "hunter2").Identity()
	require.Equal(t, one, sinksOf(t, replaced(t, sinksFile, "out/acme.jsonl", elsewhere), "hunter2").Identity())
	require.NotEqual(t, one, sinksOf(t, replaced(t, sinksFile, "out/acme.jsonl", elsewhere+"2"), "hunter2").Identity())
	// A relative name of the main file is that of the same file.
	path := write(t, map[string]string{"weir.yaml": mainFile, "customers/acme.yaml": acmeFile})
	absolute, err := assemble.Load(path, secrets("hunter2aa"))
	require.NoError(t, err)
	t.Chdir(filepath.Dir(path))
	relative, err := assemble.Load("weir.yaml", os.LookupEnv, config.AllowUnsetEnv())
	require.NoError(t, err)
	require.Equal(t, absolute.Identity(), relative.Identity())
}

// A revision's decisions are known by the fingerprint that its identity begins with.
func TestDecidesLike(t *testing.T) {
	c := sinksOf(t, sinksFile, "hunter2")
	other := c.Identity()
	require.True(t, c.DecidesLike(other))
	other[31]++
	require.False(t, c.DecidesLike(other))
	require.False(t, c.DecidesLike(nil))
}
