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

func TestWarnings(t *testing.T) {
	token := func(id, more string) string {
		return "  - {id: " + id + ", hash: \"sha256:" + strings.Repeat("0", 64) + "\", tenant: acme, may: [check]" + more + "}\n"
	}
	main := write(t, map[string]string{
		"weir.yaml": `
sources: {lab: {file: {path: lab.jsonl}, entity: id}}
customers: [acme.yaml]
admin: {tls: {cert: cert.pem, key: admin.key}}
api: {tokens: tokens.yaml, tls: {cert: cert.pem, key: own.key}}
gate: {valkey: {address: "valkey:6379", tls: {cert: cert.pem, key: missing.key}}}
`,
		"acme.yaml": "customer: acme\nprojections: {a: {fields: {id: id}, deliver: {k: {kafka: {brokers: [\"k:1\"], topic: t, tls: {cert: cert.pem, key: admin.key}}}}}}\n",
		"admin.key": "", "own.key": "", "cert.pem": "",
		"tokens.yaml": "tokens:\n" + token("endless", "") + token("bounded", `, expires: "2100-01-01T00:00:00Z"`) + token("over", `, expires: "2020-01-01T00:00:00Z"`),
	})
	at := func(name string) string { return filepath.Join(filepath.Dir(main), name) }
	require.NoError(t, os.Chmod(at("own.key"), 0o640))
	c, err := assemble.Load(main, env, config.AllowUnsetEnv())
	require.NoError(t, err)
	all := c.Warnings()
	require.Len(t, all, 3, "one for a file, however often it is named: %v", all)
	require.Contains(t, all[0], at("admin.key"))
	require.Equal(t, []string{"tokens that never expire: endless", "tokens that have expired: over"}, all[1:])
	require.NoError(t, os.Chmod(at("admin.key"), 0o600))
	require.Len(t, c.Warnings(), 2)
}

// A source of Debezium that says nothing of what its table logs is noted.
func TestNotes(t *testing.T) {
	debezium := "lab: {file: {path: lab.jsonl}, entity: id, format: debezium"
	main := replaced(t, mainFile, "lab: {file: {path: lab.jsonl}, entity: id, mode: patch, mount: lab", debezium)
	notes := load(t, main, acmeFile).Notes()
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "REPLICA IDENTITY FULL")
	require.Contains(t, notes[0], ": lab. weir doctor")
	flattened := "lab: {file: {path: lab.jsonl}, entity: payload.id, operation: payload.__deleted"
	require.Len(t, load(t, replaced(t, main, debezium, flattened), acmeFile).Notes(), 1)
	for _, known := range []string{"row_image: full", "unchanged_as_null: [totals]"} {
		require.Empty(t, load(t, replaced(t, main, debezium, debezium+", "+known), acmeFile).Notes(), known)
	}
	require.Empty(t, load(t, mainFile, acmeFile).Notes())
}
