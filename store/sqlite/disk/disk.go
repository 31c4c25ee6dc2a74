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

// Faults come between a Disk and the file system, in tests. Calls of one file come
// one at a time, those of several files at the same time. Offsets and sizes are in
// bytes.
type Faults interface {
	// Read is called with the bytes that were read, which it may change, or fail.
	Read(file string, at int64, b []byte) error
	// Write returns how much of b is to be written; with an error the rest is not,
	// and the write fails with it.
	Write(file string, at int64, b []byte) (int, error)
	Truncate(file string, size int64) error
	Sync(file string) error
	Delete(file string) error
}

// none are no faults.
type none struct{}

func (none) Read(string, int64, []byte) error               { return nil }
func (none) Write(_ string, _ int64, b []byte) (int, error) { return len(b), nil }
func (none) Truncate(string, int64) error                   { return nil }
func (none) Sync(string) error                              { return nil }
func (none) Delete(string) error                            { return nil }

// Disk is a VFS of SQLite. A database is opened through it by its name, as
// ?vfs=NAME. All methods may be called concurrently.
type Disk struct {
	vfs.VFS // of the system
	faults  Faults
	name    string

	unsealed atomic.Bool
	sealing  atomic.Bool

	mu     sync.Mutex
	err    error         // guarded by mu
	failed chan struct{} // closed when err is set
}

var disks atomic.Int64 //nolint:gochecknoglobals // names of the driver are global

// New makes a Disk; faults may be nil. Release ends it.
func New(faults Faults) *Disk {
	if faults == nil {
		faults = none{}
	}
	d := &Disk{VFS: vfs.Find(""), faults: faults, failed: make(chan struct{})}
	d.name = fmt.Sprint("weir-", disks.Add(1))
	vfs.Register(d.name, d)
	return d
}

// Name is that of the VFS.
func (d *Disk) Name() string { return d.name }

// Err returns the reason for the end of all writing, an ErrDamaged or ErrSync with file and
// place; nil as long as nothing was found.
func (d *Disk) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Unsealed reports whether a file was opened that another program rewrote. New pages have
// checksums. After VACUUM and a checkpoint all pages have them: then call Seal.
func (d *Disk) Unsealed() bool { return d.unsealed.Load() }

// Seal has the next write of the first page say that all pages have their checksums.
func (d *Disk) Seal() { d.sealing.Store(true) }

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
	if flags&vfs.OPEN_MAIN_DB != 0 && flags&vfs.OPEN_READWRITE != 0 {
		if err := beside(name.String()); err != nil {
			return nil, out, errors.Join(err, opened.Close())
		}
	}
	f := &file{File: opened, d: d, name: name.String(), wal: flags&vfs.OPEN_WAL != 0}
	if !f.wal && f.look().reserved && !f.seal.sealed {
		d.unsealed.Store(true)
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

// Delete implements vfs.VFS.
func (d *Disk) Delete(name string, syncDir bool) error {
	if d.Err() != nil {
		return sqlite3.IOERR_DELETE
	}
	if err := d.faults.Delete(name); err != nil {
		return code(err, sqlite3.IOERR_DELETE)
	}
	return d.VFS.Delete(name, syncDir)
}

// code is that of SQLite for an error of a write, or of Faults.
func code(err error, other sqlite3.ExtendedErrorCode) error {
	if errors.Is(err, syscall.ENOSPC) {
		return sqlite3.FULL
	}
	return other
}
