package deliver

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/sinks"
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

// PauseOf returns a pause of the store; nil for nil.
func PauseOf(p *store.Pause) *Pause {
	switch {
	case p == nil:
		return nil
	case p.Hold != nil:
		return &Pause{PausedByGuard, *p}
	}
	return &Pause{PausedByOperator, *p}
}

// stored reports whether an operator ends the pause.
func (p *Pause) stored() bool { return p != nil && p.Cause != PausedByRefusal }

// Pause pauses exactly these services, by name: a write in flight finishes, and later
// changes wait as for a service whose sink is unreachable, behind the others. A service
// that is not named resumes. It may be called at any time.
func (s *Stage) Pause(all map[string]store.Pause) {
	s.mu.Lock()
	s.opt.Paused = all
	s.mu.Unlock()
	for _, w := range s.services() {
		w.pause(PauseOf(pauseOf(all, w.opt.Name)))
	}
}

// pauseOf returns the pause of a service; nil: none.
func pauseOf(all map[string]store.Pause, service string) *store.Pause {
	if p, is := all[service]; is {
		return &p
	}
	return nil
}

// pause sets the pause of the service in the store, nil for none, and reports whether that is new.
func (w *worker) pause(p *Pause) bool {
	if !w.condition.paused(p) {
		return false
	}
	if p != nil {
		w.log.Warn("paused", "event", "delivery.paused", "cause", p.Cause, "by", p.Actor, "why", p.Reason)
	} else {
		w.log.Info("resumed", "event", "delivery.resumed")
	}
	w.stateChanged()
	return true
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

// sinkSays sets the pause by what the sink answered last, unless the store has one. The caller holds c.mu.
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

// awaitResumed waits while the service is paused, and reports whether it did;
// errStopped when stop ended first. A refused service is not: core probes its target.
func (w *worker) awaitResumed(stop context.Context) (waited bool, err error) {
	for {
		is, changed := w.condition.isPaused()
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
// during the last one, or when the service is paused or resumed.
func (w *worker) requested() context.Context {
	if w.changed == nil {
		_, w.changed = w.condition.isPaused()
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
