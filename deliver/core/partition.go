package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// liveWindow is how many records a service may be behind the farthest one to be live at
	// a takeover. The tail waits for a service that is a quarter of it behind.
	liveWindow = 256
	// joinPatience is how long the tail waits at most, and joinPause how long it does not
	// wait then.
	joinPatience, joinPause = 2 * time.Second, 200 * time.Millisecond
)

// Partition is one assigned partition of the changes log.
type Partition struct {
	Number int32

	// NewFrom is where the inbox ended after the takeover, or later: no other process hands out a
	// change from there on. Zero: not known yet.
	NewFrom change.Version

	flow      *Flow
	revoked   bool
	tail      LogCursor // of all live lanes
	lanes     []*Lane   // by service
	absent    []store.ServicePosition
	joinUntil time.Time       // the tail waits for a lane that is nearly live
	stalled   *change.Version // of the tail at the last LogEnded, with frames in the outbox

	requesting  int // appends of repair requests under way: its repairs have left the walk
	repairAfter time.Time
	repairPause time.Duration

	progress
}

// Frame is a frame with its place in the log.
type Frame struct {
	*change.Frame
	Offset      int64
	Redelivered bool // a former owner may have delivered it
	Counts      bool // it belongs to the store's history
}

// Assign adds a partition whose progress was taken over under a token.
func (f *Flow) Assign(row *store.Progress) *Partition {
	p := &Partition{Number: row.Partition, flow: f}
	p.progress = progress{token: row.Token, saved: row.Positions, rows: map[string]RowEdit{}, edits: 1}
	var farthest store.Position
	for _, at := range row.Positions {
		if at.LogOffset > farthest.LogOffset || at.LogOffset == farthest.LogOffset && at.Version > farthest.Version {
			farthest = at.Position
		}
	}
	p.tail = LogCursor{UpTo: farthest.Version, Next: farthest.LogOffset}
	saved := make(map[int32]*store.ServicePosition, len(row.Positions))
	for i := range row.Positions {
		saved[row.Positions[i].Service] = &row.Positions[i]
	}
	for _, q := range f.queues {
		// A new service has no change below the watermarks of its activation, and no position
		// that was saved before is above these.
		p.add(q, saved[q.Number])
		delete(saved, q.Number)
	}
	for _, at := range row.Positions {
		if saved[at.Service] != nil {
			p.absent = append(p.absent, at)
		}
	}
	p.moved()
	for _, l := range p.lanes {
		l.live = l.cursor.Next+liveWindow >= farthest.LogOffset
		if at := l.cursor; l.live && (at.Next < p.tail.Next || at.Next == p.tail.Next && at.UpTo < p.tail.UpTo) {
			p.tail = at
		}
	}
	for _, l := range p.lanes {
		if l.live && l.skipBelow < p.tail.UpTo {
			p.tail.UpTo = l.skipBelow // the lowest: a frame is a repetition only if it is one for all
		}
	}
	f.parts[p.Number] = p
	f.signal(Signal{Kind: Walk})
	f.signal(Signal{Kind: Save})
	return p
}

// join adds the lane of a service, at its saved position, or at the tail.
func (p *Partition) join(q *Queue) {
	var saved *store.ServicePosition
	if i := slices.IndexFunc(p.absent, func(a store.ServicePosition) bool { return a.Service == q.Number }); i >= 0 {
		saved = new(p.absent[i])
		p.absent = slices.Delete(slices.Clone(p.absent), i, i+1)
	}
	p.add(q, saved)
	slices.SortFunc(p.lanes, func(a, b *Lane) int { return cmp.Compare(a.Queue.Number, b.Queue.Number) })
	p.moved()
	p.flow.signal(Signal{Kind: Walk})
}

// add adds a lane behind the others.
func (p *Partition) add(q *Queue, saved *store.ServicePosition) {
	l := &Lane{Partition: p, Queue: q, live: true, skipBelow: p.tail.UpTo, cursor: p.tail}
	if saved != nil {
		l.live = false
		l.restore(saved)
	}
	q.lanes = append(q.lanes, l)
	p.lanes = append(p.lanes, l)
}

// Revoke ends a partition. Its slices in hand stay until Finish.
func (p *Partition) Revoke() {
	if p.revoked {
		return
	}
	p.revoked = true
	if p.flow.parts[p.Number] == p {
		delete(p.flow.parts, p.Number)
	}
	for _, l := range p.lanes {
		q := l.Queue
		q.drop(func(s *Slice) bool { return s.Lane == l })
		q.lanes = slices.DeleteFunc(q.lanes, func(o *Lane) bool { return o == l })
		p.flow.signal(Signal{Kind: Deliver, Queue: q})
	}
	p.flow.signal(Signal{Kind: Freed})
}

// Revoked reports whether the partition has ended.
func (p *Partition) Revoked() bool { return p.revoked }

// Start is the record that the tail reads first.
func (p *Partition) Start() int64 { return p.tail.Next }

// moved follows each change of positions.
func (p *Partition) moved() {
	p.flow.signal(Signal{Kind: Read, Partition: p})
	p.edited()
}

// Reply is the next step for a frame.
type Reply int

// The replies.
const (
	Done   Reply = iota
	Open         // it follows and is not open: open it, or let it not count
	Full         // the budget is used up: wait for Freed
	Absent       // changes before it are missing: search them
)

// Tail hands the next frame of the log to all live lanes. Where changes before it are missing
// they become lagging: the catch-up reader searches the changes, and neither the tail nor a lane
// that has them waits.
func (p *Partition) Tail(f *Frame, now time.Time) Reply {
	order := Repeated
	if f.Counts {
		order = p.tail.Judge(f.Frame)
	}
	if order == Gap {
		p.pass(f.Prev, f.Offset)
		order = p.tail.Judge(f.Frame)
	}
	switch {
	case order == Repeated:
		p.tail.Next = f.Offset + 1
		p.edits++
		return Done
	case !f.Opened():
		return Open
	case p.flow.awaitCapacity(p, f, now):
		return Full
	}
	start, upTo := p.tail.Pass(f.Frame, f.Offset)
	i := 0
	for _, l := range p.lanes { // in the order of service numbers, like the slices
		for i < len(f.Slices) && f.Slices[i].Service < l.Queue.Number {
			i++
		}
		if i < len(f.Slices) && f.Slices[i].Service == l.Queue.Number && l.live && f.To > l.cursor.UpTo {
			l.dispatch(f, f.Slices[i], start, max(upTo, l.cursor.UpTo))
		}
	}
	p.edited()
	return Done
}

// pass moves the tail past missing changes. Live lanes that have not reached to become lagging.
func (p *Partition) pass(to change.Version, next int64) {
	for _, l := range p.lanes {
		if at := l.end(); l.live && at.UpTo < to {
			l.live, l.cursor = false, at
		}
	}
	p.tail = LogCursor{UpTo: to, Next: next}
	p.moved()
	p.flow.signal(Signal{Kind: Missing, Partition: p, To: to})
}

// Lacks reports whether the tail has not reached a position.
func (p *Partition) Lacks(to change.Version) bool { return !p.revoked && p.tail.UpTo < to }

// LogEnded is called periodically while the tail lacks decided changes, with the offsets of the
// log. owed says that the outbox had frames before these were read. A log that ends at the tail
// lost the changes, unless their owner is about to publish them: then the tail waits for one call.
func (p *Partition) LogEnded(to change.Version, start, end int64, owed bool) {
	at := p.tail.UpTo
	next := max(p.tail.Next, start)
	if p.tail.Next > end { // another log of the same name
		next = start
	}
	ended := p.Lacks(to) && next >= end
	if owed {
		// A restored outbox may hold frames that were published long ago, into a log that no
		// longer has them.
		ended = ended && p.stalled != nil && *p.stalled == at
		p.stalled = &at
	}
	if ended {
		p.pass(to, end)
	}
}

// Behind returns the cursor of the lowest lagging lane that can take changes. Lanes that have
// caught up become live.
func (p *Partition) Behind(now time.Time) (at LogCursor, found bool) {
	if p.revoked {
		return at, false
	}
	var low *Lane
	joined, joining := false, false
	for _, l := range p.lanes {
		if l.live {
			continue
		}
		if l.cursor.reaches(&p.tail) {
			l.skipBelow = max(l.skipBelow, l.Position().Version)
			l.live, joined = true, true
			p.flow.signal(Signal{Kind: CaughtUp, Partition: p, Queue: l.Queue})
			continue
		}
		if !l.canTake() {
			continue
		}
		joining = joining || p.tail.Next-l.cursor.Next <= liveWindow/4
		if low == nil || l.cursor.restart() < low.cursor.restart() {
			low = l
		}
	}
	switch {
	case !joining && !p.joinUntil.IsZero():
		p.joinUntil, joined = time.Time{}, true
	case joining && now.After(p.joinUntil.Add(joinPause)):
		p.joinUntil = now.Add(joinPatience)
	}
	if joined {
		p.flow.signal(Signal{Kind: Freed})
		p.edited()
	}
	if low == nil {
		return at, false
	}
	return low.cursor, true
}

// CatchUp hands a frame to the lagging lanes that have read the log from a record up to the
// frame, if they can take it. With Absent, at is a cursor whose next changes are missing. A lane
// that did not take a frame gets no later copy of it: the changes behind its first copy would
// seem missing.
func (p *Partition) CatchUp(from int64, f *Frame) (reply Reply, at LogCursor) {
	if p.revoked {
		return Done, at
	}
	for _, l := range p.lanes {
		if l.live || l.cursor.Next < from || l.cursor.Next > f.Offset {
			continue
		}
		order := Repeated
		if f.Counts {
			order = l.cursor.Judge(f.Frame)
		}
		switch {
		case order == Repeated:
			l.cursor.Next = f.Offset + 1
		case !l.canTake():
		case order == Gap:
			reply, at = Absent, l.cursor
		case !f.Opened():
			return Open, at
		default:
			l.feed(f)
		}
	}
	p.edits++
	return reply, at
}

// Passed moves the lagging lanes that have read the log from a record on to its end, behind
// records that are no frames.
func (p *Partition) Passed(from, end int64) {
	for _, l := range p.lanes {
		if !l.live && from <= l.cursor.Next && l.cursor.Next < end {
			l.cursor.Next = end
		}
	}
	p.moved()
}

// at returns the lagging lanes at a cursor.
func (p *Partition) at(c LogCursor) (at []*Lane) {
	if p.revoked {
		return nil
	}
	for _, l := range p.lanes {
		if !l.live && l.cursor == c {
			at = append(at, l)
		}
	}
	return at
}

// Again lets the lanes at a cursor read a log again that has records there, from the first that
// is not certainly done.
func (p *Partition) Again(at LogCursor) {
	for _, l := range p.at(at) {
		next := at.restart()
		if n := len(l.pending); n > 0 {
			next = l.pending[n-1].Record
		}
		l.cursor = LogCursor{UpTo: at.UpTo, Next: next}
	}
}

// Found is the result of a search for the changes between a cursor and the next frame of the log,
// or its end. Its fields are read in this order: what left the outbox is in the log.
type Found struct {
	Outbox     []*change.Frame
	Start, End int64
	Continues  bool           // the log has, from Place up to End, a frame that counts and continues the cursor
	LastTo     change.Version // of the decisions
}

// Place returns where the log may continue a cursor before a frame. At the end of the log, without a
// frame, all of it is searched: skipped frames may count now, or the log is another one.
func Place(at LogCursor, f *Frame, start int64) LogCursor {
	if f == nil {
		return LogCursor{UpTo: at.UpTo, Next: start}
	}
	at.Next = max(f.Offset+1, start)
	return at
}

// Searched applies a search to the lanes at a cursor. They get frames of the outbox as if the log had
// them there, or continue where the log has the changes. Otherwise the changes are lost, unless a
// restored store is to decide them again.
func (p *Partition) Searched(at LogCursor, f *Frame, found Found) {
	lanes := p.at(at)
	owed, missing := at.Continue(found.Outbox)
	next, to := found.End, cmp.Or(missing, p.tail.border())
	decided := to
	if f != nil {
		next, to, decided = f.Offset, f.Prev, f.To
	}
	for _, l := range lanes {
		switch {
		case len(owed) > 0:
			for _, o := range owed {
				l.feed(&Frame{Frame: o, Offset: min(next, max(0, found.End-1)), Redelivered: true, Counts: true})
			}
			l.cursor.Next = next
		case found.Continues || f != nil && found.LastTo < decided:
			l.cursor = Place(at, f, found.Start)
		case found.LastTo >= decided && at.UpTo < to:
			l.lose(to)
			l.cursor = LogCursor{UpTo: to, Next: next}
		}
	}
	p.moved()
}

// lose notes that changes were lost, without to.
func (l *Lane) lose(to change.Version) {
	p := l.Partition
	if from := max(l.cursor.UpTo, l.skipBelow); from < to {
		l.repair.Lose(from, to)
		p.flow.signal(Signal{Kind: Lost, Partition: p, Queue: l.Queue, From: from, To: to})
		p.flow.signal(Signal{Kind: Walk})
	}
}
