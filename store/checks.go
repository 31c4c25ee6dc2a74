package store

import (
	"context"
	"slices"

	"github.com/seed-86dfc502/weir/change"
)

// CheckRow is the state of one (check service, entity): the dam row of a service that does its
// own projection and delivery. Package checks defines its meaning. The store compares and swaps
// it whole.
type CheckRow struct {
	Key
	Found    bool
	Revision int64 // of the row, 1 at its insert, one more at each swap

	Content          change.Content // of the last decision; nil is unknown
	Version          change.Version // of the last decision that passed
	DeliveredVersion change.Version
	Delivered        change.Content
	// Memory is what package checks remembers beside: the last event ids and the
	// sequence. Opaque to the store, small.
	Memory []byte
}

// CheckRows keep them. They are no dam rows: the pipeline does not feed them.
type CheckRows interface {
	// CheckRows reads rows in the order of keys, without locks. Each row is the
	// last one that was committed when the call began, or a later one.
	CheckRows(ctx context.Context, keys []Key) ([]CheckRow, error)
	// SwapCheckRows replaces each row whose stored revision is the given one (0:
	// the row must not exist) and returns, per row, whether it did; Found is ignored.
	// One durable transaction; rows that do not match are left as they are and do
	// no harm to the others. No key twice. Calls from any number of goroutines
	// and processes are linearizable per key and cannot dead-lock. After an error
	// nothing was written, unless it is of class Unknown.
	SwapCheckRows(ctx context.Context, rows []CheckRow) ([]bool, error)
}

// SortCheckRows returns the places of rows in the order of their keys, and
// whether no key is in them twice. For implementations.
func SortCheckRows(rows []CheckRow) (order []int, distinct bool) {
	order = make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return rows[a].Key.Compare(rows[b].Key) })
	for i := 1; i < len(order); i++ {
		if rows[order[i]].Key == rows[order[i-1]].Key {
			return order, false
		}
	}
	return order, true
}
