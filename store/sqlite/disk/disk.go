package disk

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
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

// Disk is a VFS of SQLite. A database is opened through it by its name, as
// ?vfs=NAME. All methods may be called concurrently.
type Disk struct {
	faults Faults

	tls   *libc.TLS
	pin   runtime.Pinner
	base  uintptr // sqlite3_vfs of the system
	vfs   uintptr // sqlite3_vfs of this one
	cname uintptr
	name  string

	open     atomic.Int64 // files
	unsealed atomic.Bool
	sealing  atomic.Bool

	mu     sync.Mutex
	tables map[uintptr]uintptr // guarded by mu; methods of the system to those that stand for them
	err    error               // guarded by mu
	failed chan struct{}       // closed when err is set
}

// New makes a Disk; faults may be nil. Release ends it.
func New(faults Faults) (*Disk, error) {
	d := &Disk{faults: faults, tls: libc.NewTLS(), tables: map[uintptr]uintptr{}, failed: make(chan struct{})}
	d.base = sqlite3.Xsqlite3_vfs_find(d.tls, 0)
	if d.base == 0 {
		d.tls.Close()
		return nil, errors.New("SQLite has no VFS for this system")
	}
	d.vfs = libc.Xmalloc(d.tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	d.name = "weir-" + strconv.FormatUint(uint64(d.vfs), 16)
	var err error
	if d.cname, err = libc.CString(d.name); err != nil || d.vfs == 0 {
		d.free()
		return nil, fmt.Errorf("no memory for a VFS: %w", err)
	}
	d.pin.Pin(d)
	vfs := (*sqlite3.Tsqlite3_vfs)(at(d.vfs))
	// SQLite links its VFS to others under this mutex, perhaps at this moment.
	list := sqlite3.Xsqlite3_mutex_alloc(d.tls, sqlite3.SQLITE_MUTEX_STATIC_MAIN)
	sqlite3.Xsqlite3_mutex_enter(d.tls, list)
	*vfs = *(*sqlite3.Tsqlite3_vfs)(at(d.base))
	sqlite3.Xsqlite3_mutex_leave(d.tls, list)
	vfs.FpNext = 0
	vfs.FzName = d.cname
	vfs.FszOsFile += int32(unsafe.Sizeof(uintptr(0)))
	*(**Disk)(unsafe.Pointer(&vfs.FpAppData)) = d
	set(&vfs.FxOpen, openFile)
	set(&vfs.FxDelete, deleteFile)
	// The others of the system look at nothing of the VFS that they are given, but
	// for the unused one that returns the last error.
	if rc := sqlite3.Xsqlite3_vfs_register(d.tls, d.vfs, 0); rc != sqlite3.SQLITE_OK {
		d.pin.Unpin()
		d.free()
		return nil, fmt.Errorf("register a VFS: %d", rc)
	}
	return d, nil
}

// Name is that of the VFS.
func (d *Disk) Name() string { return d.name }

// Err returns what ended all writing, an ErrDamaged or ErrSync with file and place;
// nil as long as nothing was found.
func (d *Disk) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Unsealed reports whether a file was opened that another program rewrote. Pages
// written to it has checksums; once that was all of it, by VACUUM and a checkpoint,
// call Seal.
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

// Release ends the VFS. Files that are still open keep its memory.
func (d *Disk) Release() {
	sqlite3.Xsqlite3_vfs_unregister(d.tls, d.vfs)
	if d.open.Load() > 0 {
		return
	}
	d.mu.Lock()
	for _, table := range d.tables {
		libc.Xfree(d.tls, table)
	}
	d.tables = nil
	d.mu.Unlock()
	d.pin.Unpin()
	d.free()
}

func (d *Disk) free() {
	if d.cname != 0 {
		libc.Xfree(d.tls, d.cname)
	}
	if d.vfs != 0 {
		libc.Xfree(d.tls, d.vfs)
	}
	d.tls.Close()
}

// at is the pointer of an address that SQLite has: its memory is none of Go's.
func at(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// set and function convert functions to the form of a function pointer of C
// in the translated SQLite, and back.
func set[F any](p *uintptr, f F) { *(*F)(unsafe.Pointer(p)) = f }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// The functions of a VFS that this one has.
type (
	openFunc   = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	deleteFunc = func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32
)

func diskOf(vfs uintptr) *Disk {
	return *(**Disk)(unsafe.Pointer(&(*sqlite3.Tsqlite3_vfs)(at(vfs)).FpAppData))
}

func openFile(tls *libc.TLS, vfs, name, p uintptr, flags int32, outFlags uintptr) int32 {
	d := diskOf(vfs)
	base := (*sqlite3.Tsqlite3_vfs)(at(d.base))
	rc := function[openFunc](base.FxOpen)(tls, d.base, name, p, flags, outFlags)
	opened := (*sqlite3.Tsqlite3_file)(at(p))
	// Journals and temporary files hold nothing that was acknowledged.
	if rc != sqlite3.SQLITE_OK || opened.FpMethods == 0 || flags&(sqlite3.SQLITE_OPEN_MAIN_DB|sqlite3.SQLITE_OPEN_WAL) == 0 {
		return rc
	}
	f := &file{
		d: d, p: p, name: libc.GoString(name), wal: flags&sqlite3.SQLITE_OPEN_WAL != 0,
		base: (*sqlite3.Tsqlite3_io_methods)(at(opened.FpMethods)),
	}
	f.pin.Pin(f)
	*(**file)(at(p + uintptr(base.FszOsFile))) = f
	opened.FpMethods = d.methods(opened.FpMethods, base.FszOsFile)
	d.open.Add(1)
	if !f.wal && f.look(tls).reserved && !f.seal.sealed {
		d.unsealed.Store(true)
	}
	return rc
}

func deleteFile(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32 {
	d := diskOf(vfs)
	if d.Err() != nil {
		return sqlite3.SQLITE_IOERR_DELETE
	}
	if d.faults != nil {
		if err := d.faults.Delete(libc.GoString(name)); err != nil {
			return code(err, sqlite3.SQLITE_IOERR_DELETE)
		}
	}
	return function[deleteFunc]((*sqlite3.Tsqlite3_vfs)(at(d.base)).FxDelete)(tls, d.base, name, syncDir)
}

// table is the target of the pointer in a file of SQLite: the methods, and the offset of
// the *file behind the file of the system.
type table struct {
	methods sqlite3.Tsqlite3_io_methods
	offset  uintptr
}

// methods returns the methods in place of those of the system.
func (d *Disk) methods(base uintptr, offset int32) uintptr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tables[base]; t != 0 {
		return t
	}
	p := libc.Xmalloc(d.tls, libc.Tsize_t(unsafe.Sizeof(table{})))
	t := (*table)(at(p))
	*t = table{*(*sqlite3.Tsqlite3_io_methods)(at(base)), uintptr(offset)}
	t.methods.FiVersion = min(t.methods.FiVersion, 2) // no memory maps: pages would pass us by
	set(&t.methods.FxClose, closeFile)
	set(&t.methods.FxRead, readFile)
	set(&t.methods.FxWrite, writeFile)
	set(&t.methods.FxTruncate, truncateFile)
	set(&t.methods.FxSync, syncFile)
	d.tables[base] = p
	return p
}
