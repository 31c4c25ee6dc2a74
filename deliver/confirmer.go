package deliver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/pause"
	"github.com/seed-86dfc502/weir/store"
)

// maxConfirmations bounds one confirm transaction.
const maxConfirmations = 20_000

// Confirmer writes the confirmations of all services in groups: while one
// transaction is under way, the next group gathers. Submit may be called from
// any goroutine.
type Confirmer struct {
	// Limit, if given, ends the last write of a shutdown. Set it before Run.
	Limit context.Context

	store store.Deliveries
	log   *slog.Logger
	wake  chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []confirmation
	stopped bool
}

type confirmation struct {
	items []store.Confirmation
	done  chan error // capacity 1
}

// NewConfirmer makes one; Run must be called for Submit to return.
func NewConfirmer(s store.Deliveries, log *slog.Logger) *Confirmer {
	return &Confirmer{store: s, log: log, wake: make(chan struct{}, 1)}
}

// Submit returns nil when items are durable; it waits while the store is
// away. An error means that Run ended or ctx did: deliver the same again later.
func (c *Confirmer) Submit(ctx context.Context, items []store.Confirmation) error {
	if len(items) == 0 {
		return nil
	}
	done := make(chan error, 1)
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return errStopped
	}
	c.waiting = append(c.waiting, confirmation{items, done})
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run writes groups until ctx is cancelled. What is handed in then is still
// written once, if the store takes it, so that a clean shutdown repeats nothing.
func (c *Confirmer) Run(ctx context.Context) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			c.mu.Lock()
			c.stopped = true
			rest := c.waiting
			c.waiting = nil
			c.mu.Unlock()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastConfirmTimeout)
			defer cancel()
			if c.Limit != nil {
				defer context.AfterFunc(c.Limit, cancel)()
			}
			c.write(last, rest, false)
			return
		}
		for {
			group := c.take()
			if len(group) == 0 {
				break
			}
			c.write(ctx, group, true)
		}
	}
}

const lastConfirmTimeout = 3 * time.Second

func (c *Confirmer) take() []confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, total := 0, 0
	for n < len(c.waiting) && (n == 0 || total+len(c.waiting[n].items) <= maxConfirmations) {
		total += len(c.waiting[n].items)
		n++
	}
	group := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return group
}

func (c *Confirmer) write(ctx context.Context, group []confirmation, patient bool) {
	if len(group) == 0 {
		return
	}
	n := 0
	for _, g := range group {
		n += len(g.items)
	}
	all := make([]store.Confirmation, 0, n)
	for _, g := range group {
		all = append(all, g.items...)
	}
	wait := 50 * time.Millisecond
	var err error
	for failures := 0; ; failures++ {
		// A confirm of unknown outcome is simply repeated: it never goes backwards.
		crash.At(crash.Confirming, "")
		if err = c.store.Confirm(ctx, all); err == nil || !patient {
			crash.At(crash.Confirmed, "")
			break
		}
		if failures == 1 {
			c.log.Warn("halted: the store does not take confirmations; trying again until it does", "error", err)
		}
		if !pause.For(ctx, wait) {
			err = errStopped
			break
		}
		wait = min(2*wait, 2*time.Second)
	}
	for _, g := range group {
		g.done <- err
	}
}
