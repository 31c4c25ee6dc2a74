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

// flowWorld is a partition's store and targets, around a Flow that may die at any step. A position of
// the inbox always has the same changes; a restored store may cut the frames around it anew.
type flowWorld struct {
	*rand.Rand
	trace []string
	now   time.Time

	// The store.
	watermark, lastTo int64
	frames            []*Frame
	row               store.Progress

	memory []*Frame // that were handed over

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
	w.memory = nil
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

// decide decides positions in a frame, and hands it over unless the outcome of its commit is not known.
func (w *flowWorld) decide() {
	from, n := w.watermark, int64(1+w.IntN(3))
	h := change.Frame{From: v(from), To: v(from + n), Prev: v(w.lastTo)}
	if w.lastTo == 0 {
		h.Prev = 0
	}
	w.watermark, w.lastTo = from+n, from+n
	var b change.FrameBuilder
	for s := range flowServices {
		for at := from; at < from+n; at++ {
			if wants(s, at) {
				b.Add(int32(s), &change.Change{Op: change.Retract, Entity: "e", Version: v(at), Key: "k", Content: change.Retracted()})
			}
		}
	}
	f, err := change.ParseFrame(b.AppendTo(nil, h))
	if err != nil {
		panic(err)
	}
	w.frames = append(w.frames, &Frame{Frame: f, Redelivered: true})
	if w.IntN(5) > 0 {
		w.memory = append(w.memory, &Frame{Frame: f})
		w.p.Ends(f.To)
	} else if w.IntN(2) == 0 {
		w.p.Ends(f.To)
	}
}

// restore takes decisions, frames and progress back to a saved state: later positions are decided again,
// perhaps with other borders.
func (w *flowWorld) restore(lastTo int64, frames []*Frame, row store.Progress) {
	w.watermark, w.lastTo, w.frames, w.row = lastTo, lastTo, frames, row
	w.begin()
}

// read reads the log for a lane, from memory where that has it, and reports whether it did.
func (w *flowWorld) read() bool {
	w.now = w.now.Add(capacityStep)
	after, found := w.p.Next()
	if !found {
		return false
	}
	from := func(frames []*Frame) []*Frame {
		i := slices.IndexFunc(frames, func(f *Frame) bool { return f.To > after })
		if i < 0 {
			return nil
		}
		return frames[i:min(len(frames), i+1+w.IntN(3))]
	}
	next := from(w.memory)
	if len(next) == 0 || next[0].Prev > after {
		next = from(w.frames)
		to := v(w.lastTo)
		if len(next) > 0 {
			to = next[0].Prev
		}
		w.p.Look(after, to, v(w.lastTo))
	}
	for _, f := range next {
		w.note("handed out [%d,%d) behind %d", f.From.Offset(), f.To.Offset(), f.Prev.Offset())
		w.p.HandOut(f)
	}
	return true
}

const capacityStep = 100 * time.Millisecond

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
	if !needed {
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
	case n < 20:
		w.decide()
	case n < 60:
		w.read()
	case n < 76:
		w.sink(t, s, false)
	case n < 80:
		w.flow.SetFailing(w.queues[s], !w.queues[s].Failing)
	case n < 86:
		w.save(t)
		lastTo, row, frames := w.lastTo, w.row, slices.Clone(w.frames)
		if !slices.ContainsFunc(row.Positions, func(p store.ServicePosition) bool { return p.Version > v(lastTo) }) {
			*saved = append(*saved, func() { w.note("restored to %d", lastTo); w.restore(lastTo, frames, row) })
		}
	case n < 88:
		w.flow.Fall(w.queues[s])
	case n < 91 && len(w.memory) > 0:
		w.memory = w.memory[1+w.IntN(len(w.memory)):]
	case n < 94 && len(w.frames) > 0:
		w.frames = w.frames[w.IntN(min(len(w.frames), 3)+1):]
		w.note("%d frames are left", len(w.frames))
	case n < 96:
		w.p.Ends(v(w.lastTo))
	case n == 97:
		w.note("killed")
		w.begin()
	case n == 98 && len(*saved) > 0:
		(*saved)[len(*saved)-1]()
		*saved = (*saved)[:len(*saved)-1]
	}
	w.flow.Signals()
}

// settle lets everything work again: all services reach the decisions.
func (w *flowWorld) settle(t require.TestingT) {
	w.note("calm")
	for _, q := range w.queues {
		w.flow.SetFailing(q, false)
	}
	w.decide()
	w.p.Ends(v(w.lastTo))
	for round := 0; ; round++ {
		for w.read() && w.IntN(3) > 0 {
		}
		for s := range flowServices {
			w.sink(t, s, true)
		}
		w.save(t)
		over := true
		for _, l := range w.p.lanes {
			over = over && l.Position() >= v(w.lastTo)
		}
		if over {
			break
		}
		require.Less(t, round, 2000, "a service does not reach the end")
		w.now = w.now.Add(time.Second)
	}
	require.Empty(t, w.flow.Lags())
	require.Empty(t, w.flow.frames, "memory is held")
	require.Zero(t, w.flow.held)
	require.Zero(t, w.flow.kept)
}

// I1: through frames that retention took or memory dropped, commits of unknown outcome, kills, restores,
// swaps of unknown outcome, and services that fail together, no position passes an undelivered change
// without its repair, none goes back, and every service reaches the end.
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
