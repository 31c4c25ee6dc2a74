package decide

import (
	"fmt"
	"sync/atomic"
	"time"
)

// longInHand is how long a record may be evaluated before it counts as a problem.
const longInHand = 10 * time.Second

// InHand is the record that a worker is evaluating.
type InHand struct {
	Partition int32
	Offset    int64
	Entity    string
	Since     time.Time
}

// String names the record.
func (h InHand) String() string {
	return fmt.Sprintf("the record at offset %d of inbox partition %d, of entity %q, is being evaluated", h.Offset, h.Partition, h.Entity)
}

// inHand holds a worker's present record for readers on other goroutines.
type inHand struct {
	record atomic.Pointer[record]
	since  atomic.Int64 // Unix time in ns, set before record
}

func (h *inHand) begin(r *record) {
	h.since.Store(time.Now().UnixNano())
	h.record.Store(r)
}

func (h *inHand) end() { h.record.Store(nil) }

// LongInHand returns the record that some worker has been evaluating for more than 10
// seconds, the longest first; ok is false without any. The others of its
// partition, and of the worker's batch, wait for it.
func (d *Decider) LongInHand(now time.Time) (longest InHand, ok bool) {
	for _, w := range d.workers {
		r := w.inHand.record.Load()
		since := time.Unix(0, w.inHand.since.Load())
		// The worker may go on to another record in between: that one has just begun.
		if r == nil || now.Sub(since) < longInHand || ok && !since.Before(longest.Since) {
			continue
		}
		longest, ok = InHand{Partition: r.partition, Offset: r.offset, Entity: r.Entity, Since: since.UTC()}, true
	}
	return longest, ok
}
