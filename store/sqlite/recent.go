package sqlite

import (
	"slices"
	"sort"
)

// recentBytes bounds the bodies that a log keeps in memory. Its readers are close behind
// the writer, and would read from the file what this process appended a moment ago.
const recentBytes = 4 << 20

// recent holds the newest committed frames of a partition, without a gap.
type recent struct {
	frames []LogFrame
	bytes  int // of their bodies
}

// add adds a committed frame, and drops the oldest frames beyond most bytes.
func (r *recent) add(f *LogFrame, most int) {
	if n := len(r.frames); n > 0 && r.frames[n-1].end() != f.First { // another handle appended between
		*r = recent{}
	}
	r.frames = append(r.frames, *f)
	for r.bytes += len(f.Body); r.bytes > most; r.frames = r.frames[1:] {
		r.bytes -= len(r.frames[0].Body)
		r.frames[0] = LogFrame{}
	}
}

// from returns the frame that holds offset and those behind it, until they have so many
// bytes; nil when it does not hold offset.
func (r *recent) from(offset int64, bytes int) []LogFrame {
	if r == nil || len(r.frames) == 0 || offset < r.frames[0].First {
		return nil
	}
	first := sort.Search(len(r.frames), func(i int) bool { return r.frames[i].end() > offset })
	n := first
	for size := 0; n < len(r.frames) && (n == first || size < bytes); n++ {
		size += len(r.frames[n].Body)
	}
	if n == first {
		return nil
	}
	return slices.Clone(r.frames[first:n])
}

// end is the offset behind the frame's last record.
func (f *LogFrame) end() int64 { return f.First + int64(f.Records) }

// dropRecent drops the frames in memory.
func (l *Log) dropRecent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.recent)
}
