// Package file is a source that reads a file of JSON lines. It remembers in the
// store how far its frames were acknowledged.
package file
