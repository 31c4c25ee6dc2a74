package durable

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Reread makes later reads of a file come from the disk: after an fsync
// that failed, the kernel may have pages that are not there, and take them for clean.
// A file that is not there is none to read.
func Reread(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// What another process wrote and did not sync stays: only clean pages go.
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}
