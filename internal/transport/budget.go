package transport

import "sync/atomic"

// Budget bounds the records that all groups together fetch ahead and have in work. It is safe for
// concurrent use.
type Budget struct {
	bytes    int64
	assigned atomic.Int64 // partitions of all groups
	held     atomic.Int64 // bytes that all assignments hold, waiting and in work
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes: bytes} }

// How a budget is divided: a quarter is for any partition that fetches first, a quarter is
// shared out to the queues, and frames in work take no more than a queue had. The last
// quarter is for the fetches that are under way when a queue is full. A partition of which
// nothing else is fetched has the whole pool for itself, so idle partitions cost a busy one
// nothing.

// pool is how many bytes may be held before any partition is paused.
func (b *Budget) pool() int64 { return b.bytes / 4 }

// queueLimit is the bound of a partition's queue, independent of the others.
func (b *Budget) queueLimit() int64 { return b.pool() / max(1, b.assigned.Load()) }
