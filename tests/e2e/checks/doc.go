// Package checks tests check services through the real binary, which is killed
// between a caller's steps.
package checks
