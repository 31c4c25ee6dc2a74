package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// file is a file that one connection has open; SQLite calls it from one goroutine
// at a time.
type file struct {
	d    *Disk
	p    uintptr // the sqlite3_file
	pin  runtime.Pinner
	base *sqlite3.Tsqlite3_io_methods // of the system
	name string
	wal  bool

	seal   seal             // of a database
	header int64            // of a log: the frame whose header was written last
	stale  int64            // of a log: from this frame on headers wait to be written, see writeFrame; 0: none
	order  binary.ByteOrder // of a log: that of its checksums; nil before it is known
	small  buffer           // for headers
	large  buffer           // for a page, and the headers around it
}

// buffer is memory that SQLite's code may read into: none of Go's, whose stacks move
// and whose pointers it must not calculate with.
type buffer struct {
	p uintptr
	n int
}

// bytes returns n bytes, which the next call returns again.
func (b *buffer) bytes(tls *libc.TLS, n int) []byte {
	if b.n < n {
		b.free(tls)
		if b.p = libc.Xmalloc(tls, libc.Tsize_t(n)); b.p == 0 {
			panic("out of memory")
		}
		b.n = n
	}
	return unsafe.Slice((*byte)(at(b.p)), n)
}

func (b *buffer) free(tls *libc.TLS) {
	if b.p != 0 {
		libc.Xfree(tls, b.p)
		*b = buffer{}
	}
}

// The methods that a file has.
type (
	closeFunc    = func(tls *libc.TLS, file uintptr) int32
	transferFunc = func(tls *libc.TLS, file, buffer uintptr, n int32, at int64) int32
	truncateFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc     = func(tls *libc.TLS, file uintptr, flags int32) int32
)

func fileOf(p uintptr) *file {
	t := (*table)(at((*sqlite3.Tsqlite3_file)(at(p)).FpMethods))
	return *(**file)(at(p + t.offset))
}

// code is that of SQLite for an error of Faults.
func code(err error, other int32) int32 {
	if errors.Is(err, syscall.ENOSPC) {
		return sqlite3.SQLITE_FULL
	}
	return other
}

func closeFile(tls *libc.TLS, p uintptr) int32 {
	f := fileOf(p)
	rc := function[closeFunc](f.base.FxClose)(tls, p)
	f.small.free(tls)
	f.large.free(tls)
	f.d.open.Add(-1)
	f.pin.Unpin()
	return rc
}

// transfer reads or writes b, which is none of Go's memory, by a method of the system.
func (f *file) transfer(tls *libc.TLS, method uintptr, b []byte, offset int64) int32 {
	if len(b) == 0 {
		return sqlite3.SQLITE_OK
	}
	return function[transferFunc](method)(tls, f.p, uintptr(unsafe.Pointer(unsafe.SliceData(b))), int32(len(b)), offset)
}

func readFile(tls *libc.TLS, p, buffer uintptr, n int32, offset int64) int32 {
	f := fileOf(p)
	b := unsafe.Slice((*byte)(at(buffer)), n)
	rc := f.read(tls, b, offset)
	if rc != sqlite3.SQLITE_OK && rc != sqlite3.SQLITE_IOERR_SHORT_READ {
		return rc
	}
	if err := f.verify(tls, b, offset, rc == sqlite3.SQLITE_IOERR_SHORT_READ); err != nil {
		f.d.Fail(err)
		return sqlite3.SQLITE_IOERR_DATA
	}
	f.unsealPage(b, offset)
	return rc
}

// read reads without verification.
func (f *file) read(tls *libc.TLS, b []byte, offset int64) int32 {
	rc := f.transfer(tls, f.base.FxRead, b, offset)
	if f.d.faults != nil && rc == sqlite3.SQLITE_OK {
		if err := f.d.faults.Read(f.name, offset, b); err != nil {
			return sqlite3.SQLITE_IOERR_READ
		}
	}
	return rc
}

func writeFile(tls *libc.TLS, p, buffer uintptr, n int32, offset int64) int32 {
	f := fileOf(p)
	if f.d.Err() != nil {
		return sqlite3.SQLITE_IOERR_WRITE
	}
	b := unsafe.Slice((*byte)(at(buffer)), n)
	if f.wal {
		f.writeFrame(len(b), offset)
	} else {
		f.sealPage(tls, b, offset)
	}
	if f.d.faults != nil {
		if part, err := f.d.faults.Write(f.name, offset, b); err != nil {
			f.transfer(tls, f.base.FxWrite, b[:part], offset)
			return code(err, sqlite3.SQLITE_IOERR_WRITE)
		}
	}
	return f.transfer(tls, f.base.FxWrite, b, offset)
}

func truncateFile(tls *libc.TLS, p uintptr, size int64) int32 {
	f := fileOf(p)
	if f.d.Err() != nil {
		return sqlite3.SQLITE_IOERR_TRUNCATE
	}
	if f.d.faults != nil {
		if err := f.d.faults.Truncate(f.name, size); err != nil {
			return code(err, sqlite3.SQLITE_IOERR_TRUNCATE)
		}
	}
	return function[truncateFunc](f.base.FxTruncate)(tls, p, size)
}

func syncFile(tls *libc.TLS, p uintptr, flags int32) int32 {
	f := fileOf(p)
	if f.d.Err() != nil {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	rc := int32(sqlite3.SQLITE_OK)
	if f.d.faults != nil && f.d.faults.Sync(f.name) != nil {
		rc = sqlite3.SQLITE_IOERR_FSYNC
	}
	if rc == sqlite3.SQLITE_OK {
		rc = function[syncFunc](f.base.FxSync)(tls, p, flags)
	}
	if rc != sqlite3.SQLITE_OK {
		f.d.Fail(fmt.Errorf("%w: %s", ErrSync, f.name))
		return rc
	}
	f.stale = 0
	return rc
}
