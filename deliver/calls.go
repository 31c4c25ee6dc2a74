package deliver

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

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

// malformed makes a dead letter of a frame that cannot be read.
func (c *calls) malformed(partition int32, to change.Version, body []byte, err error) store.DeadLetter {
	c.opt.Metrics.malformed.Inc()
	l := unreadable(partition, to, fmt.Sprintf("changes/%d/%s", partition, to), err)
	l.Payload = body
	return l
}
