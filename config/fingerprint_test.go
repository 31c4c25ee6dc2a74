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

const mainFile = `
store: {postgres: {url: "${STORE}"}}
kafka: {brokers: ["127.0.0.1:9092"]}
sources:
  registry:
    file: {path: registry.jsonl}
    entity: id
    event_id: meta.id
    strip: [updated_at, "**.trace_id"]
  lab: {file: {path: lab.jsonl}, entity: id, mode: patch, mount: lab}
merge: {precedence: [registry, lab], required: [registry]}
customers: ["customers/*.yaml"]
customers_env: [HOOK, USER, PASSWORD]
`

const acmeFile = `
customer: acme
projections:
  ripeness:
    when: doc.origin == "EC"
    fields:
      banana_id: id
      kind: {const: {a: 1, b: [2]}}
      tags: {path: tags, each: {name: name, rank: rank}}
      weight: {path: weight, default: 0}
    deliver:
      archive: {file: {path: out/acme.jsonl}}
      hook: {webhook: {url: "https://acme.example/", secret: "${HOOK}"}}
`

// write makes a configuration of the files and returns the main one.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return filepath.Join(dir, "weir.yaml")
}

func secrets(text string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		switch name {
		case "STORE":
			return "postgres://weir:" + text + "@db.example/weir?sslmode=verify-full", true
		case "HOOK":
			return "whsec_" + strings.Repeat(text[:4], 8), true
		}
		return "", false
	}
}

func load(t *testing.T, main, customer string) *config.Config {
	t.Helper()
	c, err := assemble.Load(write(t, map[string]string{"weir.yaml": main, "customers/acme.yaml": customer}), secrets("hunter2aa"))
	require.NoError(t, err)
	return c
}

// replaced changes a text, and fails if it is not there.
func replaced(t *testing.T, text, old, new string) string {
	t.Helper()
	require.Contains(t, text, old)
	return strings.ReplaceAll(text, old, new)
}

// A fingerprint that moves for nothing evaluates every entity again.
func TestFingerprintStays(t *testing.T) {
	want := load(t, mainFile, acmeFile).Fingerprint()
	for name, change := range map[string][2]func(string) string{
		"comments":     {func(s string) string { return "# words\n" + s }, nil},
		"sink's place": {nil, func(s string) string { return replaced(t, s, "out/acme.jsonl", "elsewhere.jsonl") }},
		"sink's URL":   {nil, func(s string) string { return replaced(t, s, "acme.example", "other.example") }},
		"retry": {nil, func(s string) string {
			return replaced(t, s, "{file: {path: out/acme.jsonl}}", "{file: {path: out/acme.jsonl}, retry: {for: 3h}}")
		}},
		"source's place": {func(s string) string { return replaced(t, s, "lab.jsonl", "other.jsonl") }, nil},
		"order of patterns": {func(s string) string {
			return replaced(t, s, `[updated_at, "**.trace_id"]`, `["**.trace_id", updated_at, updated_at]`)
		}, nil},
		"default spelt out": {func(s string) string {
			return replaced(t, s, "    entity: id\n", "    entity: id\n    mode: replace\n")
		}, nil},
		"tuning": {func(s string) string { return s + "limits: {memory: 300MiB}\nlog: {level: debug}\n" }, nil},
		"order of fields": {nil, func(s string) string {
			s = replaced(t, s, "      banana_id: id\n", "")
			return replaced(t, s, "    deliver:", "      banana_id: id\n    deliver:")
		}},
		"order in a constant":     {nil, func(s string) string { return replaced(t, s, "{a: 1, b: [2]}", "{b: [2], a: 1}") }},
		"order inside an element": {nil, func(s string) string { return replaced(t, s, "{name: name, rank: rank}", "{rank: rank, name: name}") }},
	} {
		t.Run(name, func(t *testing.T) {
			main, customer := mainFile, acmeFile
			if change[0] != nil {
				main = change[0](main)
			}
			if change[1] != nil {
				customer = change[1](customer)
			}
			require.Equal(t, want, load(t, main, customer).Fingerprint())
		})
	}
	t.Run("secrets", func(t *testing.T) {
		c, err := assemble.Load(write(t, map[string]string{"weir.yaml": mainFile, "customers/acme.yaml": acmeFile}), secrets("other123"))
		require.NoError(t, err)
		require.Equal(t, want, c.Fingerprint())
	})
	t.Run("layout of files", func(t *testing.T) {
		c, err := assemble.Load(write(t, map[string]string{
			"weir.yaml":   replaced(t, mainFile, "customers/*.yaml", "a/b/*.yaml"),
			"a/b/zz.yaml": acmeFile,
		}), secrets("hunter2aa"))
		require.NoError(t, err)
		require.Equal(t, want, c.Fingerprint())
	})
	t.Run("order of sources with a precedence", func(t *testing.T) {
		lab := "  lab: {file: {path: lab.jsonl}, entity: id, mode: patch, mount: lab}\n"
		main := replaced(t, replaced(t, mainFile, lab, ""), "sources:\n", "sources:\n"+lab)
		require.Equal(t, want, load(t, main, acmeFile).Fingerprint())
	})
}

// A fingerprint that stays although decisions change prunes effective changes.
func TestFingerprintMoves(t *testing.T) {
	seen := map[[32]byte]string{load(t, mainFile, acmeFile).Fingerprint(): "as it was"}
	for _, change := range []struct{ name, main, customer string }{
		{"strip", replaced(t, mainFile, "updated_at", "created_at"), acmeFile},
		{"mode", replaced(t, mainFile, "mode: patch", "mode: replace"), acmeFile},
		{"mount", replaced(t, mainFile, "mount: lab", "mount: laboratory"), acmeFile},
		{"precedence", replaced(t, mainFile, "[registry, lab]", "[lab, registry]"), acmeFile},
		{"required", replaced(t, mainFile, "required: [registry]", "required: [lab]"), acmeFile},
		{"event id", replaced(t, mainFile, "meta.id", "meta.event"), acmeFile},
		{"entity", replaced(t, mainFile, "entity: id\n", "entity: key_id\n"), acmeFile},
		{"format", replaced(t, mainFile, "path: lab.jsonl}, entity: id, mode: patch", "path: lab.jsonl}, entity: id, format: debezium"), acmeFile},
		{"row image", replaced(t, mainFile, "path: lab.jsonl}, entity: id, mode: patch", "path: lab.jsonl}, entity: id, format: debezium, row_image: full"), acmeFile},
		{"unchanged as null", replaced(t, mainFile, "path: lab.jsonl}, entity: id, mode: patch", "path: lab.jsonl}, entity: id, format: debezium, unchanged_as_null: [a]"), acmeFile},
		{"placeholder", replaced(t, mainFile, "path: lab.jsonl}, entity: id, mode: patch", "path: lab.jsonl}, entity: id, format: debezium, unavailable_value: x"), acmeFile},
		{"filter", mainFile, replaced(t, acmeFile, `"EC"`, `"CO"`)},
		{"path", mainFile, replaced(t, acmeFile, "banana_id: id", "banana_id: key")},
		{"output", mainFile, replaced(t, acmeFile, "banana_id: id", "id: id")},
		{"constant", mainFile, replaced(t, acmeFile, "a: 1", "a: 1.0")},
		{"default", mainFile, replaced(t, acmeFile, "default: 0", "default: null")},
		{"element", mainFile, replaced(t, acmeFile, "rank: rank", "rank: order")},
		{"numbers", mainFile, replaced(t, acmeFile, "    fields:", "    numbers: decimal\n    fields:")},
		{"omit_empty", mainFile, replaced(t, acmeFile, "    fields:", "    omit_empty: true\n    fields:")},
		{"service", mainFile, replaced(t, acmeFile, "archive:", "store:")},
		{"projection's name", mainFile, replaced(t, acmeFile, "ripeness:", "level:")},
		{"customer's name", mainFile, replaced(t, acmeFile, "customer: acme", "customer: zest")},
	} {
		f := load(t, change.main, change.customer).Fingerprint()
		require.NotContains(t, seen, f, "%s is like %s", change.name, seen[f])
		seen[f] = change.name
	}
}
