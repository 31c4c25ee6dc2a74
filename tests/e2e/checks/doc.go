// Package checks tests check services through the real binary: with SQLite in
// one process, and on PostgreSQL with several processes, which are killed
// between a caller's steps.
package checks
