// Package limits tests the real binary at its limits: a backlog that a dead
// sink leaves, a full disk, messages of 64 MiB, documents of 100,000 members, and one
// entity that is half of the stream.
//
// Each test compares the outcome with package tests/oracle, or with the input
// itself where the model cannot read it, and asserts no speed: where one thing
// must not wait for another, it asserts progress while the other is
// blocked. docs/limits.md has the results.
//
// Memory is shown by a table of samples. What takes long is behind the build tag
// verify: `SUITE=limits make verify`.
package limits
