// Package model tests the Promela models of the protocol; docs/protocol.md
// tells what they say.
package model

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules of the fence hold, and are needed. It fails when spin can be neither
// found nor installed.
func TestFence(t *testing.T) {
	if testing.Short() {
		t.Skip("needs spin and a compiler")
	}
	explore(t, "fence")
}

// explore runs the models with that name, or all.
func explore(t *testing.T, models ...string) {
	t.Helper()
	out, err := exec.Command("../scripts/model", models...).CombinedOutput()
	t.Logf("\n%s", out)
	require.NoError(t, err)
}
