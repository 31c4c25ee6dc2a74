package deliver

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// Suspension is a pause of a service, by an operator or by the guard.
type Suspension struct {
	Since time.Time
	By    string      // the actor
	Why   string      // the reason
	Hold  *store.Hold // nil unless the guard paused it
}

// SuspensionOf returns the suspension by a stored pause.
func SuspensionOf(p *store.Pause) *Suspension {
	return &Suspension{Since: p.Since, By: p.Actor, Why: p.Reason, Hold: p.Hold}
}

// suspensionOf returns the suspension of a service; nil: none.
func suspensionOf(all map[string]Suspension, service string) *Suspension {
	if suspension, is := all[service]; is {
		return &suspension
	}
	return nil
}

// Suspend pauses exactly these services, by name: a write in flight finishes, and later
// changes wait as for a service whose sink is unreachable, behind the others. A service
// that is not named resumes. It may be called at any time.
func (s *Stage) Suspend(all map[string]Suspension) {
	s.mu.Lock()
	s.opt.Suspended = all
	s.mu.Unlock()
	for _, w := range s.services() {
		suspension := suspensionOf(all, w.opt.Name)
		if !w.condition.suspend(suspension) {
			continue
		}
		if suspension != nil {
			w.log.Warn("paused", "event", "delivery.suspended", "by", suspension.By, "why", suspension.Why)
		} else {
			w.log.Info("resumed", "event", "delivery.unsuspended")
		}
		w.stateChanged()
	}
}

// Probe makes a service that waits for its sink retry now, and reports whether this
// process delivers it.
func (s *Stage) Probe(service string) bool {
	for _, w := range s.services() {
		if w.opt.Name == service {
			w.condition.wake()
			return true
		}
	}
	return false
}

// suspend sets the suspension; nil resumes.
func (c *condition) suspend(suspension *Suspension) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = (c.suspension != nil) != (suspension != nil)
	if c.suspension = suspension; changed {
		if suspension == nil {
			c.resumes, c.resumedAt = c.resumes+1, time.Now()
		}
		c.signal()
	}
	return changed
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

// isSuspended also returns a context that ends when the answer may have changed.
func (c *condition) isSuspended() (is bool, changed context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspension != nil, c.changed
}

// resumed returns how often the service was resumed, and when last.
func (c *condition) resumed() (times int, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumes, c.resumedAt
}

// awaitResumed waits while the service is suspended, and reports whether it did;
// errStopped when stop ended first.
func (w *worker) awaitResumed(stop context.Context) (waited bool, err error) {
	for {
		is, changed := w.condition.isSuspended()
		if !is {
			w.changed = changed
			if resumes, _ := w.condition.resumed(); resumes != w.resumes {
				w.waited, w.resumes = true, resumes
			}
			return waited, nil
		}
		waited = true
		select {
		case <-changed.Done():
		case <-stop.Done():
			return waited, errStopped
		}
	}
}

// requested returns a context that ends when an operator requests an attempt, also if that was
// during the last one, or when the service is suspended or resumed.
func (w *worker) requested() context.Context {
	if w.changed == nil {
		_, w.changed = w.condition.isSuspended()
	}
	return w.changed
}

// await waits until it is time for another attempt, or an operator requests one. It
// returns false when stop ended first.
func (w *worker) await(stop context.Context, e *sinks.Error, backoff time.Duration) bool {
	w.condition.retryAt(time.Now().Add(max(e.RetryAfter, backoff)))
	ctx, cancel := context.WithCancel(stop)
	defer cancel()
	changed := w.requested()
	defer context.AfterFunc(changed, cancel)()
	due := e.Await(ctx, backoff)
	if changed.Err() != nil {
		w.changed = nil
	}
	return due || stop.Err() == nil
}
