package sqlsink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
)

// Timed returns a statement's failure e, marked as too much if the statement's limit ended it.
func Timed(write, statement context.Context, limit time.Duration, e *sinks.Error) *sinks.Error {
	if e == nil || statement.Err() == nil || write.Err() != nil || e.Unreachable {
		return e
	}
	e.Err = fmt.Errorf("no answer in %v: %w", limit, context.DeadlineExceeded)
	return batch.TooMuch(e)
}

// ForeignChange returns an error if a change is not of the service.
func ForeignChange(c *change.Change, service string) error {
	if c.Service == service {
		return nil
	}
	return &sinks.Error{Class: sinks.Pause, Op: "insert", Err: fmt.Errorf("a change of service %q came to the sink of %q", c.Service, service)}
}

// Refused replaces a server's text that may hold values, until Writer.Blame adds to it.
const Refused = "refused by the server"

// ErrNotOpen is the error of Write and Scan before Open.
var ErrNotOpen = &sinks.Error{Class: sinks.Retry, Op: "write", Err: errors.New("the sink is not open")}

// Connected calls work while the service holds one of the target's connections, unless
// the target is down; see sinks.Lease. Work takes the connection from the client's pool,
// which never lets it wait then.
func Connected[C any](ctx context.Context, target *sinks.Lease[C], changes int, work func() error) error {
	return target.Try(ctx, changes, func() error {
		return Held(ctx, target, work)
	})
}

// Held is Connected without regard to an outage.
func Held[C any](ctx context.Context, target *sinks.Lease[C], work func() error) error {
	release, err := target.Hold(ctx)
	if err != nil {
		return err
	}
	err = work()
	release(err)
	return err
}

// Read calls work with what Open made, while the service holds one of the target's
// connections.
func Read[S, C any](ctx context.Context, target *sinks.Lease[C], opened *atomic.Pointer[S], work func(*S) error) error {
	s := opened.Load()
	if s == nil {
		return ErrNotOpen
	}
	return Held(ctx, target, func() error { return work(s) })
}
