package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidateResolves(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "weir.yaml")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("weir.yaml", "sources: {lab: {file: {path: lab.jsonl}, entity: id}}\ncustomers: [acme.yaml]\n")
	write("acme.yaml", "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {file: {path: \"${OUT}\"}}}}}\n")
	status, out, errs := call(t, "validate", "-c", main)
	require.Equal(t, exitOK, status, errs)
	require.Contains(t, out, "1 source, 1 customer, 1 projection, 1 service\n")
	status, _, errs = call(t, "validate", "-c", main, "--resolve")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "environment variable OUT is not set")

	write("acme.yaml", "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {file: {path: out.jsonl}}}}}\n")
	status, out, errs = call(t, "validate", "-c", main, "--resolve")
	require.Equal(t, exitFailed, status)
	require.Contains(t, out, "source lab: open "+filepath.Join(dir, "lab.jsonl")+": no such file or directory\nacme/p@out: ok\n")
	require.Equal(t, "error: 1 thing does not answer, or is not there\n", errs)
	write("lab.jsonl", "")
	status, out, errs = call(t, "validate", "-c", main, "--resolve", "--json")
	require.Equal(t, exitOK, status, errs)
	require.Contains(t, out, `"what": "source lab"`)
}
