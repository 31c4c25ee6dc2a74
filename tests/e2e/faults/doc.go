// Package faults tests sequences that need a process to die at one exact place:
// the binary is built with the tag crash, see package internal/crash. What
// needs no such place is in package e2e.
package faults
