package file

import (
	"bytes"
	"io"
	"os"
	"time"
)

// leftFor is how long a file that was left is watched for late lines.
const leftFor = 10 * time.Minute

// leftFile is a file that was replaced and read to its end. It is watched for lines that
// its writer adds late: they are counted, since they may be older than lines of the next.
type leftFile struct {
	*os.File
	offset int64 // up to where it was read
	until  time.Time
}

// leave begins to watch a file in place of the previous one. It takes ownership of the file.
func (f *Source) leave(file *os.File, offset int64) {
	f.closeLeft()
	f.left = &leftFile{file, offset, time.Now().Add(leftFor)}
}

// checkLeft reports lines that were added to the file that was left.
func (f *Source) checkLeft() {
	l := f.left
	if l == nil {
		return
	}
	info, err := l.Stat()
	if err != nil || info.Size() <= l.offset {
		if err != nil || time.Now().After(l.until) {
			f.closeLeft()
		}
		return
	}
	late, err := io.ReadAll(io.NewSectionReader(l.File, l.offset, min(info.Size()-l.offset, 1<<20)))
	last := bytes.LastIndexByte(late, '\n')
	if err != nil || last < 0 {
		return // a line without its end, as yet
	}
	from := l.offset
	l.offset += int64(last) + 1
	f.log.Error("lines were added to a replaced file after it was left; they are not read: raise file.linger",
		"event", "file.late_lines", "path", f.opt.Path, "lines", bytes.Count(late, []byte("\n")))
	if f.opt.OnLinesLost != nil {
		f.opt.OnLinesLost(f.Topic(), 0, from, l.offset)
	}
}

func (f *Source) closeLeft() {
	if f.left != nil {
		_ = f.left.Close()
		f.left = nil
	}
}
