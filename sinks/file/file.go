package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/durable"
	"github.com/seed-86dfc502/weir/sinks"
)

const (
	// maxKeys is how many of the last keys are remembered to recognise repetitions, many times
	// the changes of one Write.
	maxKeys = 200_000

	maxBatch = 10_000
	maxBytes = 16 << 20
	// maxKept is the largest buffer that is kept from one Write to the next. Every service
	// keeps one.
	maxKept = 256 << 10

	// maxTail is how much of the file's end Open reads to learn the keys.
	maxTail = 256 << 20

	fileMode = 0o640
	dirMode  = 0o750
)

// Sink appends changes to a file. It implements sinks.Sink.
type Sink struct {
	path string
	keys *window
	tail int64 // how much of the file's end Open reads; at least maxBytes, of one Write
	buf  []byte

	lock *flock.Flock
	f    handle
	file os.FileInfo // of the file opened last, closed or not; nil before
	size int64       // its fsynced length
	torn bool        // the file may be longer than size, after a failed Write

	open func(path string) (handle, error) // os.OpenFile, but in tests of failing disks
}

var _ sinks.Sink = (*Sink)(nil)

// handle is the part of *os.File that the sink uses.
type handle interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// New makes a sink of the file at path, which Open creates, and its folders, when missing.
func New(path string) *Sink {
	return &Sink{path: path, keys: newWindow(maxKeys), tail: maxTail, open: openFile}
}

func openFile(path string) (handle, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode) // #nosec G703 -- the path is the operator's
}

// Traits implements sinks.Sink.
func (s *Sink) Traits() sinks.Traits {
	return sinks.Traits{Kind: sinks.Log, MaxBatch: maxBatch, MaxBytes: maxBytes, Guarded: true, Exclusive: true}
}

// Open creates or locks the file, repairs its end and learns the last keys.
func (s *Sink) Open(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return classify("open", errors.Join(err, s.Close()))
	}
	return nil
}

func (s *Sink) start(ctx context.Context) error {
	if err := s.Close(); err != nil {
		return err
	}
	if err := durable.MkdirAll(filepath.Dir(s.path), dirMode); err != nil {
		return err
	}
	if info, err := os.Stat(s.path); err == nil && !info.Mode().IsRegular() { // #nosec G703 -- the path is the operator's
		return errIrregular
	}
	s.lock = flock.New(s.path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(fileMode))
	locked, err := s.lock.TryLock()
	if err != nil {
		return err
	}
	if !locked {
		return errLocked
	}
	// Writes that an earlier process failed to sync may be readable without being on the disk.
	if err := durable.Reread(s.path); err != nil {
		return err
	}
	if s.f, err = s.open(s.path); err != nil {
		return err
	}
	if err := s.sameFile(); err != nil {
		return err
	}
	info, err := s.f.Stat()
	if err != nil {
		return err
	}
	if s.file != nil && os.SameFile(s.file, info) && info.Size() < s.size {
		// The lines of known keys are lost. recover reads the remaining ones.
		s.keys = newWindow(maxKeys)
	}
	size, err := s.recover(ctx)
	if err != nil {
		return err
	}
	s.file, s.size = info, size
	if err := s.f.Sync(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(s.path))
}

var (
	errLocked    = errors.New("another process writes this file")
	errMoved     = errors.New("the file was replaced while it was opened")
	errIrregular = errors.New("the path names a device, a pipe or a folder")
)

// sameFile checks that the locked file is the opened one.
func (s *Sink) sameFile() error {
	locked, err := s.lock.Stat()
	if err != nil {
		return err
	}
	info, err := s.f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(locked, info) {
		return errMoved
	}
	return nil
}

// Close releases the file. It may be called without Open, and twice.
func (s *Sink) Close() error {
	var err error
	if s.f != nil {
		err = s.f.Close()
		s.f = nil
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	s.torn = false
	return err
}

// Write appends the changes whose keys are not known yet, all in one piece,
// and fsyncs. When it fails nothing of them is in the file, or it will be cut
// off before the next Write. Ctx is looked at once, before anything is written.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	if err := ctx.Err(); err != nil {
		return classify("write", err)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	lines, fresh := s.buf[:0], make([]key, 0, len(changes))
	inBatch := make(map[key]bool, len(changes))
	for i := range changes {
		k := keyOf(changes[i].Key)
		if inBatch[k] || s.keys.has(k) {
			continue
		}
		inBatch[k] = true
		fresh = append(fresh, k)
		lines = append(changes[i].AppendRecord(lines), '\n')
	}
	if cap(lines) <= maxKept {
		s.buf = lines
	}
	if len(lines) == 0 {
		return nil
	}
	if err := s.append(lines); err != nil {
		return classify("write", err)
	}
	for _, k := range fresh {
		s.keys.add(k)
	}
	return nil
}

// append makes lines durable at the end of the file, or takes them back.
func (s *Sink) append(lines []byte) error {
	_, err := s.f.WriteAt(lines, s.size)
	if err == nil {
		// After a failed fsync the kernel may take the pages for clean. They are truncated, and
		// the repetition writes them again.
		err = s.f.Sync()
	}
	if err != nil {
		s.torn = true
		return errors.Join(err, s.takeBack())
	}
	s.size += int64(len(lines))
	return nil
}

// takeBack cuts off the rest of a failed Write.
func (s *Sink) takeBack() error {
	if err := s.f.Truncate(s.size); err != nil {
		return fmt.Errorf("cut off the part that was written: %w", err)
	}
	if err := s.f.Sync(); err != nil {
		return err
	}
	s.torn = false
	return nil
}

// ready makes sure that the path still names the file as this sink left it.
func (s *Sink) ready(ctx context.Context) error {
	if s.f == nil {
		return s.Open(ctx)
	}
	if s.torn {
		if err := s.takeBack(); err != nil {
			return classify("write", err)
		}
	}
	there, err := os.Stat(s.path) // #nosec G703 -- the path is the operator's
	if err == nil {
		ours, err := s.f.Stat()
		if err != nil {
			return classify("write", err)
		}
		if os.SameFile(there, ours) && ours.Size() == s.size {
			return nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return classify("write", err)
	}
	return s.Open(ctx)
}
