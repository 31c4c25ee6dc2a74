//go:build linux || darwin || freebsd

package embedded

import "syscall"

// freeSpace gives the bytes that an ordinary user may still write to the file
// system of a folder (statfs(2)).
func freeSpace(dir string) (bytes int64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true //nolint:unconvert // of other types elsewhere
}
