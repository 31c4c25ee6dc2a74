package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"sync"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/seed-86dfc502/weir/internal/durable"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite/disk"
)

// A wait for a writer in another handle fails with class Retry after patience.
// The driver itself waits in slices, since it does not look at the context
// meanwhile.
const (
	patience         = 10 * time.Second
	busyMilliseconds = 50
)

// writing are the settings of connections that write. SQLite's own cache of 2 MB holds
// less than a decision of a thousand entities changes: what does not fit is written into
// the log before the commit, read back, and written again. And pages move from the log
// into the file within a commit, each time that the log has so many: most are entities',
// which change again soon. The log takes 16 MiB of disk then. Pages that a savepoint may
// restore are in memory, not in a file that each transaction writes.
const writing = "&_txlock=immediate&_pragma=cache_size(-8192)&_pragma=wal_autocheckpoint(4096)&_pragma=temp_store(memory)"

// Options say where the file is.
type Options struct {
	// Path of the database file; its folder must exist. Two more files appear
	// beside it while it is open (-wal, -shm), and a lock file once it was
	// migrated (.lock). It must be on a local file system.
	Path string
	// ReadOnly opens a file that is there for who may only read it and its folder:
	// nothing is written, calls that would fail. Commits of a running process are
	// seen. Without one the file is read as it is, so a process must not start
	// meanwhile. After a process that was killed SQLite needs the files beside it:
	// where those cannot be used, Open says so.
	ReadOnly bool

	under vfs.VFS // in tests: the file system; nil means the driver's
}

// Store is a store.Store in SQLite.
type Store struct {
	records
	path    string
	disk    *disk.Disk
	writer  *sql.DB // the connection of writes, and one for Migrate
	writes  writer
	readers *sql.DB
	now     func() time.Time // of claims

	closed   sync.Once
	patience time.Duration // patience, but in tests of many writers
	linger   time.Duration // linger, but in tests

	mu    sync.Mutex
	kept  []*keptConn // guarded by mu; readers that are idle
	ended bool        // guarded by mu; Close was called
}

// Open opens or creates the file. A new one is for its user alone: it holds
// documents. Close ends it.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Path == "" {
		return nil, bug("no path")
	}
	if o.ReadOnly {
		return openReadOnly(ctx, o.Path)
	}
	if err := errors.Join(disk.Make(o.Path), durable.Reread(o.Path+"-wal")); err != nil {
		return nil, failed("open", err)
	}
	layer := disk.New(o.under)
	settings := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyMilliseconds), // first: the next ones may have to wait
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"fullfsync(1)", // where fsync alone does not reach the disk
	}, "vfs": {layer.Name()}}
	writer, err := sql.Open("sqlite3", locate(o.Path, settings)+writing)
	if err != nil {
		layer.Release()
		return nil, failed("open", err)
	}
	writer.SetMaxOpenConns(2)
	readers, err := sql.Open("sqlite3", locate(o.Path, settings)+"&_pragma=query_only(1)")
	if err != nil {
		layer.Release()
		return nil, failed("open", errors.Join(err, writer.Close()))
	}
	readers.SetMaxOpenConns(keptReaders + max(4, runtime.GOMAXPROCS(0)))
	readers.SetMaxIdleConns(max(4, runtime.GOMAXPROCS(0))) // to open one costs more than most reads
	s := &Store{path: o.Path, disk: layer, writer: writer, readers: readers, now: time.Now, patience: patience, linger: linger}
	s.DB, s.Dam = database{s}, s
	s.writes.turn = make(chan struct{}, 1)
	// The first connection creates the file and sets its journal mode.
	if err := s.retryBusy(ctx, func() error { return writer.PingContext(ctx) }); err != nil {
		return nil, failed("open", errors.Join(err, layer.Err(), s.Close()))
	}
	if layer.Unsealed() {
		// Commands may read the file meanwhile.
		if err := s.retryBusy(ctx, func() error { return s.seal(ctx) }); err != nil {
			return nil, failed("give the pages their checksums", errors.Join(err, layer.Err(), s.Close()))
		}
	}
	return s, nil
}

// seal writes all pages again, with checksums.
func (s *Store) seal(ctx context.Context) error {
	_, err := s.writer.ExecContext(ctx, `VACUUM; PRAGMA wal_checkpoint(TRUNCATE)`)
	return err
}

// locate returns the name of the file with settings, as the driver takes it.
func locate(path string, settings url.Values) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + settings.Encode()
}

func openReadOnly(ctx context.Context, path string) (*Store, error) {
	settings := url.Values{"mode": {"ro"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyMilliseconds), "query_only(1)"}}
	log, err := os.Stat(path + "-wal")
	logged := err == nil && log.Size() > 0
	if !logged {
		// Everything is in the file itself. To lock it SQLite would have to make
		// the file -shm.
		settings.Set("immutable", "1")
	}
	layer := disk.New(nil)
	settings.Set("vfs", layer.Name())
	readers, err := sql.Open("sqlite3", locate(path, settings))
	if err != nil {
		layer.Release()
		return nil, failed("open", err)
	}
	readers.SetMaxOpenConns(2)
	s := &Store{path: path, disk: layer, writer: readers, readers: readers, now: time.Now, patience: patience, linger: linger}
	s.DB, s.Dam = database{s}, s
	s.writes.turn = make(chan struct{}, 1)
	if err := s.retryBusy(ctx, func() error { return s.Ping(ctx) }); err != nil {
		if logged {
			err = fmt.Errorf("%w (what was written last is in %s-wal, which can be read only while a process runs, or by who may write in the folder)", err, path)
		}
		return nil, failed("open to read", errors.Join(err, s.Close()))
	}
	return s, nil
}

// Ping reads from the file; a failure of Err lasts.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return store.WithClass(err, store.Fatal)
	}
	var n int
	err := failed("ping", s.readers.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&n))
	s.noteDamage(err)
	return err
}

// Close closes all connections; calls under way end first. It may be called
// twice.
func (s *Store) Close() error {
	w := &s.writes
	w.turn <- struct{}{}
	defer func() { <-w.turn }() // to writes that find everything closed
	if w.open != nil {
		s.commit(w.open) // its members counted on a later write to commit
	}
	if w.conn != nil {
		w.conn.forget()
		_ = w.conn.Close()
		w.conn = nil
	}
	s.dropReaders()
	err := errors.Join(s.readers.Close(), s.writer.Close())
	s.closed.Do(s.disk.Release)
	return err
}

// failed names the operation and sorts the error; nil stays nil.
func failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	return classify(fmt.Errorf("sqlite: %s: %w", operation, err))
}

// bug is an error of the caller that no repetition heals.
func bug(format string, args ...any) error {
	return store.WithClass(fmt.Errorf("sqlite: "+format, args...), store.Fatal)
}
