package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const flowServices = 4

// pacedService finishes slices in any order.
const pacedService = flowServices - 1

// flowWorld is a partition's store, log and targets, around a Flow that may die at any step. A
// position of the inbox always has the same changes; the frames around it may be cut anew.
type flowWorld struct {
	*rand.Rand
	trace []string
	now   time.Time

	// The store.
	watermark, lastTo int64
	outbox            []*Frame
	row               store.Progress

	// The log. Records are nil where they are no frames.
	start int64
	log   []*Frame

	done [flowServices]map[int64]bool // effects at the targets, by inbox position

	flow   *Flow
	p      *Partition
	queues []*Queue
	hand   [flowServices][]*Slice
	half   [flowServices]change.Version // where the first slice in hand is
	fresh  [flowServices]int64          // the next position of each service, in this life
	tokens byte
}

// wants reports whether a service has a change at a position.
func wants(service int, position int64) bool {
	return (position*2654435761>>uint(service))&3 != 0
}

func newFlowWorld(seed uint64) *flowWorld {
	w := &flowWorld{Rand: rand.New(rand.NewPCG(seed, 1)), now: now}
	for i := range w.done {
		w.done[i] = map[int64]bool{}
	}
	w.row.Token = store.Token{255}
	w.begin()
	return w
}

func (w *flowWorld) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// begin takes the partition over, after a kill or a revocation.
func (w *flowWorld) begin() {
	w.flow, w.queues = NewFlow(int64(2+w.IntN(8))<<10), nil
	for i := range flowServices {
		q := &Queue{Number: int32(i), Paced: i == pacedService}
		w.queues = append(w.queues, q)
		w.flow.Add(q)
		w.hand[i], w.half[i] = nil, 0
	}
	w.tokens++
	w.row.Token = store.Token{w.tokens}
	row := w.row
	w.p = w.flow.Assign(&row)
	for i := range w.fresh {
		w.fresh[i] = 0
		for _, at := range w.row.Positions {
			if int(at.Service) == i {
				w.fresh[i] = at.Version.Offset()
			}
		}
	}
}

// decide decides positions in one frame, or one position in parts.
func (w *flowWorld) decide() {
	from, n := w.watermark, int64(1+w.IntN(3))
	base := change.Frame{From: v(from), To: v(from + n), Prev: v(w.lastTo), Last: true}
	w.watermark, w.lastTo = from+n, from+n
	if from == 0 {
		base.Prev = 0
	}
	if w.IntN(3) > 0 {
		w.outbox = append(w.outbox, w.cut(base, 0, flowServices))
		return
	}
	base.To = v(from + 1)
	w.watermark, w.lastTo = from+1, from+1
	base.Cut = 1 + w.Uint64N(1<<(flowServices-1)) // bit i: the part ends with service i
	for part, first := 0, 0; first < flowServices; part++ {
		last := first + 1
		for last < flowServices && (base.Cut-1)>>(last-1)&1 == 0 {
			last++
		}
		f := base
		f.Part, f.Last = part, last == flowServices
		w.outbox = append(w.outbox, w.cut(f, first, last))
		first = last
	}
}

// cut makes a frame with the changes of some services.
func (w *flowWorld) cut(f change.Frame, first, last int) *Frame {
	var b change.FrameBuilder
	for s := first; s < last; s++ {
		for at := f.From.Offset(); at < f.To.Offset(); at++ {
			if wants(s, at) {
				b.Add(int32(s), &change.Change{Op: change.Retract, Entity: "e", Version: v(at), Key: "k", Content: change.Retracted()})
			}
		}
	}
	open, err := change.ParseFrame(b.AppendTo(nil, f))
	if err != nil {
		panic(err)
	}
	return &Frame{Frame: open}
}

// publish moves the first frame of the outbox into the log, sometimes twice or late, as owners of
// before do.
func (w *flowWorld) publish() {
	switch {
	case w.IntN(8) == 0:
		w.log = append(w.log, nil)
	case w.IntN(6) == 0 && len(w.log) > 0:
		w.log = append(w.log, w.log[w.IntN(len(w.log))])
	case len(w.outbox) > 0:
		w.log = append(w.log, w.outbox[0])
		if w.IntN(6) > 0 {
			w.outbox = w.outbox[1:]
		}
	}
}

// restore takes decisions and progress back to a saved row: later positions are decided again,
// perhaps with other borders.
func (w *flowWorld) restore(lastTo int64, row store.Progress) {
	w.watermark, w.lastTo, w.outbox, w.row = lastTo, lastTo, nil, row
	w.begin()
}

func (w *flowWorld) end() int64 { return w.start + int64(len(w.log)) }

// at is the record at an offset as it is read now: whether it counts depends on the store.
func (w *flowWorld) at(offset int64) *Frame {
	f := w.log[offset-w.start]
	if f == nil {
		return nil
	}
	return &Frame{Frame: f.Frame, Offset: offset, Counts: f.To <= v(w.watermark), Redelivered: true}
}

// tail reads the next record for the tail.
func (w *flowWorld) tail() {
	next := w.p.tail.Next
	if next > w.end() {
		next = w.start
	}
	if next = max(next, w.start); next >= w.end() {
		return
	}
	w.now = w.now.Add(capacityStep)
	if f := w.at(next); f == nil {
		w.p.tail.Next = next + 1
	} else {
		w.note("tail %d [%v,%v) part %d counts %v: %v, tail %+v", next, f.From.Offset(), f.To.Offset(), f.Part, f.Counts, w.p.Tail(f, w.now), w.p.tail)
	}
}

const capacityStep = 100 * time.Millisecond

// catchUp does one round of the catch-up reader.
func (w *flowWorld) catchUp() bool {
	at, found := w.p.Behind(w.now)
	if !found {
		return false
	}
	w.note("behind %+v", at)
	if at.Next >= w.end() {
		if w.start < w.end() && at.Next < w.end() {
			w.p.Again(at)
			return true
		}
		w.search(at, nil)
		return true
	}
	if at.Next < w.end() && w.IntN(20) == 0 {
		w.p.Again(at) // the read failed
	}
	from, last := at.Next, min(w.end(), max(at.Next, w.start)+int64(1+w.IntN(3)))
	for offset := max(at.Next, w.start); offset < last; offset++ {
		f := w.at(offset)
		if f == nil {
			continue
		}
		for n := 0; ; n++ {
			reply, missing := w.p.CatchUp(from, f)
			if w.note("catch up %d [%v,%v) part %d counts %v: %v", offset, f.From.Offset(), f.To.Offset(), f.Part, f.Counts, reply); reply != Absent {
				break
			}
			if n > 10*flowServices {
				panic("a gap stays")
			}
			w.search(missing, f)
		}
		from = offset + 1
	}
	w.p.Passed(from, last)
	return true
}

func (w *flowWorld) search(at LogCursor, f *Frame) {
	found := Found{Start: w.start, End: w.end(), LastTo: v(w.lastTo)}
	for _, o := range w.outbox {
		found.Outbox = append(found.Outbox, o.Frame)
	}
	place := Place(at, f, w.start)
	for offset := max(place.Next, w.start); offset < w.end(); offset++ {
		if o := w.at(offset); o != nil && o.Counts && place.Judge(o.Frame) == Follows {
			found.Continues = true
		}
	}
	w.note("search %+v: continues %v, outbox %d", at, found.Continues, len(found.Outbox))
	w.p.Searched(at, f, found)
}

// sink delivers some of the changes in hand.
func (w *flowWorld) sink(t require.TestingT, s int, all bool) {
	q := w.queues[s]
	w.hand[s] = append(w.hand[s], q.Take(4-len(w.hand[s]), w.now)...)
	for len(w.hand[s]) > 0 && (all || w.IntN(3) > 0) {
		n := 0
		if s == pacedService {
			n = w.IntN(len(w.hand[s]))
		}
		sl, finished := w.hand[s][n], true
		for c, err := range sl.Changes.All("s") {
			require.NoError(t, err)
			at := c.Version.Offset()
			if c.Version < sl.SkipBelow || n == 0 && c.Version < w.half[s] {
				continue
			}
			if s != pacedService {
				require.GreaterOrEqual(t, at, w.fresh[s], "service %d gets a change again", s)
			}
			if n == 0 && !all && w.IntN(5) == 0 {
				w.flow.Advance(sl, c.Version) // the rest of the slice fails for now
				w.half[s] = c.Version
				finished = false
				break
			}
			w.note("service %d gets %d", s, at)
			w.done[s][at], w.fresh[s] = true, at+1
		}
		if !finished {
			break
		}
		if n == 0 {
			w.half[s] = 0
		}
		w.flow.Finish(sl)
		w.hand[s] = slices.Delete(w.hand[s], n, n+1)
	}
	q.SetBusy(len(w.hand[s]) > 0, len(w.hand[s]) >= 4)
}

// save swaps the row: done, not done, or done without an answer.
func (w *flowWorld) save(t require.TestingT) {
	if w.p.Unsure() {
		require.True(t, w.p.Resolve([]store.Progress{w.row}))
	}
	w.tokens++
	swap, needed := w.p.Swap(store.Token{w.tokens})
	if !needed || swap.Floor > v(w.watermark) {
		return
	}
	outcome := w.IntN(4)
	if outcome == 0 {
		return // no effect, and no answer
	}
	require.Equal(t, w.row.Token, swap.Old)
	w.check(t, swap.Progress)
	w.row = swap.Progress
	if outcome > 1 {
		w.p.Swapped(true)
	}
}

// check verifies a row: every change below a position took effect or is to be repaired, and no
// position goes back.
func (w *flowWorld) check(t require.TestingT, row store.Progress) {
	for _, at := range row.Positions {
		s := int(at.Service)
		repair, ok := DecodeRepair(at.Repair, at.Version)
		require.True(t, ok)
		for n := range at.Version.Offset() {
			if wants(s, n) && at.Version.Generation() > 0 {
				require.True(t, w.done[s][n] || repair.Has(v(n)), "service %d is at %d and lacks %d", s, at.Version.Offset(), n)
			}
		}
		for _, before := range w.row.Positions {
			if before.Service == at.Service {
				require.GreaterOrEqual(t, at.Version, before.Version, "service %d", s)
			}
		}
	}
	held := int64(0)
	for _, q := range w.queues {
		held += q.held
	}
	require.Equal(t, held, w.flow.held)
}

// step does one random thing.
func (w *flowWorld) step(t require.TestingT, saved *[]func()) {
	s := w.IntN(flowServices)
	switch n := w.IntN(100); {
	case n < 15:
		w.decide()
	case n < 35:
		w.publish()
	case n < 55:
		w.tail()
	case n < 72:
		w.catchUp()
	case n < 84:
		w.sink(t, s, false)
	case n < 88:
		w.flow.SetFailing(w.queues[s], !w.queues[s].Failing)
	case n < 91:
		w.save(t)
		lastTo, row := w.lastTo, w.row
		if !slices.ContainsFunc(row.Positions, func(p store.ServicePosition) bool { return p.Version > v(lastTo) }) {
			*saved = append(*saved, func() { w.note("restored to %d", lastTo); w.restore(lastTo, row) })
		}
	case n < 93:
		w.flow.Fall(w.queues[s])
	case n < 95 && len(w.log) > 0:
		cut := w.IntN(min(len(w.log), 3) + 1)
		w.start, w.log = w.start+int64(cut), w.log[cut:]
		w.note("the log begins at %d", w.start)
	case n < 97:
		w.p.LogEnded(v(w.lastTo), w.start, w.end(), len(w.outbox) > 0)
		w.note("log ended, tail %+v", w.p.tail)
	case n == 97:
		w.note("killed")
		w.begin()
	case n == 98 && len(*saved) > 0:
		(*saved)[len(*saved)-1]()
		*saved = (*saved)[:len(*saved)-1]
	case n == 99 && w.IntN(4) == 0:
		w.note("the log is re-created")
		w.start, w.log = 0, nil
	}
	w.flow.Signals()
}

// settle lets everything work again: all services reach the decisions, and are live.
func (w *flowWorld) settle(t require.TestingT) {
	w.note("calm")
	for _, q := range w.queues {
		w.flow.SetFailing(q, false)
	}
	w.decide()
	for round := 0; ; round++ {
		for len(w.outbox) > 0 {
			w.log, w.outbox = append(w.log, w.outbox[0]), w.outbox[1:]
		}
		w.tail()
		for w.catchUp() && w.IntN(3) > 0 {
		}
		for s := range flowServices {
			w.sink(t, s, true)
		}
		w.p.LogEnded(v(w.lastTo), w.start, w.end(), false)
		w.save(t)
		live := len(w.flow.Lags()) == 0
		for _, l := range w.p.lanes {
			live = live && l.Position().Version >= v(w.lastTo)
		}
		if live && w.p.tail.Next >= w.end() {
			break
		}
		require.Less(t, round, 2000+20*len(w.log), "a service does not get live again: %v", w.flow.Lags())
		w.now = w.now.Add(time.Second)
	}
	require.Empty(t, w.flow.frames, "memory is held")
	require.Zero(t, w.flow.held)
	require.Zero(t, w.flow.kept)
}

// I1: through gaps, frames of lost futures, kills, restores, swaps of unknown outcome, truncated and
// re-created logs, and services that fail together, no position passes an undelivered change
// without its repair, none goes back, and every service gets live again.
func TestI1NoChangeIsPassed(t *testing.T) {
	seeds := 3000
	if testing.Short() {
		seeds = 300
	}
	for seed := range uint64(seeds) {
		runFlow(t, seed)
	}
}

func runFlow(t *testing.T, seed uint64) {
	w := newFlowWorld(seed)
	defer func() {
		if err := recover(); err != nil || t.Failed() {
			t.Fatalf("seed %d: %v\n%v", seed, err, strings.Join(w.trace[max(0, len(w.trace)-60):], "\n"))
		}
	}()
	var saved []func()
	for range 50 + w.IntN(250) {
		w.step(t, &saved)
	}
	w.settle(t)
}
