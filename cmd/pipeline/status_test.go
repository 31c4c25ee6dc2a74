package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process that was killed leaves behind how it was reached.
func leftByAKill(t *testing.T, dir, main string, way []byte) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "state.db.control"), way, 0o600))
	_, out, _ := call(t, "status", "-c", main)
	require.Regexp(t, `^down  no process answers: no process listens at .*, since .*\n    do: weir run -c .* starts one\n`, out)
	for _, command := range []string{"reload", "resume --now zest/catalogue@hook"} {
		status, _, errs := call(t, append(strings.Fields(command), "-c", main)...)
		require.Equal(t, exitFailed, status)
		require.Regexp(t, `^error: no process answers: no process listens at .*\nhint: weir run -c .* starts one\n$`, errs)
	}
}

// The status shows that no process runs, whose target is unreachable, and that all is well
// again; so does the exit status.
func TestStatusFromNobodyToWell(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	dir, main := banana(t)
	var away atomic.Bool
	away.Store(true)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer target.Close()
	change(t, filepath.Join(dir, "customers", "zest.yaml"), "archive: {file: {path: ../out/zest_catalogue.jsonl}}", "hook: {webhook: {url: \""+target.URL+"\", secret: whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}, retry: {min_backoff: 100ms, max_backoff: 1s}}")

	status, out, errs := call(t, "status", "-c", main)
	require.Equal(t, exitFailed, status, errs)
	require.Contains(t, out, "nothing has run with this configuration yet")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log bytes.Buffer
	process := &app{console: console{out: &log, err: &log}, env: func(string) (string, bool) { return "", false }}
	ended := make(chan int, 1)
	go func() { ended <- process.execute(ctx, []string{"run", "-c", main}) }()
	ask := func(t *assert.CollectT) (int, operate.Status) {
		var o, e bytes.Buffer
		a := &app{console: console{out: &o, err: &e}, env: func(string) (string, bool) { return "", false }}
		status := a.execute(ctx, []string{"status", "-c", main, "--json"})
		var s operate.Status
		require.NoError(t, json.Unmarshal(o.Bytes(), &s), "%s%s", o.String(), e.String())
		return status, s
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status, s := ask(t)
		require.Equal(t, exitFailed, status)
		require.NotEmpty(t, s.Items)
		i := slices.IndexFunc(s.Items, func(i operate.Item) bool { return i.What == "zest/catalogue@hook" })
		require.GreaterOrEqual(t, i, 0)
		require.Contains(t, s.Items[i].Why, "502")
		require.Positive(t, s.Items[i].Queued)
	}, 3*time.Minute, 100*time.Millisecond)
	status, out, _ = call(t, "status", "-c", main)
	require.Equal(t, exitFailed, status)
	require.Regexp(t, `(?s)^degraded  \d+ problems?\n.*\ndegraded  zest/catalogue@hook, (at most )?\d+ queued, (the oldest for \d+m?\d*s, )?since .*\n    why: .*502.*\n    do: correct what the target's answer names, or ask its operator; retried`, out)

	away.Store(false)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status, s := ask(t)
		require.Zero(t, status)
		require.Equal(t, operate.LevelOK, s.Level)
		require.Empty(t, s.Items, "%+v", s.Items)
	}, 3*time.Minute, 100*time.Millisecond)
	_, out, _ = call(t, "status", "-c", main)
	require.Equal(t, "ok  all is well\n    2 services, nothing is queued\n", out)

	away.Store(true)
	file, err := os.OpenFile(filepath.Join(dir, "events", "registry.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"meta":{"event_id":"late-1","op":"upsert","lsn":999},"banana":{"id":"B-999","origin":"EC"}}` + "\n")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, s := ask(t)
		require.NotEmpty(t, s.Items)
	}, 3*time.Minute, 100*time.Millisecond)
	way, err := os.ReadFile(filepath.Join(dir, "data", "state.db.control"))
	require.NoError(t, err)
	stop()
	require.Zero(t, <-ended, log.String())
	status, out, errs = call(t, "status", "-c", main)
	require.Equal(t, exitFailed, status, errs)
	require.Contains(t, out, "down  no process answers: no process runs with this data folder, since ")
	require.Regexp(t, `degraded  zest/catalogue@hook, entity B-999, 1 queued, since .*\n    why: failed \d+ times: .*502`, out)

	leftByAKill(t, dir, main, way)
}

// Something wrong is a status that a script sees, with the remedy in the output.
func TestDoctor(t *testing.T) {
	dir, main := banana(t)
	status, out, errs := call(t, "doctor", "-c", main)
	require.Zero(t, status, errs)
	require.Contains(t, out, "ok        source registry: it answers, or is there\n")
	require.NoDirExists(t, filepath.Join(dir, "data"), "nothing is made")
	require.NoError(t, os.Remove(filepath.Join(dir, "events", "lab.jsonl")))
	status, out, errs = call(t, "doctor", "-c", main)
	require.Equal(t, exitFailed, status)
	require.Regexp(t, `(?m)^down      source lab: .*no such file.*\n          do: create the file`, out)
	require.Equal(t, "error: 1 fault\n", errs)
	_, out, _ = call(t, "doctor", "-c", main, "--json")
	var findings []struct{ What, Level, Why, Do string }
	require.NoError(t, json.Unmarshal([]byte(out), &findings))
	require.NotEmpty(t, findings)
}
