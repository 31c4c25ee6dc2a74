package file

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
)

func newSink(t testing.TB, path string) *Sink {
	t.Helper()
	s := New(path)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func openSink(t testing.TB, path string) *Sink {
	t.Helper()
	s := newSink(t, path)
	require.NoError(t, s.Open(t.Context()))
	return s
}

func upsert(n int) change.Change {
	return sinktest.Change("acme/ripeness@archive", fmt.Sprintf("b-%d", n%3), change.NewVersion(1, int64(n)), fmt.Appendf(nil, `{"n":%d}`, n))
}

func upserts(from, to int) (out []change.Change) {
	for n := from; n < to; n++ {
		out = append(out, upsert(n))
	}
	return out
}

func lines(changes ...change.Change) (out []byte) {
	for i := range changes {
		out = append(changes[i].AppendRecord(out), '\n')
	}
	return out
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// reader reads a file as those do who follow it: further at each call.
type reader struct {
	path string
	at   int64
	all  []change.Change
}

func (r *reader) log(t testing.TB) []change.Change {
	t.Helper()
	f, err := os.Open(r.path)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Seek(r.at, io.SeekStart)
	require.NoError(t, err)
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var v struct {
			Service, Entity, Key string
			Op                   change.Op
			Version              change.Version
			Doc                  json.RawMessage
		}
		require.NoError(t, json.Unmarshal(sc.Bytes(), &v), "%.200q", sc.Text())
		r.all = append(r.all, change.Change{Service: v.Service, Entity: v.Entity, Op: v.Op, Version: v.Version, Key: v.Key, Doc: v.Doc})
		r.at += int64(len(sc.Bytes())) + 1
	}
	require.NoError(t, sc.Err())
	return r.all
}

func TestConformance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folders", "out.jsonl")
	disk, follower := &failingDisk{}, &reader{path: path}
	sinktest.Run(t, sinktest.Target{
		Kind: sinks.Log,
		New: func(t testing.TB) sinks.Sink {
			s := New(path)
			s.open = disk.open
			return s
		},
		Log:    follower.log,
		Outage: func(testing.TB) (down, up func()) { return disk.fill, disk.clean },
	})
}

// failingDisk is a disk that can be full or broken.
type failingDisk struct {
	full     bool
	sync     error
	truncate error
}

func (d *failingDisk) fill()  { d.full = true }
func (d *failingDisk) clean() { *d = failingDisk{} }

func (d *failingDisk) open(path string) (handle, error) {
	f, err := openFile(path)
	return &failingFile{f, d}, err
}

type failingFile struct {
	handle
	disk *failingDisk
}

func (f *failingFile) WriteAt(b []byte, at int64) (int, error) {
	if !f.disk.full {
		return f.handle.WriteAt(b, at)
	}
	n, err := f.handle.WriteAt(b[:len(b)/2], at)
	return n, errors.Join(&os.PathError{Op: "write", Path: "out", Err: syscall.ENOSPC}, err)
}

func (f *failingFile) Sync() error { return errors.Join(f.disk.sync, f.handle.Sync()) }
func (f *failingFile) Truncate(size int64) error {
	return errors.Join(f.disk.truncate, f.handle.Truncate(size))
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := openSink(t, path)
	retract := sinktest.Change("acme/ripeness@archive", "line\nbreak \u2028", change.NewVersion(1, 9), nil)
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert(1), retract}))
	require.Equal(t, string(lines(upsert(1), retract)), content(t, path))
	require.Equal(t, 2, strings.Count(content(t, path), "\n"))
}

// A crash may leave any part of the last Write. After any rest, a start
// and a repetition give every line once, in order.
func TestTornAtEveryByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	whole := lines(upserts(0, 3)...)
	for n := range len(whole) + 1 {
		require.NoError(t, os.WriteFile(path, whole[:n], fileMode))
		s := openSink(t, path)
		require.NoError(t, s.Write(t.Context(), upserts(0, 4)))
		require.NoError(t, s.Close())
		require.Equal(t, string(lines(upserts(0, 4)...)), content(t, path), "cut at byte %d", n)
	}
}

// After a power loss a file may have its length but not its bytes. Zeros
// are cut off only when no record behind them may have been confirmed.
func TestZeroedAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	whole := lines(upserts(0, 3)...)
	confirmed, last := len(lines(upsert(0))), len(lines(upserts(0, 2)...))
	for from := confirmed; from < len(whole); from++ {
		for _, to := range []int{from + 1, len(whole)} {
			b := bytes.Clone(whole)
			clear(b[from:to])
			require.NoError(t, os.WriteFile(path, b, fileMode))
			s := newSink(t, path)
			err := s.Open(t.Context())
			if to <= last || to == from+1 && err != nil { // a single one may be a bit that turned
				require.ErrorIs(t, err, errDamaged, "bytes %d to %d", from, to)
				e := sinks.Classify(err)
				require.Equal(t, sinks.Pause, e.Class)
				require.NotEmpty(t, e.Hint)
				require.Equal(t, string(b), content(t, path), "bytes %d to %d", from, to)
				continue
			}
			require.NoError(t, err, "bytes %d to %d", from, to)
			require.NoError(t, s.Write(t.Context(), upserts(0, 4)))
			require.NoError(t, s.Close())
			require.Equal(t, string(lines(upserts(0, 4)...)), content(t, path), "bytes %d to %d", from, to)
		}
	}
}

// A bit flip in the last lines costs none of them: the sink appends behind them, or
// reports the damaged place and changes nothing.
func TestFlippedBitsAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	whole := lines(upserts(0, 3)...)
	last := len(lines(upserts(0, 2)...))
	said := 0
	for at := range len(whole) * 8 {
		// All bits of the newlines, and one of each other byte of the last line.
		if newline := whole[at/8] == '\n'; at/8 < last-1 || !newline && at/8%8 != at%8 {
			continue
		}
		b := bytes.Clone(whole)
		b[at/8] ^= 1 << (at % 8)
		require.NoError(t, os.WriteFile(path, b, fileMode))
		s := newSink(t, path)
		if err := s.Open(t.Context()); err != nil {
			said++
			require.Equal(t, sinks.Pause, sinks.Classify(err).Class, "bit %d: %v", at, err)
			require.Equal(t, string(b), content(t, path), "bit %d", at)
			continue
		}
		require.NoError(t, s.Write(t.Context(), upserts(3, 4)))
		require.NoError(t, s.Close())
		require.Equal(t, string(b)+string(lines(upsert(3))), content(t, path), "bit %d", at)
	}
	require.Greater(t, said, 16)
}

// A disk that loses a sector of old, confirmed lines must not cost the
// records behind it, wherever they begin.
func TestZeroedSectorInAnOldPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	whole := lines(upserts(0, 200)...)
	for from := 512; from < 2048; from += 64 {
		b := bytes.Clone(whole)
		clear(b[from : from+512])
		for _, end := range [][]byte{b, b[:len(b)-1], append(bytes.Clone(b), 0, 0), append(bytes.Clone(b), "\x00\n{"...)} {
			require.NoError(t, os.WriteFile(path, end, fileMode))
			require.ErrorIs(t, newSink(t, path).Open(t.Context()), errDamaged, "from byte %d", from)
			require.Equal(t, string(end), content(t, path))
		}
	}
}

// Several lines of the last Write may have holes.
func TestZeroedInSeveralLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	record := string(lines(upsert(0)))
	for _, end := range []string{"{\"ser\x00\x00}\n{\x00\n", "\x00}\n\x00\x00\n{\"service\":", "\x00\n\x00"} {
		require.NoError(t, os.WriteFile(path, []byte(record+end), fileMode))
		s := newSink(t, path)
		require.NoError(t, s.Open(t.Context()), "%q", end)
		require.Equal(t, record, content(t, path), "%q", end)
		require.NoError(t, s.Close())
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	record := string(lines(upsert(0)))
	for _, foreign := range []string{
		"some text without a newline", "a,b,c\n1,2,3\n", `{"other":1}` + "\n", "\n", "\x7fELF\x00\x00",
		record + "hello\n", record + "{\"service\":1}\n" + record, record + record + "a note", record + "\n" + record,
		record + "\x00\na note\n", record + "\x00\na note",
	} {
		require.NoError(t, os.WriteFile(path, []byte(foreign), fileMode))
		err := newSink(t, path).Open(t.Context())
		require.ErrorIs(t, err, errForeign, "%q", foreign)
		require.Equal(t, sinks.Pause, sinks.Classify(err).Class)
		require.NotContains(t, err.Error(), "hello")
		require.Equal(t, foreign, content(t, path))
	}
}

func TestOneProcessPerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	first := openSink(t, path)
	second := newSink(t, path)
	err := second.Open(t.Context())
	require.ErrorIs(t, err, errLocked)
	require.Equal(t, sinks.Retry, sinks.Classify(err).Class)
	require.NotEmpty(t, sinks.Classify(err).Hint)
	require.NoError(t, first.Write(t.Context(), upserts(0, 2)))
	require.NoError(t, first.Close())
	require.NoError(t, second.Open(t.Context()))
	require.NoError(t, second.Write(t.Context(), upserts(1, 3)))
	require.Equal(t, string(lines(upserts(0, 3)...)), content(t, path))
}

func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	disk := &failingDisk{}
	s := newSink(t, path)
	s.open = disk.open
	require.NoError(t, s.Open(t.Context()))
	require.NoError(t, s.Write(t.Context(), upserts(0, 2)))

	disk.full = true
	err := s.Write(t.Context(), upserts(2, 5))
	require.ErrorIs(t, err, syscall.ENOSPC)
	e := sinks.Classify(err)
	require.Equal(t, sinks.Retry, e.Class)
	require.False(t, e.Ambiguous)
	require.Contains(t, e.Hint, "room")
	require.Equal(t, string(lines(upserts(0, 2)...)), content(t, path), "what was written of it is cut off")

	// Not even cutting off works: it is done before the next Write.
	disk.truncate = syscall.EIO
	require.ErrorIs(t, s.Write(t.Context(), upserts(2, 5)), syscall.ENOSPC)
	require.ErrorIs(t, s.Write(t.Context(), upserts(2, 5)), syscall.EIO)
	disk.clean()
	require.NoError(t, s.Write(t.Context(), upserts(2, 5)))
	require.Equal(t, string(lines(upserts(0, 5)...)), content(t, path))
}

func TestFailedSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	disk := &failingDisk{}
	s := newSink(t, path)
	s.open = disk.open
	require.NoError(t, s.Open(t.Context()))
	disk.sync = syscall.EIO
	err := s.Write(t.Context(), upserts(0, 2))
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, sinks.Retry, sinks.Classify(err).Class)
	require.Empty(t, content(t, path), "what was not made durable is not left for the next fsync")
	disk.clean()
	require.NoError(t, s.Write(t.Context(), upserts(0, 2)))
	require.Equal(t, string(lines(upserts(0, 2)...)), content(t, path))
}

func TestMovedDeletedCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "out.jsonl")
	s := openSink(t, path)
	write := func(changes []change.Change) {
		t.Helper()
		require.NoError(t, s.Write(t.Context(), changes))
	}
	write(upserts(0, 2))
	require.NoError(t, os.Rename(path, path+".1"))
	write(upserts(1, 3))
	require.Equal(t, string(lines(upserts(0, 2)...)), content(t, path+".1"))
	require.Equal(t, string(lines(upsert(2))), content(t, path), "keys are known through it")
	require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	write(upserts(3, 4))
	require.Equal(t, string(lines(upsert(3))), content(t, path))
	require.NoError(t, os.Truncate(path, 0))
	write(upserts(4, 5))
	require.Equal(t, string(lines(upsert(4))), content(t, path))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(lines(upsert(5)))
	require.NoError(t, errors.Join(err, f.Close()))
	write(upserts(5, 7))
	require.Equal(t, string(lines(upserts(4, 7)...)), content(t, path))
}

// A repeated change is written again if an operator removed its line, and only then.
func TestShortenedFilesForgetTheirLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := openSink(t, path)
	for keep := range 3 {
		require.NoError(t, s.Write(t.Context(), upserts(0, 4)))
		require.NoError(t, os.Truncate(path, int64(len(lines(upserts(0, keep)...)))))
		require.NoError(t, s.Write(t.Context(), upserts(0, 4)))
		require.Equal(t, string(lines(upserts(0, 4)...)), content(t, path), "%d lines were left", keep)
	}

	// Also when the first Open after it fails.
	foreign := append(lines(upsert(0)), '\n', '\n')
	require.NoError(t, os.WriteFile(path, foreign, fileMode))
	require.ErrorIs(t, s.Write(t.Context(), upserts(0, 4)), errForeign)
	require.NoError(t, os.Truncate(path, 0))
	require.NoError(t, s.Write(t.Context(), upserts(0, 4)))
	require.Equal(t, string(lines(upserts(0, 4)...)), content(t, path))
}

func TestWriteAfterAnOpenThatFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	first, second := openSink(t, path), newSink(t, path)
	require.Error(t, second.Open(t.Context()))
	require.Error(t, second.Write(t.Context(), upserts(0, 1)))
	require.NoError(t, first.Close())
	require.NoError(t, second.Write(t.Context(), upserts(0, 1)))
}

// Devices, pipes and folders are refused, and a pipe is not waited for.
func TestIrregularPathsPause(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{folder, pipe, os.DevNull} {
		err := New(path).Open(t.Context())
		require.Equal(t, sinks.Pause, sinks.Classify(err).Class, path)
		require.ErrorContains(t, err, "names a device, a pipe or a folder")
	}
}

func TestPathErrorsPause(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, fileMode))
	for _, path := range []string{dir, filepath.Join(dir, "file", "out.jsonl"), filepath.Join(dir, strings.Repeat("x", 300))} {
		err := newSink(t, path).Open(t.Context())
		require.Error(t, err)
		require.Equal(t, sinks.Pause, sinks.Classify(err).Class, "%v", err)
	}
	for _, cause := range []error{syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		e := sinks.Classify(classify("open", &os.PathError{Op: "open", Path: "out", Err: cause}))
		require.Equal(t, sinks.Pause, e.Class)
		require.NotEmpty(t, e.Hint)
	}
}

func TestCancelledOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	require.NoError(t, os.WriteFile(path, lines(upserts(0, 3)...), fileMode))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSink(t, path)
	require.ErrorIs(t, s.Open(ctx), context.Canceled)
	require.NoError(t, s.Open(t.Context()))
}

// The window has the documented size: so many keys, and
// after a start so many bytes.
func TestWindowAfterAStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	big := func(n int) change.Change {
		return sinktest.Change("s/p@f", fmt.Sprint(n), change.NewVersion(1, int64(n)), fmt.Appendf(nil, `{"n":%d,"text":%q}`, n, strings.Repeat("x", 6<<20)))
	}
	s := openSink(t, path)
	for n := range 5 {
		require.NoError(t, s.Write(t.Context(), []change.Change{big(n)}))
	}
	require.NoError(t, s.Close())
	s = newSink(t, path)
	s.tail = maxBytes
	require.NoError(t, s.Open(t.Context()))
	for n, known := range []bool{false, false, false, true, true} {
		require.Equal(t, known, s.keys.has(keyOf(big(n).Key)), "change %d", n)
	}
}

func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		w := newWindow(limit)
		var model []int
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			n := rapid.IntRange(0, 8).Draw(t, "key")
			k := keyOf(fmt.Sprint(n))
			known := false
			for _, m := range model {
				known = known || m == n
			}
			if w.has(k) != known {
				t.Fatalf("key %d: known %v, want %v", n, w.has(k), known)
			}
			w.add(k)
			if !known {
				model = append(model, n)
				model = model[max(0, len(model)-limit):]
			}
			if len(w.known) != len(model) {
				t.Fatalf("%d keys are held, want %d", len(w.known), len(model))
			}
		}
	})
}

// FuzzRecover opens files with any end. The only failure is that of a
// foreign file, which stays unchanged; accepted files hold whole records.
func FuzzRecover(f *testing.F) {
	whole := lines(upserts(0, 2)...)
	for _, end := range []string{"", "{", `{"service":"a`, "\x00\x00", "\n", "x\n", string(whole), `{"service":1,"key":"a"}`, "{\"service\":\x00\n{", "\x00\n" + string(whole)} {
		f.Add([]byte(end))
	}
	f.Fuzz(func(t *testing.T, end []byte) {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		before := append(bytes.Clone(whole), end...)
		require.NoError(t, os.WriteFile(path, before, fileMode))
		s := newSink(t, path)
		if err := s.Open(t.Context()); err != nil {
			require.True(t, errors.Is(err, errForeign) || errors.Is(err, errDamaged), "%v", err)
			require.Equal(t, string(before), content(t, path))
			return
		}
		after := content(t, path)
		require.True(t, strings.HasPrefix(after, string(whole)))
		for _, line := range strings.SplitAfter(after, "\n") {
			require.True(t, line == "" || line[len(line)-1] == '\n' && json.Valid([]byte(line)))
		}
	})
}

// A new file costs little memory to open: there may be thousands.
func TestOpeningANewFileAllocatesLittle(t *testing.T) {
	dir := t.TempDir()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const sinks = 20
	for i := range sinks {
		s := New(filepath.Join(dir, fmt.Sprint(i)))
		require.NoError(t, s.Open(t.Context()))
		require.NoError(t, s.Close())
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/sinks, uint64(64<<10))
}
