package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A candidate in a folder of its own is planned against the state of the configuration that runs;
// without it plan says so, and does not propose to start the candidate.
func TestPlanOfACandidateElsewhere(t *testing.T) {
	_, main := banana(t)
	status, _, errs := call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	folder, next := banana(t)
	change(t, filepath.Join(folder, "customers", "acme.yaml"), "banana_id: id", "banana_id: id\n      sort: {const: fruit}")
	status, out, errs := call(t, "plan", "-c", next, "--against", main)
	require.Zero(t, status, errs)
	require.Contains(t, out, `+ sort: "fruit"`)
	status, _, errs = call(t, "plan", "-c", next)
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, "nothing has run")
	require.Contains(t, errs, "hint: --against names the configuration that runs now")
	_, err := os.Stat(filepath.Join(folder, "data"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Flags are checked before the command asks for a change of a file.
func TestCustomerRemoveChecksItsFlagsFirst(t *testing.T) {
	_, main := banana(t)
	for _, way := range []string{"--retract", "--forget"} {
		status, _, errs := call(t, "customer", "remove", "acme", "-c", main, way, "--reason", string([]byte{0xff}))
		require.Equal(t, exitUsage, status, errs)
		require.Contains(t, errs, "--reason is not UTF-8")
	}
	status, _, errs := call(t, "customer", "remove", "acme", "-c", main, "--retract", "--rate", "fast")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "--rate fast: want a number")
}
