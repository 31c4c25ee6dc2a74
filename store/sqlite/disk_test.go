package sqlite

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite/disk"
)

// faults come between a Disk and the file system. Calls of one file come one at a time, those
// of several files at the same time. Offsets and sizes are in bytes.
type faults interface {
	// Write returns how much of b is to be written; with an error the rest is not,
	// and the write fails with it.
	Write(file string, at int64, b []byte) (int, error)
	Truncate(file string, size int64) error
	Sync(file string) error
	Delete(file string) error
}

// faultyVFS is the driver's file system with faults.
type faultyVFS struct {
	vfs.VFS
	faults
}

func (v faultyVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	opened, out, err := vfsutil.WrapOpenFilename(v.VFS, name, flags)
	if err != nil || flags&(vfs.OPEN_MAIN_DB|vfs.OPEN_WAL) == 0 {
		return opened, out, err
	}
	return faultyFile{opened, v.faults, name.String()}, out, nil
}

func (v faultyVFS) Delete(name string, syncDir bool) error {
	if err := v.faults.Delete(name); err != nil {
		return err
	}
	return v.VFS.Delete(name, syncDir)
}

type faultyFile struct {
	vfs.File
	faults
	name string
}

func (f faultyFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }
func (f faultyFile) HasMoved() (bool, error)        { return vfsutil.WrapHasMoved(f.File) }

func (f faultyFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.Write(f.name, at, b)
	if err != nil {
		n, _ = f.File.WriteAt(b[:n], at)
		return n, err
	}
	return f.File.WriteAt(b, at)
}

func (f faultyFile) Truncate(size int64) error {
	if err := f.faults.Truncate(f.name, size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f faultyFile) Sync(flags vfs.SyncFlag) error {
	if err := f.faults.Sync(f.name); err != nil {
		return err
	}
	return f.File.Sync(flags)
}

// faulty lets everything through but syncs that sync fails.
type faulty struct {
	mu   sync.Mutex
	sync func(file string) error // guarded by mu
}

func (f *faulty) Sync(file string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sync == nil {
		return nil
	}
	return f.sync(file)
}

func (f *faulty) Write(_ string, _ int64, b []byte) (int, error) { return len(b), nil }
func (f *faulty) Truncate(string, int64) error                   { return nil }
func (f *faulty) Delete(string) error                            { return nil }

func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// openFaulty opens a file of its own on faults.
func openFaulty(t testing.TB, path string, f faults) *Store {
	t.Helper()
	o := Options{Path: path}
	if f != nil {
		o.under = faultyVFS{vfs.Find(""), f}
	}
	s, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() }) // it may not be able to write
	return s
}

func requireFailed(t testing.TB, s *Store) {
	t.Helper()
	select {
	case <-s.Failed():
	default:
		require.Fail(t, "nothing was noticed")
	}
}

func checkpoint(t testing.TB, s *Store) {
	t.Helper()
	_, err := s.writer.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`)
	require.NoError(t, err)
}

// After an fsync that failed nothing is acknowledged any more, not even when the next
// one succeeds; earlier acknowledged writes are there for the next process.
func TestFailedSyncEndsAllWriting(t *testing.T) {
	for _, suffix := range []string{"-wal", ""} {
		t.Run("state.db"+suffix, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			faults := &faulty{}
			s := openFaulty(t, path, faults)
			require.NoError(t, s.Migrate(t.Context()))
			l := openLog(t, s, 1)
			require.NoError(t, l.Append(t.Context(), frameOf("0")))

			failures := 0
			faults.set(func() {
				faults.sync = func(file string) error {
					if failures > 0 || file != path+suffix {
						return nil // as the kernel has it: the second one succeeds
					}
					failures++
					return errors.New("bad sector")
				}
			})
			if suffix == "" { // what SQLite itself does not report
				_, _ = s.writer.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`)
			} else {
				require.Equal(t, store.Unknown, store.ClassOf(l.Append(t.Context(), frameOf("1"))))
			}
			require.Equal(t, 1, failures)
			requireFailed(t, s)
			require.ErrorIs(t, s.Err(), disk.ErrSync)
			require.ErrorContains(t, s.Err(), path+suffix)
			err := l.Append(t.Context(), frameOf("2"))
			require.ErrorIs(t, err, disk.ErrSync)
			require.Equal(t, store.Fatal, store.ClassOf(err))
			require.ErrorIs(t, s.Ping(t.Context()), disk.ErrSync, "not ready")
			require.NoError(t, s.Close())

			next := open(t, path)
			l, err = next.FindLog(t.Context(), "log")
			require.NoError(t, err)
			there := bodies(t, l, 0)
			require.Equal(t, "0", there[0])
			require.NotContains(t, there, "2")
			require.NoError(t, l.Append(t.Context(), frameOf("3")))
		})
	}
}

// fill decides and appends until the file has some hundred pages of all tables that
// the flow writes, half of them in the write-ahead log.
func fill(t testing.TB, s *Store) *Log {
	t.Helper()
	require.NoError(t, s.Migrate(t.Context()))
	l := openLog(t, s, 1)
	revision, err := s.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	partition := store.Partition{Generation: 1}
	_, err = s.TakeOver(t.Context(), []store.Partition{partition}, store.Token{1})
	require.NoError(t, err)
	for i := range int64(60) {
		require.NoError(t, l.Append(t.Context(), frameOf(fmt.Sprintf("%d %s", i, strings.Repeat("x", 3000)))))
		err := s.Decide(t.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: partition, From: i, To: i + 1, Token: store.Token{1}}}},
			func(store.Loaded) (store.Outcome, error) {
				return store.Outcome{
					Entities: []store.Entity{{ID: fmt.Sprint("entity ", i), Docs: []byte(`{"a":"` + strings.Repeat("y", 2000) + `"}`)}},
					Frames:   []store.Frame{{Partition: partition, To: change.NewVersion(1, i+1), Body: make([]byte, 500)}},
				}, nil
			})
		require.NoError(t, err)
		if i == 30 {
			checkpoint(t, s)
		}
	}
	return l
}

// scan reads all that fill wrote, and returns it as a text.
func scan(t testing.TB, s *Store) (text string, err error) {
	t.Helper()
	var b strings.Builder
	l, err := s.FindLog(t.Context(), "log")
	if err != nil {
		return "", err
	}
	frames, err := l.Read(t.Context(), 0, 0, 1<<30)
	if err != nil {
		return "", err
	}
	for _, f := range frames {
		fmt.Fprintln(&b, f.First, string(f.Body))
	}
	entities, err := s.Entities(t.Context(), "", 1000)
	if err != nil {
		return "", err
	}
	for _, e := range entities {
		fmt.Fprintln(&b, e.ID, string(e.Docs))
	}
	marks, err := s.Watermarks(t.Context())
	if err != nil {
		return "", err
	}
	tail, err := s.Frames(t.Context(), 0, 0, 1<<30)
	fmt.Fprintln(&b, marks, tail)
	return b.String(), err
}

// killed copies the files of a database as they are, as a killed process leaves them.
func killed(t testing.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "state.db")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		content, err := os.ReadFile(path + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to+suffix, content, 0o600))
	}
	return to
}

// lastCommit is at least as many bytes as the last transaction of fill has in the log.
const lastCommit = 20 * (4096 + 24)

// For any bit that the disk turns: reads return the written data, or the
// error says which file is damaged, and nothing is written any more.
func TestFlippedBits(t *testing.T) {
	origin := filepath.Join(t.TempDir(), "origin.db")
	s := openFaulty(t, origin, nil)
	fill(t, s)
	want, err := scan(t, s)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	path := killed(t, origin)
	found := map[string]int{}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		for range 15 {
			name := path + suffix
			content, err := os.ReadFile(origin + suffix)
			require.NoError(t, err)
			for _, other := range []string{"", "-wal", "-shm"} {
				sound, err := os.ReadFile(origin + other)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path+other, sound, 0o600))
			}
			at := random.IntN(len(content))
			content[at] ^= 1 << random.IntN(8)
			require.NoError(t, os.WriteFile(name, content, 0o600))
			got, err := reopened(t, path)
			switch {
			case err != nil:
				require.ErrorIs(t, err, ErrDamaged, "%s, byte %d", name, at)
				found[suffix]++
			case suffix == "-wal" && at > len(content)-lastCommit:
				// The transaction that may have been under way.
				require.True(t, got == want || len(got) < len(want), "byte %d", at)
			default:
				require.Equal(t, want, got, "%s, byte %d", name, at)
			}
		}
	}
	require.Positive(t, found[""])
	require.Positive(t, found["-wal"])
	require.Zero(t, found["-shm"], "it is built anew")
}

// reopened is the whole content as a new process reads it.
func reopened(t *testing.T, path string) (string, error) {
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		return "", err
	}
	defer s.Close()
	text, err := scan(t, s)
	if err == nil { // also what nobody reads
		var said string
		err = s.readers.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&said)
		if err == nil && said != "ok" {
			err = fmt.Errorf("%w: %s", ErrDamaged, said)
		}
		err = classify(err)
	}
	if err != nil && s.Err() != nil {
		require.ErrorIs(t, s.Ping(t.Context()), ErrDamaged)
		err = fmt.Errorf("%w: %w", err, s.Err())
	}
	return text, err
}

// A page that is where another should be, or nothing but zeroes, is damaged.
func TestMisplacedAndZeroedPages(t *testing.T) {
	for name, damage := range map[string]func(content []byte){
		"misplaced": func(content []byte) { copy(content[10*4096:11*4096], content[11*4096:12*4096]) },
		"zeroed":    func(content []byte) { clear(content[10*4096 : 11*4096]) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := openFaulty(t, path, nil)
			fill(t, s)
			require.NoError(t, s.Close())
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			damage(content)
			require.NoError(t, os.WriteFile(path, content, 0o600))
			_, err = reopened(t, path)
			require.ErrorContains(t, err, "page 11, at byte 40960")
		})
	}
	t.Run("cut", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state.db")
		s := openFaulty(t, path, nil)
		fill(t, s)
		require.NoError(t, s.Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()-3*4096))
		_, err = reopened(t, path)
		require.ErrorIs(t, err, ErrDamaged)
	})
}

// plain opens a file without the layer, as another program does.
func plain(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: path}).EscapedPath())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// A look with another program after a kill moves the log into the file, and harms
// nothing.
func TestAnotherProgramLooksAfterAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openFaulty(t, path, nil)
	fill(t, s) // pages with checksums, some of which are changed again in the log
	want, err := scan(t, s)
	require.NoError(t, err)
	killed := filepath.Join(t.TempDir(), "state.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(path + suffix)
		require.NoError(t, err)
		require.NotEmpty(t, content)
		require.NoError(t, os.WriteFile(killed+suffix, content, 0o600))
	}
	other := plain(t, killed)
	var n int
	require.NoError(t, other.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_master`).Scan(&n))
	require.NoError(t, other.Close())
	require.NoFileExists(t, killed+"-wal")
	got, err := reopened(t, killed)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, s.Close())
}

// A file that another program wrote as a whole, a backup for instance, is accepted,
// and its pages get their checksums; a page changed in place is refused.
func TestFilesOfOtherPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openFaulty(t, path, nil)
	fill(t, s)
	want, err := scan(t, s)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	backup := filepath.Join(t.TempDir(), "backup.db")
	other := plain(t, path)
	// More than the log takes before its pages move into the file.
	_, err = other.ExecContext(t.Context(), `CREATE TABLE filler (b); INSERT INTO filler VALUES (zeroblob(20000000))`)
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), `VACUUM INTO ?`, backup)
	require.NoError(t, err)
	got, err := reopened(t, backup)
	require.NoError(t, err)
	require.Equal(t, want, got)
	content, err := os.ReadFile(backup)
	require.NoError(t, err)
	for at := 0; at < len(content); at += 4096 {
		require.NotZero(t, binary.BigEndian.Uint64(content[at+4096-disk.Reserved:]), "page %d", at/4096+1)
	}

	_, err = other.ExecContext(t.Context(), `UPDATE watermarks SET next_offset = 3`)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	_, err = reopened(t, path)
	require.ErrorIs(t, err, ErrDamaged)

	other = plain(t, path)
	_, err = other.ExecContext(t.Context(), `VACUUM`)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	got, err = reopened(t, path)
	require.NoError(t, err)
	require.NotEqual(t, want, got, "what was changed")
}
