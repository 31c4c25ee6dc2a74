// Package e2e tests the whole of Weir from outside: the real binary in real
// processes, killed and stopped at bad moments, against the model of package
// tests/oracle. Each test names the invariants that it holds.
package e2e
