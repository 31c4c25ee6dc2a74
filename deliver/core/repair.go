package core

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wire"
	"github.com/seed-86dfc502/weir/store"
)

// Repair holds the changes that a service lost of a partition of the changes log, and the
// progress of the search for their entities. The search visits all entities in a circle, from where it
// joined the walk that serves all repairs. The zero value needs nothing.
type Repair struct {
	lost      []span
	joined    bool
	wrapped   bool   // the last entity was visited, and the search began again at the first
	start, at string // the search joined behind start, and has visited up to at
}

// span is a range of versions, without to.
type span struct{ from, to change.Version }

// maxSpans bounds the ranges of a repair: the two closest become one, whose entities are
// decided again although some were delivered.
const maxSpans = 8

// Lose adds lost versions, without to. All entities are searched for them.
func (r *Repair) Lose(from, to change.Version) {
	if slices.ContainsFunc(r.lost, func(s span) bool { return s.from <= from && to <= s.to }) {
		return
	}
	all := append(slices.Clone(r.lost), span{from, to})
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merge := func(n int) {
		all[n].to = max(all[n].to, all[n+1].to)
		all = slices.Delete(all, n+1, n+2)
	}
	for n := 0; n+1 < len(all); {
		if all[n+1].from <= all[n].to {
			merge(n)
		} else {
			n++
		}
	}
	if len(all) > maxSpans {
		closest := 0
		for n := range len(all) - 1 {
			if all[n+1].from-all[n].to < all[closest+1].from-all[closest].to {
				closest = n
			}
		}
		merge(closest)
	}
	*r = Repair{lost: all}
}

// Needed reports whether entities are left to search.
func (r *Repair) Needed() bool { return len(r.lost) > 0 }

// Has reports whether a version was lost.
func (r *Repair) Has(v change.Version) bool {
	return slices.ContainsFunc(r.lost, func(s span) bool { return s.from <= v && v < s.to })
}

// Bounds returns the range that holds all lost versions, without to.
func (r *Repair) Bounds() (from, to change.Version) {
	return r.lost[0].from, r.lost[len(r.lost)-1].to
}

// NextPage returns the entity behind which the next page of a walk begins, for repairs of
// which at least one is needed: at the walk's place, or at the next place that a repair
// has, if none is there.
func NextPage(place string, repairs []*Repair) string {
	next, first := "", ""
	found, any := false, false
	for _, r := range repairs {
		if !r.joined {
			return place
		}
		if r.at >= place && (!found || r.at < next) {
			next, found = r.at, true
		}
		if !any || r.at < first {
			first, any = r.at, true
		}
	}
	if found {
		return next
	}
	return first
}

// Join is called before a page is read that begins behind an entity: there r joins the walk.
func (r *Repair) Join(after string) {
	if !r.joined {
		r.joined, r.start, r.at = true, after, after
	}
}

// Covers reports whether r needs a page that was read since Join: the entities behind after
// up to last, or all behind after if last is "". It needs those behind At, and none if more
// was lost meanwhile: its entities may have been read too early.
func (r *Repair) Covers(after, last string) bool {
	return r.joined && r.at >= after && (last == "" || r.at < last)
}

// At is the last entity that was visited.
func (r *Repair) At() string { return r.at }

// Advance is called when the requests for a page that r covers are durable in the inbox.
func (r *Repair) Advance(last string) {
	if !r.joined { // more was lost meanwhile
		return
	}
	switch r.at = last; {
	case last == "" && !r.wrapped && r.start != "":
		r.wrapped = true
	case last == "" || r.wrapped && last >= r.start:
		*r = Repair{}
	}
}

// Encode returns r for DecodeRepair; "" if it needs nothing.
func (r *Repair) Encode() string {
	if !r.Needed() {
		return ""
	}
	b := binary.AppendUvarint(nil, uint64(len(r.lost)))
	for _, s := range r.lost {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.from)), uint64(s.to))
	}
	phase := uint64(0)
	if r.joined {
		phase = 1
	}
	if r.wrapped {
		phase = 2
	}
	b = binary.AppendUvarint(b, phase)
	return string(wire.Append(wire.Append(b, r.start), r.at))
}

// FirstLost returns the lowest version that an encoded repair still searches the entities of,
// or below, the position that it belongs to, without a repair.
func FirstLost(text string, below change.Version) change.Version {
	if r, _ := DecodeRepair(text, below); r.Needed() {
		from, _ := r.Bounds()
		return min(from, below)
	}
	return below
}

// DecodeRepair reads what Encode returned. Of a text that it does not understand it takes
// everything below a position for lost, and ok is false.
func DecodeRepair(text string, below change.Version) (r Repair, ok bool) {
	if text == "" {
		return r, true
	}
	in := wire.Reader{Rest: []byte(text)}
	for n := in.Count(); n > 0 && !in.Failed; n-- {
		s := span{change.Version(in.Uvarint()), change.Version(in.Uvarint())}
		in.Failed = in.Failed || s.from >= s.to || s.to > math.MaxInt64
		r.lost = append(r.lost, s)
	}
	phase := in.Uvarint()
	r.joined, r.wrapped = phase > 0, phase > 1
	r.start, r.at = in.Text(), in.Text()
	if in.Failed || len(in.Rest) > 0 || !r.Needed() {
		r = Repair{}
		r.Lose(0, below)
		return r, false
	}
	return r, true
}

// Need is a reason why entities of a lane are decided again: changes that it lost, or a refresh.
type Need struct {
	Lane    *Lane
	Refresh bool
}

// Served is a need as it was when a page was read.
type Served struct {
	Repair
	Need
	refresh refresh
}

// Asks reports whether an entity of a page is to be decided again, by the version of its last
// change.
func (s *Served) Asks(entity string, v change.Version) bool {
	return entity > s.at && s.Has(v) && (!s.Refresh || s.refresh.due(s.Lane, entity))
}

const (
	minRepairPause = time.Second // of a partition whose inbox rejected requests
	maxRepairPause = time.Minute
)

// LagInNeed reports whether a lane with a need lags. JoinWalk then has to know where the logs begin.
func (f *Flow) LagInNeed() bool {
	for _, p := range f.parts {
		if slices.ContainsFunc(p.lanes, func(l *Lane) bool { return l.lagging && (l.repair.Needed() || l.Queue.Refresh > 0) }) {
			return true
		}
	}
	return false
}

// old reports whether the lane is in the older half of a log that begins at a position. The changes
// of further requests would push those of earlier requests out of the log, and the lane would never
// catch up (lag.pml, NO_THROTTLE).
func (l *Lane) old(begins change.Version) bool {
	at := l.Position()
	return l.lagging && (at <= begins || at-begins < l.Partition.lastTo-at)
}

// JoinWalk lets all repairs and laps of refreshes that can be served join the walk at a place; where
// the log of a partition begins, marks say. It returns them, the entity behind which the next page
// begins, and the range of versions to search, without to. With none to serve, idle is how long that
// may last.
func (f *Flow) JoinWalk(place string, marks map[int32]store.Mark, now time.Time) (served []Served, after string, from, to change.Version, idle time.Duration) {
	idle, from = time.Hour, math.MaxInt64
	var repairs []*Repair
	for _, p := range f.all() {
		if p.requesting > 0 {
			continue
		}
		pause := p.repairAfter.Sub(now)
		need := func(r *Repair, n Need) {
			wait := pause
			if n.Lane.old(marks[p.Number].Begins) {
				wait = max(wait, minRepairPause)
			}
			if wait > 0 {
				idle = min(idle, wait)
				return
			}
			repairs, served = append(repairs, r), append(served, Served{Need: n, refresh: n.Lane.refresh})
			low, high := r.Bounds()
			from, to = min(from, low), max(to, high)
		}
		for _, l := range p.lanes {
			if l.repair.Needed() {
				need(&l.repair, Need{Lane: l})
			}
			if l.Queue.Refresh <= 0 {
				continue
			}
			if wait := l.refresh.begin(l, now); wait > 0 {
				idle = min(idle, wait)
			} else {
				need(&l.refresh.lap, Need{l, true})
			}
		}
	}
	if after = place; len(repairs) > 0 {
		after = NextPage(place, repairs)
	}
	for n, r := range repairs {
		r.Join(after)
		served[n].Repair = *r
	}
	return served, after, from, to, idle
}

// Requesting notes that requests of lanes' repairs are being appended: until Requested their
// partitions leave the walk.
func (p *Partition) Requesting() { p.requesting++ }

// Requested notes the outcome of an append. rejected reports that the partition now pauses.
func (p *Partition) Requested(ok bool, now time.Time) (rejected bool) {
	p.requesting--
	if !ok && !p.repairAfter.After(now) {
		p.repairPause = min(max(2*p.repairPause, minRepairPause), maxRepairPause)
		p.repairAfter = now.Add(p.repairPause)
		return true
	}
	return false
}

// Visited advances a need behind a page whose requests are durable, and reports whether a repair
// is done.
func (n Need) Visited(last string) (repaired bool) {
	l := n.Lane
	l.Partition.repairPause = 0
	l.Partition.edited()
	if n.Refresh {
		l.refresh.advance(last)
		return false
	}
	l.repair.Advance(last)
	return !l.repair.Needed()
}

// edited has the positions of p saved.
func (p *Partition) edited() {
	p.edits++
	p.flow.signal(Signal{Kind: Save})
}
