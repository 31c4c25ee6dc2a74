//go:build !linux

package durable

// Reread does nothing where the kernel cannot be told to forget pages.
func Reread(string) error { return nil }
