package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// file is a file that one connection has open; SQLite calls it from one goroutine
// at a time.
type file struct {
	vfs.File // of the system
	d        *Disk
	name     string
	wal      bool

	seal   seal             // of a database
	header int64            // of a log: the frame whose header was written last
	stale  int64            // of a log: from this frame on headers wait to be written, see writeFrame; 0: none
	order  binary.ByteOrder // of a log: that of its checksums; nil before it is known
	buffer []byte           // see bytes
}

// SharedMemory implements vfs.FileSharedMemory. There are no memory maps: pages would pass
// this layer by.
func (f *file) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

// HasMoved implements vfs.FileHasMoved.
func (f *file) HasMoved() (bool, error) { return vfsutil.WrapHasMoved(f.File) }

// SizeHint implements vfs.FileSizeHint.
func (f *file) SizeHint(size int64) error { return vfsutil.WrapSizeHint(f.File, size) }

// PersistWAL implements vfs.FilePersistWAL.
func (f *file) PersistWAL() bool { return vfsutil.WrapPersistWAL(f.File) }

// SetPersistWAL implements vfs.FilePersistWAL.
func (f *file) SetPersistWAL(keep bool) { vfsutil.WrapSetPersistWAL(f.File, keep) }

// ReadAt verifies pages.
func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.read(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, err
	}
	if bad := f.verify(b, offset, n < len(b)); bad != nil {
		f.d.Fail(bad)
		return 0, sqlite3.IOERR_DATA
	}
	f.unsealPage(b, offset)
	return n, err
}

// read reads without verification. A part behind the end of the file is zero.
func (f *file) read(b []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(b, offset)
	if n < len(b) {
		clear(b[n:])
		return n, err
	}
	if f.d.faults.Read(f.name, offset, b) != nil {
		return 0, sqlite3.IOERR_READ
	}
	return n, nil
}

// bytes reads n bytes, which the next call overwrites; nil if there are fewer.
func (f *file) bytes(n int, offset int64) []byte {
	if cap(f.buffer) < n {
		f.buffer = make([]byte, n)
	}
	if _, err := f.read(f.buffer[:n], offset); err != nil {
		return nil
	}
	return f.buffer[:n]
}

// WriteAt adds checksums.
func (f *file) WriteAt(b []byte, offset int64) (int, error) {
	if f.d.Err() != nil {
		return 0, sqlite3.IOERR_WRITE
	}
	if f.wal {
		f.writeFrame(len(b), offset)
	} else {
		f.sealPage(b, offset)
	}
	if part, err := f.d.faults.Write(f.name, offset, b); err != nil {
		n, _ := f.File.WriteAt(b[:part], offset)
		return n, code(err, sqlite3.IOERR_WRITE)
	}
	n, err := f.File.WriteAt(b, offset)
	if err != nil { // the driver does not look into the os.PathError for a full disk
		err = code(err, sqlite3.IOERR_WRITE)
	}
	return n, err
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	if f.d.Err() != nil {
		return sqlite3.IOERR_TRUNCATE
	}
	if err := f.d.faults.Truncate(f.name, size); err != nil {
		return code(err, sqlite3.IOERR_TRUNCATE)
	}
	return f.File.Truncate(size)
}

// Sync fails the Disk if it fails.
func (f *file) Sync(flags vfs.SyncFlag) error {
	if f.d.Err() != nil {
		return sqlite3.IOERR_FSYNC
	}
	err := f.d.faults.Sync(f.name)
	if err == nil {
		err = f.File.Sync(flags)
	}
	if err != nil {
		f.d.Fail(fmt.Errorf("%w: %s", ErrSync, f.name))
		return sqlite3.IOERR_FSYNC
	}
	f.stale = 0
	return nil
}
