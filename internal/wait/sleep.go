// Package wait has waits that a context ends, a grace after a shutdown, and retries.
package wait

import (
	"context"
	"time"
)

// Sleep returns true after d, or false as soon as ctx ends, or false when both are over.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// WithGrace returns a context that ends with work, or d after stop ends: work begun
// before a shutdown may finish within a grace. The function ends it at once and must be
// called.
func WithGrace(work, stop context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(work)
	unhook := context.AfterFunc(stop, func() {
		t := time.AfterFunc(d, cancel)
		context.AfterFunc(ctx, func() { t.Stop() })
	})
	return ctx, func() {
		unhook()
		cancel()
	}
}

// Offer sends v if c has room for it, or a receiver, and never blocks.
func Offer[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}
