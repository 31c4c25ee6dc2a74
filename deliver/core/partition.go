package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Partition is one assigned partition of the changes log.
type Partition struct {
	Number int32

	// NewFrom is where the inbox ended after a decision of this owner, or later: no other process hands
	// out a change from there on. Zero: not known yet.
	NewFrom change.Version

	flow    *Flow
	revoked bool
	top     change.Version // where a new service begins: no change below it was decided for one
	lastTo  change.Version // where the log ends, as far as it is known
	looked  bool           // lastTo is of a look at the store, since the decider took over
	looking bool           // a look has begun, likewise
	starved bool           // the log has changes for lanes that cannot take any now
	high    bool           // the turn of Next
	lanes   []*Lane        // by service
	absent  []store.ServicePosition

	requesting  int // appends of repair requests under way: its repairs have left the walk
	repairAfter time.Time
	repairPause time.Duration

	progress
}

// Frame is a frame of the log.
type Frame struct {
	*change.Frame
	Redelivered bool // a former owner may have delivered it
}

// Assign adds a partition whose progress was taken over under a token.
func (f *Flow) Assign(row *store.Progress) *Partition {
	p := &Partition{Number: row.Partition, flow: f, top: store.Top(row.Positions)}
	p.progress = progress{token: row.Token, saved: row.Positions, rows: map[string]RowEdit{}, edits: 1}
	saved := make(map[int32]*store.ServicePosition, len(row.Positions))
	for i := range row.Positions {
		saved[row.Positions[i].Service] = &row.Positions[i]
	}
	for _, q := range f.queues {
		p.add(q, saved[q.Number])
		delete(saved, q.Number)
	}
	for _, at := range row.Positions {
		if saved[at.Service] != nil {
			p.absent = append(p.absent, at)
		}
	}
	p.moved()
	f.parts[p.Number] = p
	f.signal(Signal{Kind: Walk})
	f.signal(Signal{Kind: Save})
	return p
}

// join adds the lane of a service, at its saved position.
func (p *Partition) join(q *Queue) {
	var saved *store.ServicePosition
	if i := slices.IndexFunc(p.absent, func(a store.ServicePosition) bool { return a.Service == q.Number }); i >= 0 {
		saved = new(p.absent[i])
		p.absent = slices.Delete(slices.Clone(p.absent), i, i+1)
	}
	l := p.add(q, saved)
	l.inTarget = p.top // the worker that it replaces, if any, may have written them
	slices.SortFunc(p.lanes, func(a, b *Lane) int { return cmp.Compare(a.Queue.Number, b.Queue.Number) })
	p.moved()
	p.flow.signal(Signal{Kind: Walk})
}

// add adds a lane behind the others. A new service begins at the highest position: its frames are of
// a newer revision than all that were handed out.
func (p *Partition) add(q *Queue, saved *store.ServicePosition) *Lane {
	l := &Lane{Partition: p, Queue: q, upTo: p.top, skipBelow: p.top}
	if saved != nil {
		l.restore(saved)
	}
	q.lanes = append(q.lanes, l)
	p.lanes = append(p.lanes, l)
	return l
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

// moved follows each change of positions.
func (p *Partition) moved() {
	p.flow.signal(Signal{Kind: Read, Partition: p})
	p.edited()
}

// Ends notes that the log has a frame up to a position.
func (p *Partition) Ends(to change.Version) {
	if to > p.lastTo {
		p.lastTo = to
		p.flow.signal(Signal{Kind: Read, Partition: p})
	}
}

// End is where the log ends, as far as it is known.
func (p *Partition) End() change.Version { return p.lastTo }

// Next returns the position of a lane for which the log is to be read: in turns the highest, which
// costs least, and the lowest. The first is read in any case, to learn where the log ends.
func (p *Partition) Next() (after change.Version, found bool) {
	p.starved, p.looking = false, true
	if p.revoked {
		return 0, false
	}
	for _, l := range p.lanes {
		switch {
		case p.looked && l.upTo >= p.lastTo:
		case !l.canTake():
			p.starved = true
		case !found, p.high == (l.upTo > after):
			after, found = l.upTo, true
		}
	}
	p.high = !p.high
	return after, found
}

// Few reports whether the lanes at a position that can take a frame take one at a time: their sinks fail,
// or their services have a pace.
func (p *Partition) Few(after change.Version) bool {
	return !slices.ContainsFunc(p.lanes, func(l *Lane) bool {
		return l.upTo == after && !l.Queue.Failing && !l.Queue.Paced && l.canTake()
	})
}

// Looked reports whether the log was looked at since the decider took over.
func (p *Partition) Looked() bool { return p.looked }

// Retaken notes that the decider has taken the partition over again: another process may have its
// progress, and a look has to show that this is not so before a decision of this one is handed out.
func (p *Partition) Retaken(lastTo change.Version) {
	p.looked, p.looking, p.NewFrom = false, false, 0
	p.Ends(lastTo)
	p.flow.signal(Signal{Kind: Read, Partition: p})
}

// Starved reports whether there are changes for lanes that could not take them at the last Next.
func (p *Partition) Starved() bool { return p.starved && !p.revoked }

// Look applies a look at the store that began after Next: the log has no frame between after and to, and
// ends at lastTo. What lanes need from there is lost: they pass it and need a repair.
func (p *Partition) Look(after, to, lastTo change.Version) {
	if p.revoked {
		return
	}
	p.looked, p.lastTo = p.looked || p.looking, max(p.lastTo, lastTo)
	for _, l := range p.lanes {
		if after <= l.upTo && l.upTo < to {
			l.lose(to)
		}
		l.caughtUp()
	}
	p.moved()
}

// Passed returns the position that all lanes passed which do not lag.
func (p *Partition) Passed() change.Version {
	low := p.top
	for _, l := range p.lanes {
		if !l.lagging {
			low = min(low, l.upTo)
		}
	}
	return low
}

// HandOut hands a frame to the lanes that it follows, and that can take it.
func (p *Partition) HandOut(f *Frame) {
	if p.revoked {
		return
	}
	i := 0
	for _, l := range p.lanes { // in the order of service numbers, like the slices
		for i < len(f.Slices) && f.Slices[i].Service < l.Queue.Number {
			i++
		}
		if l.upTo >= f.To || f.Prev > l.upTo {
			continue
		}
		if !l.canTake() {
			l.lag()
			continue
		}
		before := l.upTo
		l.upTo = f.To
		if i < len(f.Slices) && f.Slices[i].Service == l.Queue.Number {
			l.dispatch(f, f.Slices[i], before)
		}
		l.caughtUp()
	}
	p.top = max(p.top, f.To)
	p.edited()
}

// lag notes that the lane cannot take the next frame.
func (l *Lane) lag() {
	l.Partition.starved = true
	if !l.lagging && !l.Queue.Removed {
		l.lagging = true
		l.Partition.flow.signal(Signal{Kind: Lagging, Queue: l.Queue})
	}
}

// caughtUp notes that the lane has reached the end of the log, if it has.
func (l *Lane) caughtUp() {
	if p := l.Partition; l.lagging && l.upTo >= p.lastTo {
		l.lagging = false
		p.flow.signal(Signal{Kind: CaughtUp, Partition: p, Queue: l.Queue})
	}
}

// lose passes changes that are lost, without to.
func (l *Lane) lose(to change.Version) {
	p := l.Partition
	if from := max(l.upTo, l.skipBelow); from < to {
		l.repair.Lose(from, to)
		p.flow.signal(Signal{Kind: Lost, Partition: p, Queue: l.Queue, From: from, To: to})
		p.flow.signal(Signal{Kind: Walk})
	}
	l.upTo = to
}
