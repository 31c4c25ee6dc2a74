package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate/imports"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// I12: a command that imports a long file while another configuration becomes active
// ingests no more of it. When its own is active again, the same command continues.
func TestImportsWhileAnotherConfigurationBecomesActive(t *testing.T) {
	dir := t.TempDir()
	load := func(name, more string) *config.Config {
		for file, text := range map[string]string{
			name:        "data_dir: .\nsources:\n  lab: {http: {token: 0123456789abcdef}, entity: id}\n" + more + "customers: [acme.yaml]\n",
			"acme.yaml": "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {f: {file: {path: out.jsonl}}}}}\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		c, err := assemble.Load(filepath.Join(dir, name), os.LookupEnv)
		require.NoError(t, err)
		return c
	}
	own, other := load("own.yaml", ""), load("other.yaml", "  desk: {http: {token: 0123456789abcdef}, entity: id}\n")
	options := Options{Config: own, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}
	p, err := Open(t.Context(), options)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	opened, err := session.Open(t.Context(), own, options.Logger)
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Close()) }()
	slow := &heldLogs{Logs: opened.Logs, began: make(chan struct{}, 2), goOn: make(chan struct{})}
	opened.Logs = slow
	desk, err := imports.NewDesk(opened, own.Sources.Find("lab"))
	require.NoError(t, err)
	activate := func(c *config.Config) {
		_, err := opened.Store.Activate(t.Context(), c.Identity(), true, store.Inbox{}, nil)
		require.NoError(t, err)
	}
	var rows strings.Builder
	for n := range 3 { // in two batches
		fmt.Fprintf(&rows, "{\"id\":\"e-%d\",\"pad\":%q}\n", n, strings.Repeat("x", 150<<10))
	}
	run := func() (imports.Import, error) {
		file := imports.File{Tenant: "default", Source: "lab", Format: imports.JSONL, SHA256: sha256.Sum256([]byte(rows.String())), MaxRow: 1 << 20}
		return imports.Run(t.Context(), file, strings.NewReader(rows.String()), desk.Ingest)
	}
	ran := make(chan error, 1)
	go func() {
		_, err := run()
		ran <- err
	}()
	<-slow.began
	activate(other)
	close(slow.goOn)
	require.ErrorIs(t, <-ran, session.ErrNotActive)
	activate(own)
	i, err := run()
	require.NoError(t, err)
	require.EqualValues(t, 3, i.Accepted)
}

// heldLogs keep appends until they are let go on.
type heldLogs struct {
	assemble.Logs
	began, goOn chan struct{}
}

func (l *heldLogs) Append(ctx context.Context, records []transport.Record) error {
	l.began <- struct{}{}
	<-l.goOn
	return l.Logs.Append(ctx, records)
}
