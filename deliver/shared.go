package deliver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// shared is what all parts of a stage share.
type shared struct {
	*calls
	ctx      context.Context // ends when Run's does
	running  sync.WaitGroup
	revision atomic.Int64 // see Options.Revision

	mu       sync.Mutex
	flow     *core.Flow    // guarded by mu, with its partitions, queues and slices; see step
	released chan struct{} // guarded by mu; closed and replaced at each core.Freed
	// signalled applies the signals of the flow; part of step.
	signalled func()
}

// step runs do, which may change the flow, and applies its signals.
func (s *shared) step(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	s.signalled()
}

// lastSave is how long the end of a stage or of a partition waits for the store.
const lastSave = 2 * time.Second

// calls are the calls of a stage to the store and the inbox.
type calls struct {
	opt *Options
	log *slog.Logger
}

// retryUntil repeats an operation on the store until it works or stop ends.
func (c *calls) retryUntil(work, stop context.Context, what string, op func() error) error {
	stopped, err := wait.Retry(work, stop, c.log, what, op)
	if stopped {
		return errStopped
	}
	return err
}

// rows reads the dam rows of entities of a service, by entity; it retries until stop ends.
func (c *calls) rows(work, stop context.Context, service int32, of []string) (map[string]store.Row, error) {
	var keys []store.Key
	rows := map[string]store.Row{}
	for _, entity := range of {
		if _, seen := rows[entity]; !seen {
			rows[entity] = store.Row{}
			keys = append(keys, store.Key{Service: service, Entity: entity})
		}
	}
	if len(keys) == 0 {
		return rows, nil
	}
	err := c.retryUntil(work, stop, "read dam rows", func() error {
		found, err := c.opt.Store.Rows(work, keys)
		for _, r := range found {
			rows[r.Entity] = r
		}
		return err
	})
	return rows, err
}

// request appends control records to the inbox; it retries until stop ends.
func (c *calls) request(work, stop context.Context, what string, records ...change.Record) error {
	return c.retryUntil(work, stop, what, func() error { return c.opt.Control(work, records...) })
}

// addLetters stores dead letters, if there are any; it retries until stop ends.
func (c *calls) addLetters(work, stop context.Context, letters []store.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	return c.retryUntil(work, stop, "store dead letters", func() error { return c.opt.Store.AddLetters(work, letters) })
}
