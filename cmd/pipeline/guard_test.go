package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// A source that deletes everything is held at the limit; guard show names it, with the
// documents before; release sends the rest. The audit has hold and release.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "weir.yaml")
	events := filepath.Join(dir, "events.jsonl")
	put := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	put(main, "data_dir: data\nadmin: {listen: \"127.0.0.1:0\"}\nsources:\n  shop: {file: {path: events.jsonl}, entity: id, operation: op}\ncustomers: [acme.yaml]\n")
	put(filepath.Join(dir, "acme.yaml"), "customer: acme\nguard: {min: 10}\nprojections:\n  all:\n    fields: {id: id, price: price}\n    deliver:\n      out: {file: {path: out.jsonl}}\n")
	event := func(op string) {
		var all strings.Builder
		for i := range 100 {
			fmt.Fprintf(&all, `{"id":"e%d","op":%q,"price":%d}`+"\n", i, op, i)
		}
		put(events, all.String())
	}
	said := func(want int, args ...string) string {
		t.Helper()
		status, out, errs := call(t, append(args, "-c", main)...)
		require.Equal(t, want, status, "%s%s", out, errs)
		return out + errs
	}
	lines := func() int {
		text, err := os.ReadFile(filepath.Join(dir, "out.jsonl"))
		require.NoError(t, err)
		return strings.Count(string(text), "\n")
	}
	const service = "acme/all@out"
	event("upsert")
	said(exitOK, "run", "--until-idle")
	require.Equal(t, 100, lines())
	require.Contains(t, said(exitOK, "guard", "show"), "the guard holds no service")
	require.Contains(t, said(exitUsage, "guard", "release", service), "the guard does not hold "+service)

	harness.Project{T: t, Dir: dir}.Age()
	event("delete")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var printed log
	process := &app{console: console{out: &printed, err: &printed}, env: func(string) (string, bool) { return "", false }}
	ended := make(chan int, 1)
	go func() { ended <- process.main(ctx, []string{"run", "--until-idle", "-c", main}) }()
	require.Eventually(t, func() bool {
		_, out, _ := call(t, "guard", "show", "--json", "-c", main)
		var held []operate.Held
		return json.Unmarshal([]byte(out), &held) == nil && len(held) == 1 && lines() == 110
	}, 3*time.Minute, 20*time.Millisecond)
	// The process has the logs open, and shows the samples itself.
	require.Contains(t, said(exitOK, "guard", "show", service), "retracted:\n")
	status, out, errs := call(t, "status", "--json", "-c", main)
	require.Equal(t, exitFailed, status, errs)
	var seen operate.Status
	require.NoError(t, json.Unmarshal([]byte(out), &seen))
	require.NotNil(t, seen.Items[0].Hold, out)
	require.Len(t, seen.Items[0].Hold.Groups[0].Samples, 10)
	stop()
	require.Equal(t, exitLeft, <-ended, printed.String())
	require.Equal(t, 110, lines())
	require.Contains(t, said(exitFailed, "status"), "held by the guard: more than 10 of 100 entities would be retracted within 10m0s")
	require.Contains(t, said(exitFailed, "resume", service), "the guard holds "+service)
	var held operate.Held
	require.NoError(t, json.Unmarshal([]byte(said(exitOK, "guard", "show", service, "--json")), &held))
	require.Contains(t, []int64{90, 100}, held.Changes, "the stop may be ahead of the position of the ten that passed")
	require.Len(t, held.Groups, 1)
	require.Len(t, held.Groups[0].Samples, 10)
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"price":%s}`, held.Groups[0].Samples[0].Entity, held.Groups[0].Samples[0].Entity[1:]), string(held.Groups[0].Samples[0].Before))

	require.Contains(t, said(exitOK, "guard", "release", service, "--reason", "the shop closed"), service+" is released")
	said(exitOK, "run", "--until-idle")
	require.Equal(t, 200, lines())
	audit := said(exitOK, "audit")
	require.Contains(t, audit, "guard release")
	require.Contains(t, audit, "the shop closed")
	require.Contains(t, audit, " hold ")
}
