package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
)

var errLengthUnknown = errors.New("no line was read yet: how long lines are is not known")

// backlog knows the acknowledged part of the file that is read, and how long lines are.
type backlog struct {
	mu           sync.Mutex
	file         *os.File
	info         os.FileInfo
	position     int64
	bytes, lines int64 // acknowledged, of all files
}

// begin says from where on which file is read.
func (b *backlog) begin(file *os.File, position int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.file, b.info, b.position = file, info, position
	return nil
}

// acknowledged notes that everything before next is durable.
func (b *backlog) acknowledged(next int64, lines int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes += next - b.position
	b.lines += int64(lines)
	b.position = next
}

// Pending estimates the number of lines that are not acknowledged: the rest of the file
// and of its successor, in lines as long as those before.
func (f *Source) Pending(context.Context) (lines int64, err error) {
	there, err := os.Stat(f.opt.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	b := &f.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	var left int64
	if b.file != nil {
		info := there
		if there == nil || !os.SameFile(b.info, there) {
			// It was moved away. Once it is closed, nothing is left of it.
			info, _ = b.file.Stat() //nolint:errcheck // closed
		} else {
			there = nil
		}
		if info != nil {
			left = max(0, info.Size()-b.position)
		}
	}
	if there != nil {
		left += there.Size()
	}
	switch {
	case left == 0:
		return 0, nil
	case b.lines == 0:
		return 0, errLengthUnknown
	}
	return int64(float64(left) * float64(b.lines) / float64(b.bytes)), nil
}
