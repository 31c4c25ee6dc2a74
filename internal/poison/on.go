//go:build race

package poison

// Enabled is true in a build with the race detector.
const Enabled = true
