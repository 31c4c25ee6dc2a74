// Package protocol tests the Promela models of the protocol; protocol.md
// explains them.
package protocol

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every rule holds, and is needed, in the smallest bounds. It fails when spin can
// be neither found nor installed.
func TestRules(t *testing.T) {
	if testing.Short() {
		t.Skip("explores models for a minute of processor time")
	}
	explore(t, "short")
}

// explore runs scripts/model.
func explore(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("../../scripts/model", args...).CombinedOutput()
	t.Logf("\n%s", out)
	require.NoError(t, err)
}
