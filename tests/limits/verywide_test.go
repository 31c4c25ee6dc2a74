//go:build verify

package limits

import "testing"

// I4, I6: the same with 100,000.
func TestVeryWideDocuments(t *testing.T) {
	wide(t, 100_000)
}
