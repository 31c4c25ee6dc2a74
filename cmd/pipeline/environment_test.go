package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// banana copies the example, with a listener for operators.
func banana(t *testing.T) (dir, main string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "examples", "banana"))))
	main = filepath.Join(dir, "weir.yaml")
	change(t, main, `admin: {listen: "off"}`, `admin: {listen: "127.0.0.1:0"}`)
	return dir, main
}

// change replaces a piece of a file.
func change(t *testing.T, file, old, new string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o644))
}

// Before anything ran, a command that looks says so and makes nothing.
func TestNothingRanYet(t *testing.T) {
	dir, main := banana(t)
	for _, line := range []string{
		"explain x", "plan", "noise", "audit", "dlq list", "dlq list 1", "dlq discard 1", "dlq edit 1 --file -",
		"dlq replay 1", "replay --all", "reset --all --yes",
	} {
		status, out, errs := call(t, append(strings.Fields(line), "-c", main)...)
		assert.Equal(t, exitFailed, status, "%s: %s", line, errs)
		assert.Empty(t, out, line)
		assert.Contains(t, errs, "nothing has run with this configuration yet", line)
		require.NoDirExists(t, filepath.Join(dir, "data"), line)
	}
}

// A process works with the configuration that it has. A command that names
// another one is not run with it silently, and explain reports from the store alone.
func TestChangedConfigurationIsNotForwarded(t *testing.T) {
	dir, main := banana(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs bytes.Buffer
	process := &app{console: console{out: &out, err: &errs}, env: func(string) (string, bool) { return "", false }}
	ended := make(chan int, 1)
	go func() { ended <- process.execute(ctx, []string{"run", "-c", main}) }()
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "data", "state.db.control"))
		return err == nil
	}, 3*time.Minute, 10*time.Millisecond)

	status, said, wrong := call(t, "replay", "-c", main, "nobody")
	require.Equal(t, exitFailed, status)
	require.Contains(t, said, "1 entity not known and left out")
	require.Contains(t, wrong, "none of the named entities exists")

	customer := filepath.Join(dir, "customers", "acme.yaml")
	change(t, customer, "banana_id: id", "banana_id: id\n      origin: origin")
	for _, line := range []string{"replay --all --force", "reset --all --yes", "dlq replay 1"} {
		status, said, wrong := call(t, append(strings.Fields(line), "-c", main)...)
		assert.Equal(t, exitFailed, status, line)
		assert.Empty(t, said, line)
		assert.Contains(t, wrong, "not the active configuration", line)
	}
	status, said, wrong = call(t, "explain", "-c", main, "nobody")
	require.Equal(t, exitFailed, status)
	require.Contains(t, said, "There is no entity", "the store alone was read: %s", wrong)

	stop()
	require.Zero(t, <-ended, errs.String())
}

// What producers and callers write cannot steer an operator's terminal, nor
// make a row look like two.
func TestWhatComesFromElsewhereIsQuoted(t *testing.T) {
	dir, main := banana(t)
	const steers = "B\x1b[31m\u009b\tX"
	events := filepath.Join(dir, "events", "registry.jsonl")
	change(t, events, "", `{"banana":{"id":"B\u001b[31m\u009b\tX","origin":"EC","n":{"k\u001b[2J\u009b":1}},"meta":{"event_id":"x\u001b[2J","op":"upsert","lsn":"1\u001b[31m"}}`+"\n"+
		`{"banana":{"id":"B\u001b[31m\u009b\tX","origin":"EC","n":{"k\u001b[2J\u009b":2},"raw":"`+"\u009b"+`"},"meta":{"event_id":"y","op":"upsert","lsn":"2\u001b[31m"}}`+"\n"+
		"\x1b[31m\n")
	for _, line := range []string{
		"run --until-idle", "replay --force --reason line\none " + steers, "run --until-idle",
		"audit", "dlq list", "explain --payload " + steers, "explain --full " + steers, "noise", "plan",
	} {
		if line == "plan" { // of a configuration that has samples
			change(t, filepath.Join(dir, "customers", "acme.yaml"), "banana_id: id", "banana_id: id\n      raw: raw")
		}
		args := strings.Split(line, " ")
		status, out, errs := call(t, append([]string{args[0], "-c", main}, args[1:]...)...)
		if args[0] == "dlq" {
			_, groups, _ := call(t, "dlq", "list", "-c", main, "--group", "entity")
			require.Regexp(t, `(?m)^1 .*ingest +bad_json +registry`, groups)
			status, out, errs = call(t, "dlq", "list", "-c", main)
		}
		require.Zero(t, status, "%s: %s", line, errs)
		require.NotRegexp(t, "[\x1b\u009b]", out, line)
		if args[0] == "plan" {
			require.Contains(t, out, `"B\x1b[31m\u009b\tX"  upsert`)
		}
		if args[0] == "audit" {
			require.Contains(t, out, `"line\none"`)
		}
	}
}

// The newest dead letters are listed first, older ones on the next pages.
func TestDeadLettersAreListedNewestFirst(t *testing.T) {
	dir, main := banana(t)
	change(t, filepath.Join(dir, "events", "registry.jsonl"), "", "{\n[\n]\n")
	status, _, errs := call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	list := func(more ...string) (ids []int64) {
		var letters []struct{ ID int64 }
		status, out, errs := call(t, append([]string{"dlq", "list", "-c", main, "--json", "--limit", "2"}, more...)...)
		require.Zero(t, status, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &letters))
		for _, l := range letters {
			ids = append(ids, l.ID)
		}
		return ids
	}
	require.Equal(t, []int64{3, 2}, list())
	require.Equal(t, []int64{1}, list("--after", "2"))
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command whose result could not be written fails, in every form.
func TestResultThatIsNotWritten(t *testing.T) {
	_, main := banana(t)
	for _, line := range []string{"validate", "validate --json", "test", "run --until-idle", "replay --all --dry-run", "audit", "dlq list", "noise", "plan"} {
		var errs bytes.Buffer
		a := &app{console: console{out: fullDisk{}, err: &errs}, env: func(string) (string, bool) { return "", false }}
		status := a.execute(t.Context(), append(strings.Fields(line), "-c", main))
		require.Equal(t, exitFailed, status, line)
		require.Contains(t, errs.String(), syscall.ENOSPC.Error(), line)
	}
}
