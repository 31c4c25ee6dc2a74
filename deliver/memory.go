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

// frameBytes is the size of an open frame, whose documents its slices share.
func frameBytes(f *change.Frame) int64 {
	n := int64(f.Shared())
	for i := range f.Slices {
		n += int64(f.Slices[i].Own())
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

// changeOverhead is the memory of a change beside its bytes.
const changeOverhead = 256

// costOf is the share of a slice in the budget: its changes, and an equal part of the
// documents of its frame.
func costOf(f *change.Frame, s *change.Slice) int64 {
	return int64(s.Own()) + int64(s.Count)*changeOverhead + int64(f.Shared()/len(f.Slices))
}
