package transport

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/twmb/franz-go/pkg/kgo"
)

type topicPartition struct {
	topic     string
	partition int32
}

// claim is one assignment of one partition. The poll loop pushes records in,
// a run (run.go) hands them out; between runs the records wait here.
type claim struct {
	g       *Group
	tp      topicPartition
	topicID string
	window  int             // messages in flight
	ctx     context.Context // ends with the claim
	cancel  context.CancelFunc
	wake    chan struct{} // capacity 1: records came, or paused changed

	// What is buffered here and not yet handed out, and what is in flight.
	// Written by the poll loop and the run, read by both.
	waiting      atomic.Int64
	waitingBytes atomic.Int64
	flying       atomic.Int64
	flyingBytes  atomic.Int64

	began int64 // the offset that it started at

	mu          sync.Mutex
	queue       []*kgo.Record // guarded by mu; not yet taken by the run
	paused      bool          // guarded by mu: the partition is paused because the window is full
	run         *run          // guarded by mu; nil while no view takes the messages
	commitAt    int64         // guarded by mu; first offset not acknowledged, -1: none yet
	commitEpoch int32         // guarded by mu
	committed   int64         // guarded by mu; what was committed last, -1: nothing
	fetchedTo   int64         // guarded by mu; where the next record was expected
	known       int64         // guarded by mu; records before it may have been handed out before
}

func newClaim(g *Group, tp topicPartition, topicID string, start, end int64) *claim {
	c := &claim{g: g, tp: tp, topicID: topicID, window: g.gc.window(tp.topic), wake: make(chan struct{}, 1), commitAt: -1, committed: -1, began: start, fetchedTo: start, known: end}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *claim) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// push takes what one fetch brought. Called by the poll loop.
func (c *claim) push(records []*kgo.Record) {
	if len(records) == 0 {
		return
	}
	crash.At(crash.Fetched, c.g.gc.ID)
	var bytes int64
	for _, r := range records {
		bytes += recordSize(r)
	}
	c.mu.Lock()
	c.queue = append(c.queue, records...)
	c.fetchedTo = records[len(records)-1].Offset + 1
	c.waiting.Add(int64(len(records)))
	c.waitingBytes.Add(bytes)
	if !c.paused && c.full() {
		c.paused = true
		c.g.cl.PauseFetchPartitions(c.selector())
	}
	c.mu.Unlock()
	c.poke() // also after a pause: the run may have emptied the queue meanwhile
}

func (c *claim) selector() map[string][]int32 {
	return map[string][]int32{c.tp.topic: {c.tp.partition}}
}

// full: what is here fills the window, so another fetch could only pile up.
func (c *claim) full() bool {
	return c.waiting.Load()+c.flying.Load() >= int64(c.window) ||
		c.waitingBytes.Load()+c.flyingBytes.Load() >= c.g.gc.WindowBytes
}

// maybeResume fetches again once half a window of unsent records is left, so
// that the next fetch travels while these are handed out.
func (c *claim) maybeResume() {
	if c.waiting.Load() > int64(c.window/2) || c.waitingBytes.Load() > c.g.gc.WindowBytes/2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused {
		c.paused = false
		c.g.cl.ResumeFetchPartitions(c.selector())
	}
}

// take gives the run all that is queued.
func (c *claim) take() []*kgo.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queue
	c.queue = nil
	return q
}

// giveBack returns what a run did not get acknowledged, oldest first, for the
// next run of the claim.
func (c *claim) giveBack(records []*kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(records, c.queue...)
	var bytes int64
	for _, r := range c.queue {
		bytes += recordSize(r)
	}
	c.waiting.Store(int64(len(c.queue)))
	c.waitingBytes.Store(bytes)
	c.flying.Store(0)
	c.flyingBytes.Store(0)
	c.run = nil
}

// handedOut notes that records up to r were handed out and may come again.
func (c *claim) handedOut(r *kgo.Record) {
	c.mu.Lock()
	c.known = max(c.known, r.Offset+1)
	c.mu.Unlock()
}

// acknowledged moves the position to commit behind r.
func (c *claim) acknowledged(r *kgo.Record) {
	c.mu.Lock()
	c.commitAt, c.commitEpoch = r.Offset+1, r.LeaderEpoch
	c.mu.Unlock()
	crash.At(crash.Acknowledged, c.g.gc.ID)
}

// toCommit gives the position to commit, if it moved since the last commit.
func (c *claim) toCommit() (kgo.EpochOffset, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return kgo.EpochOffset{Epoch: c.commitEpoch, Offset: c.commitAt}, c.commitAt >= 0 && c.commitAt != c.committed
}

func (c *claim) wasCommitted(offset int64) {
	c.mu.Lock()
	c.committed = offset
	c.mu.Unlock()
}

// end cancels the contexts of the claim's messages and returns when its run
// stopped; acknowledgements after that count for nothing.
func (c *claim) end() {
	c.cancel()
	c.mu.Lock()
	r := c.run
	c.mu.Unlock()
	if r != nil {
		<-r.done
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = nil
	if c.paused { // a pause outlives the assignment in the client
		c.paused = false
		c.g.cl.ResumeFetchPartitions(c.selector())
	}
}

// wanted is the first offset that is not acknowledged.
func (c *claim) wanted() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.commitAt, c.began)
}

// position is the offset behind the last record that came, or where the claim
// started.
func (c *claim) position() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fetchedTo
}
