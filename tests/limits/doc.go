// Package limits tests the real binary at its limits: a backlog that a dead
// sink leaves, a full disk, messages of 64 MiB, documents of 100,000 members,
// broken events by the thousand, one entity that is half of the stream, and a
// customer that takes half a minute for every answer.
//
// Each test holds the outcome against package tests/oracle, or against what the
// model cannot read by the input itself, and asserts no speed: where something
// must not wait for something else, it asserts what is done while the other is
// not. docs/limits.md says what was found.
//
// Memory is shown by a table of samples. What takes long is behind the build tag
// verify: `SUITE=limits make verify`.
package limits
