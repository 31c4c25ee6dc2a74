// Package pause lets time pass in a way that can be told to stop.
package pause

import (
	"context"
	"time"
)

// For returns true after d, or false as soon as ctx ends; false when both are
// over.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
