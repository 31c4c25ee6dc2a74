package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What init writes runs: the first event comes out, and a second run has nothing to send.
func TestInitWritesWhatRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	main := filepath.Join(dir, "weir.yaml")
	status, out, errs := call(t, "init", dir, "--from", "events.jsonl", "--entity", "product.id", "--sees", "product.id,product.name")
	require.Zero(t, status, errs)
	require.Contains(t, out, "weir run -c "+main)
	elsewhere(t, main)
	status, _, errs = call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	sent, err := os.ReadFile(filepath.Join(dir, "out", "acme.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(sent), `"doc":{"product":{"id":"B-007","name":"something"}}`)

	status, _, errs = call(t, "init", dir, "--from", "other.jsonl", "--entity", "id", "--sees", "id")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, main+" is there already, and nothing is overwritten\nhint: choose another folder")
	require.NoFileExists(t, filepath.Join(dir, "other.jsonl"))
}

// Any other way in is a configuration without a fault; one that would have faults is not
// written.
func TestInitOtherWaysIn(t *testing.T) {
	for from, want := range map[string]int{"http": exitOK, "kafka://127.0.0.1:9092,127.0.0.1:9093/products": exitOK, "kafka://127.0.0.1:9092": exitUsage} {
		dir := t.TempDir()
		status, _, errs := call(t, "init", dir, "--from", from, "--entity", "id", "--sees", "id, price", "--customer", "zest")
		require.Equal(t, want, status, "%s: %s", from, errs)
		if want == exitOK {
			status, _, errs = call(t, "validate", "-c", filepath.Join(dir, "weir.yaml"))
			require.Zero(t, status, errs)
			require.FileExists(t, filepath.Join(dir, "customers", "zest.yaml"))
		} else {
			require.NoFileExists(t, filepath.Join(dir, "weir.yaml"))
		}
	}
	dir := t.TempDir()
	for line, want := range map[string]string{
		"init " + dir:                  "--from, --sees and --entity (or --tables) are needed",
		"init " + dir + " --from http": "--from needs --sees, and --entity",
		"init --from http --entity id --sees id --customer ../x " + dir: "that is no name",
	} {
		status, _, errs := call(t, strings.Fields(line)...)
		require.Equal(t, exitUsage, status, line)
		require.Contains(t, errs, want, line)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// On a terminal it asks, and proposes the paths of the first event of the file. That file is the
// user's own, and stays as it is.
func TestInitAsks(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(t.TempDir(), "mine.jsonl")
	own := `{"sku":"a","product_id":7,"price":1}` + "\n"
	require.NoError(t, os.WriteFile(mine, []byte(own), 0o644))
	person, program := openTerminal(t)
	var out strings.Builder
	a := &app{console: console{in: program, err: program, out: &out}, env: func(string) (string, bool) { return "", false }}
	ended := make(chan int, 1)
	go func() { ended <- a.execute(t.Context(), []string{"init", dir}) }()
	for _, step := range []struct{ asked, answer string }{
		{`http\? \[events.jsonl\] `, mine}, {`entity\? \[product_id\] `, ""}, {`commas\? \[price,product_id,sku\] `, "product_id,price"},
	} {
		read(t, person, step.asked)
		_, err := fmt.Fprintln(person, step.answer)
		require.NoError(t, err)
	}
	require.Zero(t, <-ended, out.String())
	text, err := os.ReadFile(mine)
	require.NoError(t, err)
	require.Equal(t, own, string(text))
	elsewhere(t, filepath.Join(dir, "weir.yaml"))
	status, _, errs := call(t, "run", "-c", filepath.Join(dir, "weir.yaml"), "--until-idle")
	require.Zero(t, status, errs)
	sent, err := os.ReadFile(filepath.Join(dir, "out", "acme.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(sent), `"doc":{"product_id":7,"price":1}`)
}

// elsewhere lets a process listen on a free port.
func elsewhere(t *testing.T, main string) {
	t.Helper()
	f, err := os.OpenFile(main, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("admin: {listen: \"127.0.0.1:0\"}\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
