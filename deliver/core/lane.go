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

	live      bool           // fed by the tail; else by the catch-up reader
	skipBelow change.Version // changes below it were done before the takeover
	// cursor is the catch-up reader's; of a live lane where that ended, perhaps beyond the tail.
	cursor  LogCursor
	mark    string
	repair  Repair
	refresh refresh
	pending []*Slice // not done, in the order of the log; those in hand come first
	// entities is the number of the service's entities after the changes below the first of
	// pending.
	entities int64
}

// Slice is the changes of one service in one frame.
type Slice struct {
	Lane        *Lane
	Changes     change.Slice
	Frame       *change.Frame
	Record      int64          // of the log
	SkipBelow   change.Version // changes below it came in an earlier frame with other borders
	Redelivered bool
	// Entities is the number of entities that the done changes add to the service.
	Entities int64

	start    int64  // record to restart at
	number   uint64 // of the queue's slices
	cost     int64
	at       change.Version // the first change that is not done
	inHand   bool
	finished bool
}

// restore sets the lane to a saved position.
func (l *Lane) restore(at *store.ServicePosition) {
	l.skipBelow, l.cursor, l.mark, l.entities = at.Version, LogCursor{UpTo: at.Version, Next: at.LogOffset}, at.Mark, at.Entities
	l.refresh = decodeRefresh(at.Refresh)
	var ok bool
	if l.repair, ok = DecodeRepair(at.Repair, at.Version); !ok {
		l.Partition.flow.signal(Signal{Kind: RepairUnreadable, Partition: l.Partition, Queue: l.Queue})
	}
}

// saved returns the position to save.
func (l *Lane) saved() store.ServicePosition {
	saved := store.ServicePosition{Service: l.Queue.Number, Position: l.Position(), Mark: l.mark, Repair: l.repair.Encode(), Entities: l.entities}
	if l.Queue.Refresh > 0 {
		saved.Refresh = l.refresh.encode()
	}
	if len(l.pending) > 0 {
		saved.Entities += l.pending[0].Entities
	}
	return saved
}

// Position is how far the service is.
func (l *Lane) Position() store.Position {
	if len(l.pending) > 0 {
		first := l.pending[0]
		return store.Position{Version: max(first.at, l.skipBelow), LogOffset: first.start}
	}
	c := &l.cursor
	if l.live {
		c = &l.Partition.tail
	}
	return store.Position{Version: max(c.UpTo, l.cursor.UpTo, l.skipBelow), LogOffset: c.restart()}
}

// Entities returns, by partition, how many entities the changes that are done added.
func (q *Queue) Entities() map[int32]int64 {
	all := make(map[int32]int64, len(q.lanes))
	for _, l := range q.lanes {
		all[l.Partition.Number] = l.saved().Entities
	}
	return all
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

// end is where a live lane becomes lagging.
func (l *Lane) end() LogCursor {
	at := l.cursor
	if l.live {
		at = l.Partition.tail
		at.reach(l.cursor.UpTo)
	}
	return at
}

// fall drops the waiting slices and leaves them to the catch-up reader. It reports whether the
// lane was live.
func (l *Lane) fall() bool {
	waiting := len(l.pending)
	for waiting > 0 && !l.pending[waiting-1].inHand {
		waiting--
	}
	if !l.live && waiting == len(l.pending) {
		return false
	}
	next := l.end()
	at := l.Position()
	l.skipBelow = at.Version
	if waiting < len(l.pending) {
		first := l.pending[waiting]
		next = LogCursor{UpTo: first.Frame.Prev, Next: first.start}
		if waiting == 0 {
			next = LogCursor{UpTo: at.Version, Next: at.LogOffset}
		} else if last := l.pending[waiting-1].Frame.To; last < first.Frame.To {
			next.UpTo = max(next.UpTo, last)
		}
		clear(l.pending[waiting:])
		l.pending = l.pending[:waiting]
	}
	was := l.live
	l.live, l.cursor = false, next
	l.Partition.moved()
	return was
}

// canTake reports whether the catch-up reader may read more for the lane. A service whose sink
// fails takes as much as it can try.
func (l *Lane) canTake() bool {
	q := l.Queue
	switch {
	case l.live || q.Removed:
		return false
	case q.Failing, q.Paced:
		return !q.Full && len(q.waiting) == 0 && q.held < q.mayHold()
	}
	return q.held < q.flow.Share()
}

// dispatch hands the lane its slice of a frame that follows.
func (l *Lane) dispatch(f *Frame, changes change.Slice, start int64, upTo change.Version) {
	skipBelow := max(upTo, l.skipBelow)
	if n := len(l.pending); n > 0 && l.pending[n-1].Frame.Partial() {
		skipBelow = max(skipBelow, l.pending[n-1].Frame.To) // its one change of that position is in that part
	}
	if f.To <= skipBelow {
		return
	}
	q := l.Queue
	frame := f.Frame
	if (len(q.waiting) > 0 || q.Paced) && q.flow.kept > 2*q.flow.Memory { // else it is soon done
		frame, changes = detach(frame, changes)
	}
	s := &Slice{
		Lane: l, Changes: changes, Frame: frame, Record: f.Offset, SkipBelow: skipBelow, Redelivered: f.Redelivered,
		start: start, at: max(f.From, skipBelow), cost: costOf(frame, &changes),
	}
	q.slices++
	s.number = q.slices
	l.pending = append(l.pending, s)
	q.waiting = append(q.waiting, s)
	q.flow.hold(s)
	q.flow.signal(Signal{Kind: Deliver, Queue: q})
}

// feed hands a frame that follows to a lagging lane.
func (l *Lane) feed(f *Frame) {
	start, upTo := l.cursor.Pass(f.Frame, f.Offset)
	for i := range f.Slices {
		if f.Slices[i].Service == l.Queue.Number {
			l.dispatch(f, f.Slices[i], start, upTo)
		}
	}
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
		if a, b := l.pending[n-1], l.pending[n]; a.finished && b.finished && !a.Frame.Partial() {
			b.Entities += a.Entities
			l.pending = slices.Delete(l.pending, n-1, n)
		}
	}
}

// advance drops the first slices that are done.
func (l *Lane) advance() {
	for len(l.pending) > 0 && l.pending[0].finished {
		if f := l.pending[0].Frame; f.Partial() {
			// The other parts have no changes of this service: it awaits none of them.
			l.skipBelow = max(l.skipBelow, f.To)
		}
		l.entities += l.pending[0].Entities
		l.pending[0] = nil
		l.pending = l.pending[1:]
	}
	l.Partition.edits++
	if !l.live {
		l.Partition.flow.signal(Signal{Kind: Read, Partition: l.Partition})
	}
}
