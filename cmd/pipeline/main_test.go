package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { os.Exit(harness.Ended(m.Run(), left...)) }

// left may stay: the signal handler of a command that ended waits for the process
// to end.
var left = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/seed-86dfc502/weir/cmd/pipeline.(*app).main.func1"), goleak.IgnoreTopFunction("os/signal.loop"),
}

// call runs one command as the program does.
func call(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e log
	a := &app{console: console{out: &o, err: &e}, env: func(string) (string, bool) { return "", false }}
	status = a.main(t.Context(), args)
	return status, o.String(), e.String()
}

func TestWriteADemoValidateAndRun(t *testing.T) {
	dir := t.TempDir()
	status, out, errs := call(t, "demo", "--write", filepath.Join(dir, "a"), "--events", "300", "--entities", "20", "--customers", "3")
	require.Zero(t, status, errs)
	require.Contains(t, out, "300 events")
	status, _, errs = call(t, "demo", "--write", filepath.Join(dir, "b"), "--events", "300", "--entities", "20", "--customers", "3")
	require.Zero(t, status, errs)
	status, _, errs = call(t, "demo", "--write", filepath.Join(dir, "b"), "--events", "1")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, "is not empty")
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
	status, _, errs = call(t, "dlq", "list", "-c", main, "17")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, "no dead letter 17")
	status, out, errs = call(t, "migrate", "-c", main, "--json")
	require.Zero(t, status, errs)
	require.JSONEq(t, `{"current":true}`, out)
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{
		"no-such-command", "run --no-such-flag", "run extra", "run -c missing.yaml", "demo --write x --events 0",
		"dlq list zero", "dlq list -1", "test --run (", "validate --config",
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

// What can be told from the command line alone is told before anything is opened.
func TestOperatorsUsage(t *testing.T) {
	main := filepath.Join("..", "..", "examples", "banana", "weir.yaml")
	for line, want := range map[string]string{
		"replay":                               "say which entities",
		"replay --all --outdated":              "exactly one way",
		"replay a --since 1h":                  "exactly one way",
		"replay --outdated --customer acme":    "as a whole",
		"replay --customer nobody":             "--customer nobody",
		"replay --service acme/ripeness":       "--service acme/ripeness",
		"replay --all --rate fast":             "--rate fast",
		"replay --all --rate 0":                "--rate 0",
		"replay --all --rate 5/m":              "--rate 5/m",
		"replay --since yesterday":             "--since yesterday",
		"replay --until 1h":                    "--until goes with --since",
		"replay --resume 3":                    "--resume=3",
		"replay --resume=-5":                   "no job's number",
		"replay --resume=0":                    "no job's number",
		"replay --resume --force":              "as it began",
		"replay --resume --customer acme":      "as it began",
		"replay --resume --reason because":     "as it began",
		"replay --resume --all":                "exactly one way",
		"reset --all":                          "--yes",
		"reset":                                "say which entities",
		"reset --customer nobody":              "none of that name",
		"import x.csv --source lap":            "did you mean lab?",
		"reset --entities - ":                  "--yes",
		"reset --yes":                          "say which entities",
		"dlq replay":                           "--all",
		"dlq replay 1 --all":                   "--all",
		"dlq replay 1 --code bad_json":         "--all",
		"dlq replay --all":                     "--yes",
		"dlq replay --all --yes --stage lunch": "--stage lunch",
		"dlq replay nobody":                    "nobody",
		"dlq discard --all":                    "--yes",
		"dlq edit 1":                           "--file",
		"dlq edit none":                        "none",
		"dlq list --state lost":                "--state lost",
		"dlq list --group code":                "--group",
		"dlq list --limit 0":                   "--limit",
		"dlq list --limit -3":                  "--limit",
		"dlq list --after -1":                  "--after",
		"audit --limit 0":                      "--limit",
	} {
		status, out, errs := call(t, append(strings.Fields(line), "-c", main)...)
		require.Equal(t, exitUsage, status, "%s: %s", line, errs)
		require.Empty(t, out, line)
		require.Contains(t, errs, want, line)
	}
	require.NoDirExists(t, filepath.Join("..", "..", "examples", "banana", "data"), "nothing was opened")
}

// Every operators' command has examples and completions.
func TestHelpAndCompletion(t *testing.T) {
	for _, command := range []string{"replay", "reset", "audit", "dlq edit", "dlq replay", "dlq discard"} {
		status, out, _ := call(t, append(strings.Fields(command), "--help")...)
		require.Zero(t, status)
		require.Contains(t, out, "Examples:\n  weir "+command+" -c weir.yaml")
	}
	main := filepath.Join("..", "..", "examples", "banana", "weir.yaml")
	for line, want := range map[string]string{
		"replay -c " + main + " --service ":         "acme/ripeness@archive",
		"reset -c " + main + " --customer ":         "zest",
		"dlq replay -c " + main + " --service acme": "acme/ripeness@archive",
		"dlq discard -c " + main + " --stage ":      "deliver",
		"dlq list -c " + main + " --state ":         "obsolete",
		"dlq list -c " + main + " --service ":       "acme/ripeness@archive",
	} {
		words := strings.Split(line, " ")
		status, out, _ := call(t, append([]string{"__complete"}, words...)...)
		require.Zero(t, status)
		require.Contains(t, out, want, line)
	}
}

func TestRoles(t *testing.T) {
	r, err := parseRoles("ingest, work")
	require.NoError(t, err)
	require.True(t, r.Ingest && r.Work)
	require.Equal(t, []string{"ingest", "work"}, r.Names())
	_, err = parseRoles("ingest,")
	require.Error(t, err)
}

// An outbox finds entity and event id in columns that a file has not.
func TestImportIntoAnOutboxIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte("sources: {db: {outbox: {url: \"postgres://127.0.0.1/db\", table: outbox}}}\ncustomers: [c.yaml]\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.yaml"), []byte("customer: acme\nchecks: {crm: {}}\n"), 0o644))
	status, out, errs := call(t, "validate", "-c", file)
	require.Zero(t, status, errs)
	require.Contains(t, out, "0 services, 1 check service")
	status, _, errs = call(t, "import", "-c", file, "--source", "db", "rows.jsonl")
	require.Equal(t, exitUsage, status, errs)
	require.Contains(t, errs, "import into another source")
}
