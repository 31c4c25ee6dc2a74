package deliver

import "github.com/seed-86dfc502/weir/change"

// holdSlice counts a slice, and its frame: that stays in memory for as long as one of its
// slices is held. The caller holds s.mu.
func (s *Stage) holdSlice(sl *slice) {
	sl.c.w.held += sl.cost
	s.held += sl.cost
	if s.frames[sl.frame]++; s.frames[sl.frame] == 1 {
		s.kept += frameBytes(sl.frame)
	}
}

// releaseSlice undoes holdSlice. The caller holds s.mu.
func (s *Stage) releaseSlice(sl *slice) {
	sl.c.w.held -= sl.cost
	s.held -= sl.cost
	if s.frames[sl.frame]--; s.frames[sl.frame] == 0 {
		delete(s.frames, sl.frame)
		s.kept -= frameBytes(sl.frame)
	}
}

func frameBytes(f *change.Frame) (n int64) {
	for i := range f.Slices {
		n += int64(f.Slices[i].Bytes())
	}
	return n
}

// detach copies the changes of a slice into a frame of their own, unless they are half of
// their frame or more, or cannot be read. It costs much more than handing out a slice, so
// it is for slices that wait long.
func detach(f *change.Frame, changes change.Slice) (*change.Frame, change.Slice) {
	if 2*int64(changes.Bytes()) >= frameBytes(f) {
		return f, changes
	}
	var b change.FrameBuilder
	for c, err := range changes.All("") {
		if err != nil {
			return f, changes // its worker makes a dead letter of it
		}
		b.Add(changes.Service, &c)
	}
	own, err := change.ParseFrame(b.AppendTo(nil, *f))
	if err != nil {
		return f, changes
	}
	return own, own.Slices[0]
}

// changeOverhead is what a change costs in memory beside its bytes.
const changeOverhead = 256

func costOf(s *change.Slice) int64 { return int64(s.Bytes()) + int64(s.Count)*changeOverhead }
