package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
)

// A paused service gets nothing, and status says who paused it and how to resume it. After
// resuming it gets its pending changes. The audit has both.
func TestPauseAndResume(t *testing.T) {
	dir, main := banana(t)
	change(t, main, `listen: "127.0.0.1:0"`, `listen: "off"`)
	said := func(want int, args ...string) string {
		t.Helper()
		status, out, errs := call(t, append(args, "-c", main)...)
		require.Equal(t, want, status, "%s%s", out, errs)
		return out + errs
	}
	const service = "zest/catalogue@archive"
	require.Contains(t, said(exitFailed, "pause", service), "nothing has run with this configuration yet")
	said(exitOK, "migrate")
	require.Contains(t, said(exitOK, "resume", service), "was not paused by an operator")
	require.Contains(t, said(exitOK, "pause", service, "--reason", "they move"), service+" is paused")
	require.Contains(t, said(exitOK, "pause", service, "--reason", "again"), "was paused already, since")
	require.Contains(t, said(exitUsage, "pause", "zest/catalogue"), "has no service zest/catalogue\nhint: did you mean "+service+"?")
	require.Contains(t, said(exitFailed, "resume", "--now", service), "is paused by")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var printed log
	process := &app{console: console{out: &printed, err: &printed}, env: func(string) (string, bool) { return "", false }}
	ended := make(chan int, 1)
	go func() { ended <- process.main(ctx, []string{"run", "--until-idle", "-c", main}) }()
	require.Eventually(t, func() bool {
		_, out, _ := call(t, "status", "--json", "-c", main)
		var s operate.Status
		return json.Unmarshal([]byte(out), &s) == nil && len(s.Items) > 0 && s.Items[0].What == service && s.Items[0].Queued > 0
	}, 3*time.Minute, 20*time.Millisecond)
	stop()
	require.Equal(t, exitLeft, <-ended, printed.String())
	require.NoFileExists(t, filepath.Join(dir, "out", "zest_catalogue.jsonl"))
	out := said(exitFailed, "status")
	require.Regexp(t, `^down  no process runs: none reported to the store within a minute, and admin.listen is off, since .*\n    do: weir run -c .* starts one\n    process .* \(ingest,work\): stopped, \w+ ago\n    last decision: 20.*\)\n`, out)
	require.Regexp(t, `degraded  `+service+`, at most \d+ queued, (the oldest for \d+m?\d*s, )?since .*\n    why: paused by .*: they move\n    do: .*weir resume `+service, out)

	var s operate.Status
	require.NoError(t, json.Unmarshal([]byte(said(exitFailed, "status", "--json")), &s))
	require.Positive(t, s.Items[0].Queued)
	var did pausedJSON
	require.NoError(t, json.Unmarshal([]byte(said(exitOK, "resume", service, "--json")), &did))
	require.Equal(t, pausedJSON{Service: service, Changed: true}, did)
	said(exitOK, "run", "--until-idle")
	require.FileExists(t, filepath.Join(dir, "out", "zest_catalogue.jsonl"))
	require.Contains(t, said(exitFailed, "resume", "--now", service), "the operators' listener is off")
	audit := said(exitOK, "audit")
	require.Equal(t, 2, strings.Count(audit, "  pause "), audit)
	require.Contains(t, audit, "they move")
}

func TestPauseKnowsServices(t *testing.T) {
	main := filepath.Join("..", "..", "examples", "banana", "weir.yaml")
	_, out, _ := call(t, "__complete", "pause", "-c", main, "zest")
	require.Contains(t, out, "zest/catalogue@archive\n")
	_, out, _ = call(t, "__complete", "resume", "-c", main, "zest/catalogue@archive", "")
	require.NotContains(t, out, "@archive")
}
