package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The signal handler of a command that ended waits for the process to end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/seed-86dfc502/weir/cmd/pipeline.(*app).main.func1"), goleak.IgnoreTopFunction("os/signal.loop"))
}

// call runs one command as the program does.
func call(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &app{out: &o, err: &e, env: func(string) (string, bool) { return "", false }}
	status = a.main(t.Context(), args)
	return status, o.String(), e.String()
}

func TestGenerateValidateAndRun(t *testing.T) {
	dir := t.TempDir()
	status, out, errs := call(t, "generate", filepath.Join(dir, "a"), "--events", "300", "--entities", "20", "--customers", "3")
	require.Zero(t, status, errs)
	require.Contains(t, out, "300 events")
	status, _, errs = call(t, "generate", filepath.Join(dir, "b"), "--events", "300", "--entities", "20", "--customers", "3", "--json")
	require.Zero(t, status, errs)
	for _, f := range []string{"registry.jsonl", "lab.jsonl", "market.jsonl", "weir.yaml", "customers/customer-03.yaml"} {
		a, err := os.ReadFile(filepath.Join(dir, "a", f))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(dir, "b", f))
		require.NoError(t, err)
		require.Equal(t, string(a), string(b), "the same seed makes the same bytes")
	}
	main := filepath.Join(dir, "a", "weir.yaml")
	status, out, errs = call(t, "validate", "-c", main)
	require.Zero(t, status, errs)
	require.Contains(t, out, "3 services")
	require.NoDirExists(t, filepath.Join(dir, "a", "data"), "validate leaves nothing behind")

	status, out, errs = call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	require.Contains(t, out, "300 events read")
	require.Contains(t, out, "customer-03")
	require.NotContains(t, out, "\x1b", "no terminal, no control characters")
	status, out, _ = call(t, "dlq", "list", "-c", main)
	require.Zero(t, status)
	require.Equal(t, "no dead letters\n", out)
	status, out, _ = call(t, "dlq", "list", "-c", main, "--json")
	require.Zero(t, status)
	require.Equal(t, "[]\n", out)
	status, _, errs = call(t, "dlq", "show", "-c", main, "17")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, "no dead letter 17")
	status, out, errs = call(t, "migrate", "-c", main, "--json")
	require.Zero(t, status, errs)
	require.JSONEq(t, `{"current":true}`, out)
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{
		"no-such-command", "run --no-such-flag", "run extra", "run -c missing.yaml", "generate", "generate x --events 0",
		"dlq show", "dlq show zero", "dlq show -1", "test --run (", "validate --config",
	} {
		status, out, errs := call(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, status, args)
		require.Empty(t, out, args)
		require.NotEmpty(t, errs, args)
	}
	status, out, _ := call(t)
	require.Zero(t, status)
	require.Contains(t, out, "Usage:")
}

func TestFaultsAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte("sources: {a: {}}\ncustomers: []\n"), 0o644))
	status, out, _ := call(t, "validate", "-c", file, "--json")
	require.Equal(t, exitUsage, status)
	var answer struct {
		Faults []struct {
			File, Problem string
			Line          int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &answer), out)
	require.Len(t, answer.Faults, 3)
	require.Equal(t, file, answer.Faults[0].File)
	require.Equal(t, 1, answer.Faults[0].Line)
}

func TestRoles(t *testing.T) {
	r, err := parseRoles("ingest, deliver")
	require.NoError(t, err)
	require.True(t, r.Ingest && r.Deliver && !r.Decide)
	_, err = parseRoles("ingest,")
	require.Error(t, err)
}
