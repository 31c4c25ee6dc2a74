// Package model tests the Promela models of the protocol; docs/protocol.md
// tells what they say.
package model

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every rule holds, and is needed, in small bounds. It fails when spin can be
// neither found nor installed.
func TestProtocol(t *testing.T) {
	if testing.Short() {
		t.Skip("explores models for a minute of processor time")
	}
	out, err := exec.Command("../scripts/model", "short").CombinedOutput()
	t.Logf("\n%s", out)
	require.NoError(t, err)
}
