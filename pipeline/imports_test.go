package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// I12: a command that works off a long import while another configuration becomes
// active takes no more of it apart in its own way, and does not end the import of a
// source that only the other one has. When its own is active again, it goes on.
func TestImportsWhileAnotherConfigurationBecomesActive(t *testing.T) {
	dir := t.TempDir()
	load := func(name, more string) *config.Config {
		for file, text := range map[string]string{
			name:        "store: {sqlite: {path: state.db}}\nsources:\n  lab: {http: {token: 0123456789abcdef}, entity: id}\n" + more + "customers: [acme.yaml]\n",
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
	tools := stageOf(opened)
	slow := &heldLogs{Logs: tools.logs, began: make(chan struct{}, 2), goOn: make(chan struct{})}
	tools.logs = slow
	workers, err := (&importStage{stageOptions: tools, metrics: imports.NewMetrics(prometheus.NewRegistry())}).newWorkers(1, nil)
	require.NoError(t, err)

	activate := func(c *config.Config) {
		_, err := tools.store.Activate(t.Context(), c.Identity(), 0, true)
		require.NoError(t, err)
	}
	file := func(source, text string) store.Import {
		i, _, err := imports.Receive(t.Context(), tools.store, imports.File{
			Tenant: "default", Source: source, Format: imports.JSONL, MaxRow: 1 << 20, MaxSize: 1 << 30,
		}, strings.NewReader(text))
		require.NoError(t, err)
		return i
	}
	found := func(i store.Import) store.Import {
		got, err := tools.store.Import(t.Context(), "default", i.ID)
		require.NoError(t, err)
		return got
	}
	var rows strings.Builder
	for n := range 3 { // in two chunks
		fmt.Fprintf(&rows, "{\"id\":\"e-%d\",\"pad\":%q}\n", n, strings.Repeat("x", 600<<10))
	}
	long := file("lab", rows.String())
	require.EqualValues(t, 2, long.Chunks)

	stepped := make(chan error, 1)
	go func() {
		_, err := workers[0].Step(t.Context())
		stepped <- err
	}()
	<-slow.began
	activate(other)
	second := file("desk", `{"id":"a"}`)
	close(slow.goOn)
	require.ErrorIs(t, <-stepped, store.ErrSuperseded)
	_, err = workers[0].Step(t.Context())
	require.ErrorIs(t, err, store.ErrSuperseded)
	require.EqualValues(t, 1, found(long).Next)
	require.Equal(t, store.ImportQueued, found(second).State, found(second).Failure)

	activate(own)
	for worked := true; worked; {
		worked, err = workers[0].Step(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, store.ImportCounts{Accepted: 3}, found(long).Counts)
	require.Equal(t, "there is no source desk in the active configuration", found(second).Failure)
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
