package durable

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Reread makes later reads of a file come from the disk: after a failed fsync, the kernel may
// hold pages that never reached the disk and count them as clean. A missing file is no error.
func Reread(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// Unsynced writes of other processes stay cached: only clean pages are dropped.
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}
