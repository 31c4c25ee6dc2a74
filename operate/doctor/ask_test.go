package doctor

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/stretchr/testify/require"
)

// advised answers, with an advice.
type advised struct{ config.SourceConfig }

func (advised) Ask(context.Context, func(config.Cluster) (transport.Config, error)) error {
	return &reach.Advice{Why: "the slot is not copied", Do: "alter it"}
}

// A source that answers with an advice is reachable and has a warning.
func TestAdviceOfASource(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte("sources:\n  there: {file: {path: there.jsonl}, entity: id}\ncustomers: [acme.yaml]\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), []byte("customer: acme\nprojections:\n  p:\n    fields: {id: id}\n    deliver: {out: {file: {path: out.jsonl}}}\n"), 0o600))
	c, err := assemble.Load(file, os.LookupEnv)
	require.NoError(t, err)
	c.Sources[0].Input = advised{c.Sources[0].Input}
	require.Empty(t, Unreachable(t.Context(), c))
	require.Contains(t, Examine(t.Context(), c, Options{}),
		operate.Item{What: "source there", Level: operate.LevelDegraded, Why: "the slot is not copied", Do: "alter it"})
}

// A valid configuration may name files and servers that are not there: each has its remedy, and
// a check that leaves something open says so.
func TestAskingChangesNothing(t *testing.T) {
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
	failed := map[string]error{}
	for _, a := range askAll(t.Context(), c) {
		if a.err == nil {
			answered = append(answered, a.what)
		} else {
			failed[a.what] = a.err
			require.NotContains(t, a.err.Error(), "hunter2")
			require.NotEmpty(t, remedy.Of(a.what, a.err))
		}
	}
	require.Equal(t, []string{"store", "source there", "acme/p@hook", "acme/p@out"}, answered)
	require.Len(t, failed, 7)
	const start = "start it, or correct its host and port"
	for what, want := range map[string][2]string{
		"gate": {"refused", start}, "source missing": {"no such file", "create the file, or correct its path"},
		"acme/p@gone": {"refused", start}, "acme/p@table": {"refused", start}, "acme/p@columns": {"refused", start},
		"acme/p@topic": {"refused", start}, "acme/p@blocked": {"not a directory", "correct the path"},
	} {
		require.ErrorContains(t, failed[what], want[0], what)
		require.Contains(t, remedy.Of(what, failed[what]), want[1], what)
	}
	level, text := said(t, Examine(t.Context(), c, Options{}), "acme/p@hook")
	require.Equal(t, operate.LevelOK, level)
	require.Contains(t, text, "its path, secret and headers are not checked, since a request may have an effect")
	require.Zero(t, requests, "a webhook gets no request")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "nothing is made")
}
