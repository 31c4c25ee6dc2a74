package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// validate needs no variables; doctor needs them all.
func TestValidateNeedsNoVariables(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "weir.yaml")
	require.NoError(t, os.WriteFile(main, []byte("sources: {lab: {file: {path: lab.jsonl}, entity: id}}\ncustomers: [acme.yaml]\ndata_dir: \"${OUT}\"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), []byte("customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {file: {path: out.jsonl}}}}}\n"), 0o600))
	status, out, errs := call(t, "validate", "-c", main)
	require.Equal(t, exitOK, status, errs)
	require.Contains(t, out, "1 source, 1 customer, 1 projection, 1 service\n")
	status, _, errs = call(t, "doctor", "-c", main)
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "environment variable OUT is not set")
}
