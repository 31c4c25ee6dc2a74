package file_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

func TestFileReplaced(t *testing.T) {
	f := newFile(t)
	f.write("a1\na2\n")
	r := f.read()
	require.Len(t, r.lines(2), 2)
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	f.write("b1\nb2\n")
	require.Equal(t, []string{"b1", "b2"}, r.lines(2))
	r.close()
	// Both are known: the old one moved back is not read again.
	require.NoError(t, os.Rename(f.path+".1", f.path))
	r = f.read()
	r.nothing()
	f.append("a3\n")
	require.Equal(t, []string{"a3"}, r.lines(1))
}

// A writer that rotates writes its last lines to the old file, which may happen
// between two looks at the path.
func TestFileReadsTheOldFileToItsEnd(t *testing.T) {
	f := newFile(t)
	f.write("a1\n")
	f.poll = 100 * time.Millisecond
	r := f.read()
	for n := range 5 { // the first line of a generation was read, so its end was seen
		letter := string(rune('a' + n))
		require.Equal(t, []string{letter + "1"}, r.lines(1))
		f.append(letter + "2\n" + letter + "3\ntorn")
		require.NoError(t, os.Rename(f.path, f.path+"."+letter))
		f.write(string(rune('b'+n)) + "1\n")
		require.Equal(t, []string{letter + "2", letter + "3"}, r.lines(2))
	}
}

// A rotation that makes the new file itself tells the writer only afterwards: until
// then it writes to the old one. The mistake that this catches: to leave the old
// file at the first end behind the rename.
func TestFileIsReadAsLongAsItsWriterHoldsIt(t *testing.T) {
	f := newFile(t)
	f.linger = time.Hour
	f.write("a1\n")
	r := f.read()
	require.Equal(t, []string{"a1"}, r.lines(1))
	old, err := os.OpenFile(f.path, os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer old.Close()
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	f.write("b1\n")
	for n := range 20 {
		line := "a" + strings.Repeat("x", n+1)
		_, err := old.WriteString(line + "\n")
		require.NoError(t, err)
		require.Equal(t, []string{line}, r.lines(1))
	}
	r.close()
	f.linger = time.Millisecond
	require.Equal(t, []string{"b1"}, f.read().lines(1))
}

// A file that was opened when it was empty, filled and moved away until the next
// look is not under its path any more.
func TestFileWithoutALineIsNotLetGo(t *testing.T) {
	f := newFile(t)
	f.write("")
	f.poll = 300 * time.Millisecond
	r := f.read()
	opened := func() bool {
		fds, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
			return to == f.path
		})
	}
	require.Eventually(t, opened, patience, time.Millisecond)
	f.append("a1\na2\n")
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	f.write("b1\n")
	require.Equal(t, []string{"a1", "a2"}, r.lines(2))
	require.Equal(t, []string{"b1"}, r.lines(1))
}

// It grows beyond all old positions before a line is acknowledged.
func TestFileThatShrankIsReadFromItsStart(t *testing.T) {
	f := newFile(t)
	f.write("same\n2\n3\n4\n")
	r := f.read()
	require.Len(t, r.lines(4), 4)
	r.close()
	f.write("same\n")
	r = f.read()
	r.next()
	r.close()
	f.append(strings.Repeat("grown\n", 10))
	require.Equal(t, []string{"same", "grown"}, values(t, f.read().next())[:2])
}

// The inbox is slow: until the frame in work is acknowledged, the file has grown
// beyond its old end, and may have been moved away.
func TestFileThatShrankIsReadFromItsStartHoweverItGrew(t *testing.T) {
	for name, moved := range map[string]bool{"under its path": false, "moved away": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFile(t)
				f.write("same\n1\n")
				r := f.read()
				r.lines(2)
				f.append("2\n")
				work := r.next()
				f.write("same\n")
				r.nothing() // so it was looked at
				f.append("a\nb\nc\nd\n")
				if moved {
					require.NoError(t, os.Rename(f.path, f.path+".1"))
					f.write("next\n")
				}
				work.Ack()
				again := r.next()
				require.NotEqual(t, frame(t, work).TopicID, frame(t, again).TopicID, "or the fence would drop it")
				require.Equal(t, []string{"same", "a", "b", "c", "d"}, values(t, again))
				again.Ack()
				if moved {
					require.Equal(t, []string{"next"}, r.lines(1))
				}
				r.close()
				f.read().nothing()
			})
		})
	}
}

// The store knows nothing of the lines that it was away for; the fence does.
func TestFileThatShrankBeforeItsPositionWasStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		f.write("same\n1\n")
		r := f.read()
		first := r.next()
		f.positions.leave(true)
		first.Ack()
		f.write("same\n")
		r.nothing()
		f.positions.leave(false)
		again := r.next()
		require.Equal(t, []string{"same"}, values(t, again))
		require.NotEqual(t, frame(t, first).TopicID, frame(t, again).TopicID)
		again.Ack()
		r.close()
		f.read().nothing()
	})
}

// Between two looks at it, so it never was shorter.
func TestFileWrittenAnewInPlaceIsReadFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		f.write("a1\na2\n")
		r := f.read()
		first := r.next()
		first.Ack()
		synctest.Wait()
		f.write("b1\nb2\nb3\n")
		require.Equal(t, []string{"b1", "b2", "b3"}, r.lines(3))
		synctest.Wait()
		f.write("c1\nc2\nc3\n") // as long
		require.NoError(t, os.Chtimes(f.path, time.Time{}, time.Unix(0, 0)))
		require.Equal(t, []string{"c1", "c2", "c3"}, r.lines(3))
		synctest.Wait()
		f.write("a1\na3\na4\na5\n") // its first line is known
		again := r.next()
		require.Equal(t, []string{"a1", "a3", "a4", "a5"}, values(t, again))
		require.NotEqual(t, frame(t, first).TopicID, frame(t, again).TopicID, "or the fence would drop it")
		again.Ack()
		synctest.Wait()
		f.write("a1\na3\nb4\nb5\nb6\n") // its first line is that of the file that is read
		require.Equal(t, []string{"a1", "a3", "b4", "b5", "b6"}, r.lines(5))
		r.close()
		f.read().nothing()
	})
}

// Under the same first line, shorter or beyond the old position, and between two checks.
func TestFileWrittenAnewWhileNobodyReads(t *testing.T) {
	long := strings.Repeat("x", 4000)
	for name, c := range map[string]struct{ was, is string }{
		"longer":                       {"same\n1\n2\n", "same\na\nbc\nd\n"},
		"shorter":                      {"same\n2\n3\n4\n", "same\nnew\n"},
		"as long":                      {"same\n1\n2\n", "same\n1\n3\n"},
		"a line longer than the limit": {"same\n" + long + "\n", "same\ny" + long[1:] + "\nz\n"},
		"behind a blank line":          {"same\n1\n\n", "same\n1\n2\n3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			f.maxLine = 1 << 10
			f.write(c.was)
			r := f.read()
			first := r.next()
			first.Ack()
			r.close()
			f.write(c.is)
			r = f.read()
			again := r.next()
			require.NotEqual(t, frame(t, first).TopicID, frame(t, again).TopicID, "or the fence would drop it")
			require.Equal(t, "same", values(t, again)[0])
			again.Ack()
			r.close()
			f.append("more\n")
			require.Equal(t, []string{"more"}, f.read().lines(1))
		})
	}
}

// An export is replaced by another one with the same first line, last line and length. The
// mistake that this catches: it was taken for the one that was read already.
func TestFileReplacedByOneOfTheSameFrame(t *testing.T) {
	const was, is = "same\n1\nlast\n", "same\n2\nlast\n"
	old := time.Now().Add(-time.Hour)
	for name, replace := range map[string]func(f *file){
		"renamed over": func(f *file) {
			require.NoError(t, os.WriteFile(f.path+".new", []byte(is), 0o644))
			require.NoError(t, os.Rename(f.path+".new", f.path))
		},
		"with the same time, as rsync --times does": func(f *file) {
			require.NoError(t, os.WriteFile(f.path+".new", []byte(is), 0o644))
			require.NoError(t, os.Chtimes(f.path+".new", old, old))
			require.NoError(t, os.Rename(f.path+".new", f.path))
		},
		"renamed over, longer": func(f *file) {
			require.NoError(t, os.WriteFile(f.path+".new", []byte(is+"3\n"), 0o644))
			require.NoError(t, os.Rename(f.path+".new", f.path))
		},
		"written in place": func(f *file) { f.write(is) },
	} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, running %v", name, running), func(t *testing.T) {
				f := newFile(t)
				f.write(was)
				require.NoError(t, os.Chtimes(f.path, old, old))
				r := f.read()
				require.Equal(t, []string{"same", "1", "last"}, r.lines(3))
				if !running {
					r.close()
				}
				replace(f)
				if !running {
					r = f.read()
				}
				require.Equal(t, []string{"same", "2", "last"}, r.lines(3 + strings.Count(name, "longer"))[:3])
			})
		}
	}
}

// A copy of the file takes its place, as a restore or a copying editor makes it, or its
// time changes: its lines are the same, so none is read again.
func TestFileReplacedByItsCopyIsReadOn(t *testing.T) {
	f := newFile(t)
	f.write("1\n2\n")
	r := f.read()
	require.Equal(t, []string{"1", "2"}, r.lines(2))
	r.close()
	require.NoError(t, os.WriteFile(f.path+".new", []byte("1\n2\n"), 0o644))
	require.NoError(t, os.Rename(f.path+".new", f.path))
	r = f.read()
	r.nothing()
	require.NoError(t, os.Chtimes(f.path, time.Time{}, time.Now().Add(time.Hour)))
	r.nothing()
	f.append("3\n")
	require.Equal(t, []string{"3"}, r.lines(1))
}

// A writer that keeps the old file open longer than linger adds a line: it is reported.
func TestFileReportsLinesThatComeTooLate(t *testing.T) {
	f := newFile(t)
	f.write("a1\n")
	lost := make(chan [2]int64, 2)
	f.lost = func(topic string, _ int32, from, to int64) {
		require.Equal(t, "file:events", topic)
		lost <- [2]int64{from, to}
	}
	r := f.read()
	require.Equal(t, []string{"a1"}, r.lines(1))
	writer, err := os.OpenFile(f.path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	f.write("b1\n")
	require.Equal(t, []string{"b1"}, r.lines(1))
	for n := range 2 {
		_, err = writer.WriteString("late\n")
		require.NoError(t, err)
		require.Equal(t, [2]int64{int64(3 + 5*n), int64(8 + 5*n)}, <-lost)
	}
	f.append("b2\n")
	require.Equal(t, []string{"b2"}, r.lines(1))
}

// A position says where reading resumes, independent of the limit on lines when it was
// stored, and also if it was stored before there were marks.
func TestFileThatGrewIsReadOn(t *testing.T) {
	for name, last := range map[string]string{"short": "1", "blank": "", "as long as what counts": strings.Repeat("x", 1<<10), "cut": strings.Repeat("x", 5000)} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			f.maxLine = 1 << 10
			f.write("same\n2\n" + last + "\n")
			r := f.read()
			r.next().Ack()
			r.close()
			f.append("more\n")
			f.maxLine = 8 << 10
			r = f.read()
			require.Equal(t, []string{"more"}, r.lines(1))
			r.close()
			for identity, at := range f.positions.at {
				f.positions.at[identity] = store.SourcePosition{Identity: identity, Offset: at.Offset}
			}
			f.append("again\n")
			require.Equal(t, []string{"again"}, f.read().lines(1))
		})
	}
}
