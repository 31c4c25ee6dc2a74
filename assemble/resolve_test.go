package assemble_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/stretchr/testify/require"
)

// The mistake that this catches: a configuration that is fine, names files and servers
// that are not there, and waits without a word when it is run.
func TestResolveAsksWhatAConfigurationNames(t *testing.T) {
	requests := 0
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	t.Cleanup(hook.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := closed.Addr().String()
	require.NoError(t, closed.Close())

	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("there.jsonl", "")
	write("weir.yaml", `
sources:
  there: {file: {path: there.jsonl}, entity: id}
  missing: {file: {path: missing.jsonl}, entity: id, mount: missing}
customers: [acme.yaml]
gate: {valkey: {address: "`+nobody+`"}}
`)
	const secret = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
	write("acme.yaml", `
customer: acme
projections:
  p:
    fields: {id: id}
    deliver:
      hook: {webhook: {url: "`+hook.URL+`/x", secret: `+secret+`}}
      gone: {webhook: {url: "http://`+nobody+`/x", secret: `+secret+`}}
      table: {postgres: {url: "postgres://u:hunter2@`+nobody+`/x", table: t, columns: {id: text}}}
      columns: {clickhouse: {url: "clickhouse://u:hunter2@`+nobody+`/x", table: t, columns: {id: String}}}
      topic: {kafka: {brokers: ["`+nobody+`"], topic: t}}
      out: {file: {path: out/deep/a.jsonl}}
      blocked: {file: {path: there.jsonl/a.jsonl}}
`)
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(t, err)
	var answered []string
	failed := map[string]string{}
	for _, r := range assemble.Resolve(t.Context(), c) {
		if r.Error == "" {
			answered = append(answered, r.What)
		} else {
			failed[r.What] = r.Error
			require.NotContains(t, r.Error, "hunter2")
			require.NotContains(t, r.Error, "\n")
		}
	}
	require.Equal(t, []string{"store", "source there", "acme/p@hook", "acme/p@out"}, answered)
	require.Len(t, failed, 7)
	for what, why := range map[string]string{
		"gate": "refused", "source missing": "no such file", "acme/p@gone": "refused", "acme/p@table": "refused",
		"acme/p@columns": "refused", "acme/p@topic": "refused", "acme/p@blocked": "not a directory",
	} {
		require.Contains(t, failed[what], why, what)
	}
	require.Zero(t, requests, "a webhook gets no request")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "nothing is made")
}
