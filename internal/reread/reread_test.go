package reread

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a file, a clock, and the reports.
type world struct {
	t     *testing.T
	path  string
	now   time.Time
	loads int
	told  []error
	value *Value[string]
}

var errWrong = errors.New("wrong")

func newWorld(t *testing.T) *world {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "file"), now: time.Now()}
	w.write("one")
	var err error
	w.value, err = open([]string{w.path}, w.load, func(err error) { w.told = append(w.told, err) }, func() time.Time { return w.now })
	require.NoError(t, err)
	return w
}

func (w *world) load() (string, error) {
	w.loads++
	text, err := os.ReadFile(w.path)
	if string(text) == "wrong" {
		err = errWrong
	}
	return string(text), err
}

// write writes in place and sets the file's time to the world's.
func (w *world) write(text string) {
	require.NoError(w.t, os.WriteFile(w.path, []byte(text), 0o600))
	require.NoError(w.t, os.Chtimes(w.path, w.now, w.now))
}

// after returns the value after a time.
func (w *world) after(d time.Duration) string {
	w.now = w.now.Add(d)
	return w.value.Get()
}

func TestReread(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, "one", w.after(time.Minute))
	require.Equal(t, 2, w.loads, "the file was just written when it was opened")
	require.Equal(t, "one", w.after(time.Minute))
	require.Equal(t, 2, w.loads, "nothing changed")
	require.Empty(t, w.told)

	w.write("two")
	require.Equal(t, "one", w.after(0), "files are looked at once per second")
	require.Equal(t, "two", w.after(time.Second))
	require.Equal(t, []error{nil}, w.told)
	// As long, and within the time that a file system tells apart.
	at := w.now.Add(-time.Second)
	require.NoError(t, os.WriteFile(w.path, []byte("six"), 0o600))
	require.NoError(t, os.Chtimes(w.path, at, at))
	require.Equal(t, "six", w.after(time.Second))

	w.now = w.now.Add(time.Minute)
	w.write("wrong")
	for range 5 {
		require.Equal(t, "six", w.after(time.Minute))
	}
	require.Len(t, w.told, 2, "a failure is told once")
	require.ErrorIs(t, w.told[1], errWrong)
	require.NoError(t, os.Remove(w.path))
	require.Equal(t, "six", w.after(time.Minute))
	require.Equal(t, "six", w.after(time.Minute))
	require.Len(t, w.told, 3)
	require.ErrorIs(t, w.told[2], os.ErrNotExist)
	w.write("ten")
	require.Equal(t, "ten", w.after(time.Minute))
	require.Len(t, w.told, 4)
	require.NoError(t, w.told[3])
}

// A link that is turned to another file, as Kubernetes does, is a change.
func TestRereadFollowsLinks(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		old := w.now.Add(-time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	link := func(to string) {
		require.NoError(t, os.Symlink(filepath.Join(dir, to), w.path+".new"))
		require.NoError(t, os.Rename(w.path+".new", w.path))
	}
	link("a")
	require.Equal(t, "a", w.after(time.Minute))
	link("b")
	require.Equal(t, "b", w.after(time.Minute))
}

func TestOpenFails(t *testing.T) {
	_, err := Open([]string{"/does/not/exist"}, func() (string, error) { return "", errWrong }, nil)
	require.ErrorIs(t, err, errWrong)
}

func TestConcurrentReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o600))
	v, err := Open([]string{path}, func() (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}, func(error) {})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("two two"), 0o600))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for began := time.Now(); v.Get() != "two two"; {
				if time.Since(began) > time.Minute {
					t.Error("nobody read the file again")
					return
				}
			}
		})
	}
	wg.Wait()
}
