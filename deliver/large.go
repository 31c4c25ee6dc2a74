package deliver

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/seed-86dfc502/weir/change"
)

const (
	// largeWrite is from how many bytes of documents a write counts as large.
	largeWrite = 1 << 20
	// writeCopies is how many times a sink may hold the documents of a write.
	writeCopies = 3
)

// largeWrites bounds the memory of the large writes that run at once: the services of a
// frame share its documents, but each sink encodes its own copy. Small writes do not wait.
type largeWrites struct {
	all   int64
	bytes *semaphore.Weighted
}

func newLargeWrites(memory int64) *largeWrites {
	return &largeWrites{all: memory, bytes: semaphore.NewWeighted(memory)}
}

// begin waits for memory until ctx ends, which is its only error, and returns what to call
// when the write ended.
func (l *largeWrites) begin(ctx context.Context, changes []change.Change) (end func(), err error) {
	n := int64(0)
	for i := range changes {
		n += int64(len(changes[i].Doc))
	}
	if n < largeWrite {
		return func() {}, nil
	}
	n = min(writeCopies*n, l.all) // one that is larger passes alone
	if err := l.bytes.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { l.bytes.Release(n) }, nil
}
