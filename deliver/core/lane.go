package core

import (
	"slices"
	"sort"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Lane is one service in one partition.
type Lane struct {
	Partition *Partition
	Queue     *Queue
	// Resumed is the caller's: the sink has resumed since the takeover.
	Resumed bool

	upTo      change.Version // all frames below it were handed to the lane
	skipBelow change.Version // changes below it were done before the takeover
	inTarget  change.Version // changes below it may be at the target: a worker before had them in hand
	lagging   bool           // it could not take a frame, and has not reached the end of the log since
	mark      string
	repair    Repair
	refresh   refresh
	pending   []*Slice // not done, in the order of the log; those in hand come first
	// entities is the number of the service's entities after the changes below the first of
	// pending.
	entities int64
}

// Slice is the changes of one service in one frame.
type Slice struct {
	Lane        *Lane
	Changes     change.Slice
	Frame       *change.Frame
	SkipBelow   change.Version // changes below it came in an earlier frame with other borders
	Redelivered bool
	// Entities is the number of entities that the done changes add to the service.
	Entities int64

	number   uint64 // of the queue's slices
	cost     int64
	at       change.Version // the first change that is not done
	inHand   bool
	finished bool
}

// restore sets the lane to a saved position.
func (l *Lane) restore(at *store.ServicePosition) {
	l.skipBelow, l.upTo, l.mark, l.entities = at.Version, at.Version, at.Mark, at.Entities
	l.refresh = decodeRefresh(at.Refresh)
	var ok bool
	if l.repair, ok = DecodeRepair(at.Repair, at.Version); !ok {
		l.Partition.flow.signal(Signal{Kind: RepairUnreadable, Partition: l.Partition, Queue: l.Queue})
	}
}

// saved returns the position to save.
func (l *Lane) saved() store.ServicePosition {
	saved := store.ServicePosition{Service: l.Queue.Number, Version: l.Position(), Mark: l.mark, Repair: l.repair.Encode(), Entities: l.entities}
	if l.Queue.Refresh > 0 {
		saved.Refresh = l.refresh.encode()
	}
	if len(l.pending) > 0 {
		saved.Entities += l.pending[0].Entities
	}
	return saved
}

// Position is how far the service is.
func (l *Lane) Position() change.Version {
	if len(l.pending) > 0 {
		return max(l.pending[0].at, l.skipBelow)
	}
	return max(l.upTo, l.skipBelow)
}

// Entities returns, by partition, how many entities the changes that are done added.
func (q *Queue) Entities() map[int32]int64 {
	all := make(map[int32]int64, len(q.lanes))
	for _, l := range q.lanes {
		all[l.Partition.Number] = l.saved().Entities
	}
	return all
}

// Pending returns the lanes that have changes, in hand or waiting.
func (q *Queue) Pending() []*Lane {
	return slices.DeleteFunc(slices.Clone(q.lanes), func(l *Lane) bool { return len(l.pending) == 0 })
}

// Mark is the sink's bookmark that is saved with the position.
func (l *Lane) Mark() string { return l.mark }

// SetMark replaces it.
func (l *Lane) SetMark(mark string) {
	if l.mark != mark {
		l.mark = mark
		l.Partition.edits++
	}
}

// fall drops the waiting slices: they are read again.
func (l *Lane) fall() {
	waiting := len(l.pending)
	for waiting > 0 && !l.pending[waiting-1].inHand {
		waiting--
	}
	if waiting == len(l.pending) {
		return
	}
	at := l.Position()
	l.skipBelow, l.upTo = at, at
	if waiting > 0 {
		l.upTo = max(at, l.pending[waiting-1].Frame.To)
	}
	clear(l.pending[waiting:])
	l.pending = l.pending[:waiting]
	l.lag()
	l.Partition.moved()
}

// canTake reports whether the lane may have another frame. A service whose sink fails takes as much
// as it can try. Half of the memory is shared by all services, the other half by who needs it.
func (l *Lane) canTake() bool {
	q := l.Queue
	switch {
	case q.Removed:
		return false
	case q.Failing, q.Paced:
		return !q.Full && len(q.waiting) == 0 && q.held < q.mayHold()
	}
	return q.held < q.flow.Share()/2 || q.flow.held < q.flow.Memory/2
}

// dispatch hands the lane its slice of a frame that follows a position.
func (l *Lane) dispatch(f *Frame, changes change.Slice, before change.Version) {
	skipBelow := max(before, l.skipBelow)
	if f.To <= skipBelow {
		return
	}
	q := l.Queue
	frame := f.Frame
	if (len(q.waiting) > 0 || q.Paced) && q.flow.kept > 2*q.flow.Memory { // else it is soon done
		frame, changes = detach(frame, changes)
	}
	s := &Slice{
		Lane: l, Changes: changes, Frame: frame, SkipBelow: skipBelow, Redelivered: f.Redelivered || f.From < l.inTarget,
		at: max(f.From, skipBelow), cost: costOf(frame, &changes),
	}
	q.slices++
	s.number = q.slices
	l.pending = append(l.pending, s)
	q.waiting = append(q.waiting, s)
	q.flow.hold(s)
	q.flow.signal(Signal{Kind: Deliver, Queue: q})
}

// finish drops the slices that are done, and joins others with those beside them.
func (l *Lane) finish(s *Slice) {
	if l.advance(); len(l.pending) == 0 {
		return
	}
	i := sort.Search(len(l.pending), func(i int) bool { return l.pending[i].number >= s.number })
	if i == len(l.pending) || l.pending[i] != s {
		return
	}
	for _, n := range [2]int{i + 1, i} {
		if n == 0 || n == len(l.pending) {
			continue
		}
		if a, b := l.pending[n-1], l.pending[n]; a.finished && b.finished {
			b.Entities += a.Entities
			l.pending = slices.Delete(l.pending, n-1, n)
		}
	}
}

// advance drops the first slices that are done.
func (l *Lane) advance() {
	for len(l.pending) > 0 && l.pending[0].finished {
		l.entities += l.pending[0].Entities
		l.pending[0] = nil
		l.pending = l.pending[1:]
	}
	l.Partition.edits++
	if l.Partition.starved {
		l.Partition.flow.signal(Signal{Kind: Read, Partition: l.Partition})
	}
}
