package transport

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/twmb/franz-go/pkg/kgo"
)

// assignmentNumber makes the numbers of assignments unique in the process.
var assignmentNumber atomic.Uint64 //nolint:gochecknoglobals // numbers of one process, whoever asks

// LastAssignment returns the number of the newest assignment of the process:
// those that begin later have larger ones. 0 before the first.
func LastAssignment() uint64 { return assignmentNumber.Load() }

// NextAssignment begins an assignment and returns its number, for subscribers
// of other packages. May be called concurrently.
func NextAssignment() uint64 { return assignmentNumber.Add(1) }

// assignment is one assignment of one partition. The poll loop pushes records
// in, its dispatcher hands them out.
type assignment struct {
	g         *Group
	partition int32
	topicID   string
	ctx       context.Context // ends with the assignment
	cancel    context.CancelFunc
	wake      chan struct{} // capacity 1: records came
	done      chan struct{} // closed when its dispatcher has ended
	began     int64         // the offset that it started at

	mu          sync.Mutex
	queue       []*kgo.Record // guarded by mu; fetched and not handed out
	queued      int64         // guarded by mu; memory of queue, in bytes
	paused      bool          // guarded by mu and, to change it, by g.fetchMu: nothing is fetched
	commitAt    int64         // guarded by mu; first unacknowledged offset, -1 before the first
	commitEpoch int32         // guarded by mu
	ackedTo     int64         // guarded by mu; behind the last record that was acknowledged
	ackedEpoch  int32         // guarded by mu
	inWork      int64         // guarded by mu; first offset of the batch in work, -1 without one
	aside       []int64       // guarded by mu; first offsets of batches set aside
	committed   int64         // guarded by mu; offset committed last, -1 before the first
	fetchedTo   int64         // guarded by mu; where the next record is expected
	known       int64         // guarded by mu; records before it may have been handed out before
}

func newAssignment(g *Group, partition int32, topicID string, start, end int64) *assignment {
	a := &assignment{g: g, partition: partition, topicID: topicID, wake: make(chan struct{}, 1), done: make(chan struct{}), commitAt: -1, committed: -1, inWork: -1, began: start, fetchedTo: start, known: end}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// recordSize is the size of a fetched record, as Received counts it. A transaction's marker,
// which is no message, has none.
func recordSize(r *kgo.Record) int64 {
	if r.Attrs.IsControl() {
		return 0
	}
	v := Received{Key: r.Key, Value: r.Value, Headers: r.Headers}
	return int64(v.Size())
}

// recordOverhead is the memory of a record beyond its size: kgo's
// struct and ours. Without it small records would take several times the budget.
const recordOverhead = 256

// push queues the records of one fetch, and reports whether that fills the queue.
// Called by the poll loop.
func (a *assignment) push(records []*kgo.Record) (full bool) {
	crash.At(crash.Fetched, a.g.gc.ID)
	cost := int64(len(records)) * recordOverhead
	for _, r := range records {
		cost += recordSize(r)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return false
	}
	a.queue = append(a.queue, records...)
	a.fetchedTo = records[len(records)-1].Offset + 1
	a.queued += cost
	a.g.budget.held.Add(cost)
	wait.Offer(a.wake, struct{}{})
	return a.full()
}

// full reports whether fetching more could only pile up. The caller holds a.mu.
func (a *assignment) full() bool {
	return a.queued >= a.g.budget.queueLimit() && a.g.budget.held.Load() >= a.g.budget.pool()
}

// hasRoom reports whether a paused partition is to be fetched again. Frames in
// flight do not count, so that the next frame is there when it is acknowledged.
// The caller holds a.mu.
func (a *assignment) hasRoom() bool {
	return a.queued <= a.g.budget.queueLimit()/2 || a.g.budget.held.Load() <= a.g.budget.pool()/2
}

// batch holds the fetched records of one frame, with the markers of transactions between them:
// markers have no message, but take offsets.
type batch struct {
	fetched []*kgo.Record
	records int   // without markers; 0 needs no message
	bytes   int64 // of records
}

func (b *batch) last() *kgo.Record { return b.fetched[len(b.fetched)-1] }

// cost is b's share of the budget, in bytes.
func (b *batch) cost() int64 { return b.bytes + int64(len(b.fetched))*recordOverhead }

// take returns the next batch, of at most so many records, if most is positive, or false when
// nothing waits.
func (a *assignment) take(most int) (batch, bool) {
	if most <= 0 || most > a.g.gc.FrameRecords {
		most = a.g.gc.FrameRecords
	}
	a.mu.Lock()
	var b batch
	n := 0
	for _, r := range a.queue {
		size := recordSize(r)
		if !r.Attrs.IsControl() {
			if b.records > 0 && (b.records >= most || b.bytes+size > a.g.gc.FrameBytes) {
				break
			}
			b.records++
			b.bytes += size
		}
		n++
	}
	b.fetched = a.queue[:n:n]
	if n > 0 {
		a.inWork = b.fetched[0].Offset
	}
	a.queued -= b.cost()
	if a.queue = a.queue[n:]; len(a.queue) == 0 {
		a.queue = nil
	}
	resume := a.paused && a.hasRoom()
	a.mu.Unlock()
	if resume {
		a.g.resume(a)
	}
	return b, n > 0
}

// acknowledged moves the position to commit behind b, whose records are not used any
// more.
func (a *assignment) acknowledged(b batch) {
	last, cost := b.last(), b.cost()
	// The queue may share their array, which would keep them in memory.
	clear(b.fetched)
	a.free(cost, func() {
		a.passed(last)
		a.inWork = -1
	})
	crash.At(crash.Acknowledged, a.g.gc.ID)
}

// free releases a part of the budget with a change, and moves the position to commit.
func (a *assignment) free(cost int64, change func()) {
	a.mu.Lock()
	change()
	a.moveCommit()
	a.g.budget.held.Add(-cost)
	resume := a.paused && a.hasRoom()
	a.mu.Unlock()
	if resume {
		a.g.resume(a)
	}
}

// passed notes that records up to r were acknowledged or set aside. The caller holds a.mu.
func (a *assignment) passed(r *kgo.Record) {
	if r.Offset >= a.ackedTo {
		a.ackedTo, a.ackedEpoch = r.Offset+1, r.LeaderEpoch
	}
}

// moveCommit puts the position to commit before the first record that is not acknowledged:
// one that was set aside, or handed out again behind others that were acknowledged. The
// caller holds a.mu.
func (a *assignment) moveCommit() {
	a.commitAt, a.commitEpoch = a.ackedTo, a.ackedEpoch
	before := func(offset int64) {
		if offset >= 0 && offset < a.commitAt {
			a.commitAt, a.commitEpoch = offset, -1
		}
	}
	before(a.inWork)
	for _, offset := range a.aside {
		before(offset)
	}
	if len(a.queue) > 0 {
		before(a.queue[0].Offset)
	}
}

// setAside returns the part of b that is left, the records at some indexes. The others are
// acknowledged.
func (a *assignment) setAside(b batch, at []int) (left batch) {
	n := 0
	for _, r := range b.fetched {
		if r.Attrs.IsControl() {
			continue
		}
		if slices.Contains(at, n) {
			left.fetched = append(left.fetched, r)
			left.records++
			left.bytes += recordSize(r)
		}
		n++
	}
	last, cost := b.last(), b.cost()-left.cost()
	clear(b.fetched)
	a.free(cost, func() {
		a.passed(last)
		a.inWork = -1
		a.aside = append(a.aside, left.fetched[0].Offset)
	})
	return left
}

// settled notes that a batch that was set aside is acknowledged.
func (a *assignment) settled(left batch) {
	a.free(left.cost(), func() { a.noLongerAside(left) })
}

// noLongerAside is called with a.mu held.
func (a *assignment) noLongerAside(left batch) {
	a.aside = slices.DeleteFunc(a.aside, func(offset int64) bool { return offset == left.fetched[0].Offset })
}

// handedOut notes that records of b were handed out and may be redelivered.
func (a *assignment) handedOut(b batch) {
	a.mu.Lock()
	a.known = max(a.known, b.last().Offset+1)
	a.mu.Unlock()
}

// knownTo is the offset before which records may have been handed out before.
func (a *assignment) knownTo() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// requeue returns a batch that was not acknowledged, or the part that was set aside, to the
// front of the queue.
func (a *assignment) requeue(b batch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(slices.Clone(b.fetched), a.queue...)
	a.queued += b.cost()
	if b.fetched[0].Offset == a.inWork {
		a.inWork = -1
	}
	a.noLongerAside(b)
}

// toCommit returns the position to commit, if it moved since the last commit.
func (a *assignment) toCommit() (kgo.EpochOffset, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return kgo.EpochOffset{Epoch: a.commitEpoch, Offset: a.commitAt}, a.commitAt >= 0 && a.commitAt != a.committed
}

func (a *assignment) wasCommitted(offset int64) {
	a.mu.Lock()
	a.committed = offset
	a.mu.Unlock()
}

// end cancels the contexts of the messages and returns when the dispatcher has stopped. Later
// acknowledgements have no effect.
func (a *assignment) end() {
	a.cancel()
	<-a.done
	a.mu.Lock()
	a.g.budget.held.Add(-a.queued)
	a.queue, a.queued = nil, 0
	a.mu.Unlock()
	a.g.resume(a) // a pause outlives the assignment in the client
}

// wanted is the first offset that is not acknowledged.
func (a *assignment) wanted() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.commitAt, a.began)
}

// position is the offset behind the last record that came, or where the
// assignment started.
func (a *assignment) position() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fetchedTo
}
