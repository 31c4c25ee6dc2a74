package core

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// Flow is the way of the changes from the log to the sinks: the partitions of this process,
// and a queue per service, under one memory budget. Not safe for concurrent use.
type Flow struct {
	Memory int64 // bytes of changes that may wait for sinks

	parts   map[int32]*Partition
	queues  []*Queue              // by number
	held    int64                 // bytes of the slices of all queues
	frames  map[*change.Frame]int // of which slices are held, with how many
	kept    int64                 // bytes of all frames of these
	signals []Signal
}

// NewFlow makes a Flow.
func NewFlow(memory int64) *Flow {
	return &Flow{Memory: memory, parts: map[int32]*Partition{}, frames: map[*change.Frame]int{}}
}

// Signal is a change that a call made.
type Signal struct {
	Kind      SignalKind
	Partition *Partition
	Queue     *Queue
	From, To  change.Version
}

// SignalKind is the kind of a signal.
type SignalKind int

// The signals, with the fields that they set.
const (
	Deliver          SignalKind = iota // Queue has slices, or a partition of it was revoked
	Read                               // Partition: the log may have changes for a lane
	Save                               // a position moved
	Freed                              // the budget grew: Next of a starved partition may have another reply
	Walk                               // a repair is needed
	Lagging                            // Queue
	CaughtUp                           // Queue, Partition
	Lost                               // Queue, Partition, From, To: changes without To
	RepairUnreadable                   // Queue, Partition: a stored repair; all entities are decided again
)

func (f *Flow) signal(s Signal) { f.signals = append(f.signals, s) }

// Signals returns the signals of the calls since the last Signals, in order. They are valid
// until the next call of another method.
func (f *Flow) Signals() []Signal {
	out := f.signals
	f.signals = f.signals[:0]
	return out
}

// Queue holds the slices of one service, of all partitions, that wait for its sink.
type Queue struct {
	Name     string
	Number   int32
	MaxBytes int64 // bound of queued changes at a working sink, 0 for no bound
	Failing  bool  // the sink fails, or the service is paused
	Paced    bool  // changes may wait in hand for the pace of the service
	// Refresh is the period in which each unchanged entity is sent again. 0 means never.
	Refresh time.Duration
	Full    bool // no more changes may come into hand
	Removed bool // the service ends
	Data    any  // the caller's

	flow    *Flow
	lanes   []*Lane
	waiting []*Slice
	held    int64  // bytes of the slices that wait or are in hand
	inHand  int64  // bytes of those in hand
	slices  uint64 // counts them
	busy    bool
	since   time.Time // of the last Take
}

// Add adds a service. In partitions that are assigned already it continues at its saved
// position. Of a new service nothing was handed out: its frames are of a newer revision than
// any before.
func (f *Flow) Add(q *Queue) {
	q.flow = f
	i := sort.Search(len(f.queues), func(i int) bool { return f.queues[i].Number > q.Number })
	f.queues = slices.Insert(f.queues, i, q)
	for _, p := range f.parts {
		p.join(q)
	}
}

// Remove ends a service that left nothing in hand. Its positions are kept for its return; an
// Add of the same number continues there.
func (f *Flow) Remove(q *Queue) {
	f.Fall(q)
	for _, l := range q.lanes {
		p := l.Partition
		p.absent = append(p.absent, l.saved())
		p.lanes = slices.DeleteFunc(p.lanes, func(o *Lane) bool { return o == l })
		p.moved()
	}
	f.queues = slices.DeleteFunc(f.queues, func(o *Queue) bool { return o == q })
	q.lanes = nil
	f.signal(Signal{Kind: Freed})
}

// Share is how many bytes one service may hold while it is lagging or failing.
func (f *Flow) Share() int64 { return max(256<<10, f.Memory/int64(max(1, len(f.queues)))) }

// mayHold is how many bytes may be in hand. At a sink that fails, or of a service with a pace,
// they wait long, and no other change can use that memory.
func (q *Queue) mayHold() int64 {
	switch {
	case q.Failing:
		return q.flow.Share() / 4
	case q.Paced:
		return q.flow.Share() / 2
	case q.MaxBytes > 0:
		return q.MaxBytes
	}
	return math.MaxInt64
}

// takable returns how many waiting slices may come into hand, where there is room for some
// changes. With any room that is at least one slice, however large: one failed change must not keep
// the others from being tried.
func (q *Queue) takable(room int) (n int) {
	if q.Removed {
		return 0
	}
	for bytes := q.inHand; n < len(q.waiting); n++ {
		s := q.waiting[n]
		if room <= 0 || bytes >= q.mayHold() || n > 0 && s.Changes.Count > room {
			break
		}
		bytes += s.cost
		room -= s.Changes.Count
	}
	return n
}

// CanTake reports whether Take would return slices.
func (q *Queue) CanTake(room int) bool { return q.takable(room) > 0 }

// Crowded reports whether the bytes in hand keep more from coming.
func (q *Queue) Crowded() bool { return q.inHand >= q.mayHold() }

// Take dequeues the slices that may come into hand.
func (q *Queue) Take(room int, now time.Time) []*Slice {
	n := q.takable(room)
	if n == 0 {
		return nil
	}
	batch := slices.Clone(q.waiting[:n])
	for _, s := range batch {
		s.inHand = true
		q.inHand += s.cost
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.busy, q.since = true, now
	return batch
}

// SetBusy says whether changes are in hand, and whether no more may come into hand.
func (q *Queue) SetBusy(busy, full bool) { q.busy, q.Full = busy, full }

// Busy reports whether changes are in hand.
func (q *Queue) Busy() bool { return q.busy }

// Advance moves a slice in hand to its first change that is not done.
func (f *Flow) Advance(s *Slice, at change.Version) {
	s.at = at
	s.Lane.advance()
}

// Finish ends a slice in hand: all its changes are done, or the next owner of its partition
// delivers them.
func (f *Flow) Finish(s *Slice) {
	f.Abandon(s)
	if !s.Lane.Partition.revoked {
		b := s.Frame
		s.Frame = &change.Frame{From: b.From, To: b.To, Prev: b.Prev}
		s.Changes, s.finished = change.Slice{}, true
		s.Lane.finish(s)
		f.signal(Signal{Kind: Save})
	}
	f.signal(Signal{Kind: Freed})
}

// Abandon ends a slice in hand whose changes are not done: its service ends.
func (f *Flow) Abandon(s *Slice) {
	s.Lane.Queue.inHand -= s.cost
	f.release(s)
}

// SetFailing says whether the sink of a service fails, or an operator paused it. Changes that wait for a
// failing one are read again: others need the memory.
func (f *Flow) SetFailing(q *Queue, failing bool) {
	if q.Failing = failing; failing && q.held > f.Share()/2 {
		f.Fall(q)
	}
	for _, l := range q.lanes {
		f.signal(Signal{Kind: Read, Partition: l.Partition})
	}
}

// Fall drops the waiting slices of a service.
func (f *Flow) Fall(q *Queue) {
	for _, l := range q.lanes {
		l.fall()
	}
	q.drop(func(*Slice) bool { return true })
	f.signal(Signal{Kind: Freed})
}

// drop drops waiting slices.
func (q *Queue) drop(which func(*Slice) bool) {
	q.waiting = slices.DeleteFunc(q.waiting, func(s *Slice) bool {
		if which(s) {
			q.flow.release(s)
			return true
		}
		return false
	})
}

// Services returns how many services there are.
func (f *Flow) Services() int { return len(f.queues) }

// Lags returns, for each lagging service, the number of partitions in which it lags.
func (f *Flow) Lags() map[*Queue]int {
	lags := map[*Queue]int{}
	for _, p := range f.parts {
		for _, l := range p.lanes {
			if l.lagging {
				lags[l.Queue]++
			}
		}
	}
	return lags
}

// Idle reports whether all of the log is read, no change is queued or in hand, no row is to be saved, and none was
// lost and is still to be decided again.
func (f *Flow) Idle() bool {
	for _, p := range f.parts {
		if !p.looked && len(p.lanes) > 0 || len(p.rows) > 0 || slices.ContainsFunc(p.lanes, func(l *Lane) bool { return l.upTo < p.lastTo || l.repair.Needed() }) {
			return false
		}
	}
	return !slices.ContainsFunc(f.queues, func(q *Queue) bool { return q.busy || len(q.waiting) > 0 })
}

// all returns the partitions by number.
func (f *Flow) all() []*Partition {
	all := make([]*Partition, 0, len(f.parts))
	for _, p := range f.parts {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Partition) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// hold counts a slice, and its frame: that stays in memory while one of its slices is held.
func (f *Flow) hold(s *Slice) {
	s.Lane.Queue.held += s.cost
	f.held += s.cost
	if f.frames[s.Frame]++; f.frames[s.Frame] == 1 {
		f.kept += frameBytes(s.Frame)
	}
}

// release undoes hold.
func (f *Flow) release(s *Slice) {
	s.Lane.Queue.held -= s.cost
	f.held -= s.cost
	if f.frames[s.Frame]--; f.frames[s.Frame] == 0 {
		delete(f.frames, s.Frame)
		f.kept -= frameBytes(s.Frame)
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
