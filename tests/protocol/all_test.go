//go:build verify

package protocol

import "testing"

// Every rule of every model holds, and is needed, in the bounds of protocol.md.
func TestProtocol(t *testing.T) { explore(t) }
