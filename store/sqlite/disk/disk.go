package disk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// Errors that end a Disk, see Err.
var (
	// ErrDamaged says that a file differs from the bytes that were written.
	ErrDamaged = errors.New("the file is damaged")
	// ErrSync says that a file was not made durable.
	ErrSync = errors.New("fsync failed, so what was written last may be lost although it can be read")
)

// Disk is a VFS of SQLite. A database is opened through it by its name, as
// ?vfs=NAME. All methods may be called concurrently.
type Disk struct {
	vfs.VFS
	name     string
	unsealed atomic.Bool

	mu     sync.Mutex
	err    error         // guarded by mu
	failed chan struct{} // closed when err is set
}

var disks atomic.Int64 //nolint:gochecknoglobals // names of the driver are global

// New makes a Disk over a file system; nil means the driver's. Release ends it.
func New(under vfs.VFS) *Disk {
	if under == nil {
		under = vfs.Find("")
	}
	d := &Disk{VFS: under, name: fmt.Sprint("weir-", disks.Add(1)), failed: make(chan struct{})}
	vfs.Register(d.name, d)
	return d
}

// Name is the name of the VFS.
func (d *Disk) Name() string { return d.name }

// Err returns the reason for the end of all writing, an ErrDamaged or ErrSync with file and
// place; nil as long as nothing was found.
func (d *Disk) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Unsealed reports whether the first page of a database has no checksum, since another program
// wrote the file. VACUUM and a checkpoint give all pages one.
func (d *Disk) Unsealed() bool { return d.unsealed.Load() }

// Failed is closed when Err returns an error.
func (d *Disk) Failed() <-chan struct{} { return d.failed }

// Fail ends all writing for a reason that the caller found.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
		close(d.failed)
	}
}

// Release ends the VFS.
func (d *Disk) Release() { vfs.Unregister(d.name) }

// OpenFilename implements vfs.VFSFilename.
func (d *Disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	opened, out, err := vfsutil.WrapOpenFilename(d.VFS, name, flags)
	// Journals and temporary files hold nothing that was acknowledged.
	if err != nil || flags&(vfs.OPEN_MAIN_DB|vfs.OPEN_WAL) == 0 {
		return opened, out, err
	}
	f := &file{File: opened, d: d, name: name.String(), wal: flags&vfs.OPEN_WAL != 0}
	if !f.wal {
		f.page = sealedPages(opened)
	}
	if !f.wal && flags&vfs.OPEN_READWRITE != 0 {
		if err := beside(f.name); err != nil {
			return nil, out, errors.Join(err, opened.Close())
		}
	}
	return f, out, nil
}

// beside creates the log and the shared memory of a database with its mode: they hold documents
// and ids, and the driver would let others read them.
func beside(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		f, err := os.OpenFile(path+suffix, os.O_RDWR|os.O_CREATE, info.Mode().Perm())
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// file is a database or a log that one connection has open. SQLite calls it from one
// goroutine at a time.
type file struct {
	vfs.File
	d    *Disk
	name string
	wal  bool
	page int // of a database: size of its pages in bytes; 0 means that they have no checksums
}

// SharedMemory implements vfs.FileSharedMemory. There are no memory maps: pages would
// bypass this layer.
func (f *file) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

// HasMoved implements vfs.FileHasMoved.
func (f *file) HasMoved() (bool, error) { return vfsutil.WrapHasMoved(f.File) }

// ReadAt verifies pages, and the whole log when SQLite reads its header to recover it.
func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(b, offset)
	if n < len(b) {
		return n, err // SQLite compares the size of a database with that in its first page
	}
	var damage error
	switch {
	case f.wal && offset == 0 && n == walHeader:
		damage = verifyLog(f.File, b)
	case !f.wal && n == f.page:
		damage = f.verify(b, offset)
	}
	if damage != nil {
		f.d.Fail(fmt.Errorf("%w: %s, %w", ErrDamaged, f.name, damage))
		return 0, sqlite3.IOERR_DATA
	}
	return n, nil
}

// WriteAt adds checksums.
func (f *file) WriteAt(b []byte, offset int64) (int, error) {
	if f.d.Err() != nil {
		return 0, sqlite3.IOERR_WRITE
	}
	if !f.wal && len(b) == f.page {
		f.seal(b, offset)
	}
	n, err := f.File.WriteAt(b, offset)
	if errors.Is(err, syscall.ENOSPC) { // the driver does not look into the os.PathError
		err = sqlite3.FULL
	}
	return n, err
}

// Sync fails the Disk if it fails.
func (f *file) Sync(flags vfs.SyncFlag) error {
	if f.d.Err() != nil {
		return sqlite3.IOERR_FSYNC
	}
	if err := f.File.Sync(flags); err != nil {
		f.d.Fail(fmt.Errorf("%w: %s", ErrSync, f.name))
		return sqlite3.IOERR_FSYNC
	}
	return nil
}
