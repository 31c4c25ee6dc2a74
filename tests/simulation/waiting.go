package simulation

import (
	"context"
	"sync/atomic"
	"time"
)

// background counts the functions of a schedule that run in the background.
type background struct{ running atomic.Int64 }

// spawn runs f in the background.
func (b *background) spawn(f func()) {
	b.running.Add(1)
	go func() {
		defer b.running.Add(-1)
		f()
	}()
}

// sleep waits for d or for the end of ctx, whose cause it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
