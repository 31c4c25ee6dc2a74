package deliver

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// PauseCause says who paused a service.
type PauseCause string

// The causes of a pause.
const (
	PausedByOperator PauseCause = "operator"
	PausedByGuard    PauseCause = "guard"
	// PausedByRefusal: the target refuses the service as a whole. It is probed until it accepts.
	PausedByRefusal PauseCause = "refused"
)

// Pause is why a service gets nothing. The store has those of operators and the guard, for all
// processes, and an operator ends them. A refusal is this process's own and ends with the first success.
type Pause struct {
	Cause PauseCause
	store.Pause
}

// PauseOf returns a pause of the store.
func PauseOf(p store.Pause) *Pause {
	if p.Hold != nil {
		return &Pause{PausedByGuard, p}
	}
	return &Pause{PausedByOperator, p}
}

// stored reports whether an operator ends the pause.
func (p *Pause) stored() bool { return p != nil && p.Cause != PausedByRefusal }

// pauseOf returns the pause of a service; nil: none.
func pauseOf(all map[string]store.Pause, service string) *Pause {
	if p, is := all[service]; is {
		return PauseOf(p)
	}
	return nil
}

// paused sets the pause in the store, nil for none, and reports whether it began or ended.
func (c *condition) paused(p *Pause) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.pause.stored()
	if p != nil || had {
		c.pause = p
	}
	if changed = had != (p != nil); changed {
		if had {
			c.resumes, c.resumedAt = c.resumes+1, time.Now()
		}
		c.signal()
	}
	return changed
}

// sinkSays sets the pause by the last answer of the sink, unless the store has one. The caller holds c.mu.
func (c *condition) sinkSays(refused bool) {
	switch {
	case c.pause.stored():
	case !refused:
		c.pause = nil
	case c.pause == nil:
		c.pause = &Pause{PausedByRefusal, store.Pause{Since: c.failing.since}}
	}
}

func (c *condition) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signal()
}

// signal wakes waiters. The caller holds c.mu.
func (c *condition) signal() {
	c.change()
	c.changed, c.change = context.WithCancel(context.Background())
}

// isPaused reports whether an operator has to resume the service, and returns a context that ends when the
// answer may have changed.
func (c *condition) isPaused() (is bool, changed context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pause.stored(), c.changed
}

// resumed returns how often the service was resumed, and when last.
func (c *condition) resumed() (times int, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumes, c.resumedAt
}
