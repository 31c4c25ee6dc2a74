//go:build unix

package file

import (
	"os"
	"syscall"
)

// inodeOf returns the number of a file in its file system.
func inodeOf(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
