package sinks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
)

// Outage is the meaning of a failure for the target as a whole.
type Outage int

const (
	// NoOutage: the target works.
	NoOutage Outage = iota
	// Troubled: the target, or a proxy before it, answered with a server error, or did
	// not answer a request. It may be one table or one endpoint: once a second service
	// meets the same without a success of any service in between, the target is down.
	Troubled
	// Unreachable: no usable connection. The target is down.
	Unreachable
)

// ErrDown is in the chain of the failure of an attempt that was not made because the
// target is down and another service probes it.
var ErrDown = errors.New("the target is down and another service tries it")

// Probes of a target that is down are this far apart: the first interval, which
// doubles up to the last.
const (
	firstProbe = 250 * time.Millisecond
	lastProbe  = 15 * time.Second
)

// reportInterval is between the reports of an outage.
const reportInterval = time.Minute

// probeGrace is how long a service that was chosen to probe has to begin.
const probeGrace = 10 * time.Second

// outage is the shared state of the services of a target about its outage. One of them probes, the
// others wait for the outcome. Guarded by target.mu.
type outage struct {
	cause    error            // the first failure; nil while the target is up
	troubled map[*member]bool // met trouble since the last success of anybody
	failures int              // since the last report
	reported time.Time        // zero: not yet
	interval time.Duration    // between the last probe and the next
	due      time.Time        // of the next probe
	prober   *member          // the probing member, or the one chosen to probe; nil without one
	probing  bool             // prober has begun
	waiting  []*waiter        // the longest first
	timer    *time.Timer      // calls elect when due
}

// waiter is a service that waits for the target to be up or for its turn to probe.
type waiter struct {
	member *member
	woken  chan struct{}
}

// Try makes an attempt with n changes, 0 for anything but a Write, unless the target is
// down and another service probes it: then it returns at once, with an error of class
// Retry around ErrDown. Errors of a target that is down know when to retry, see
// Error.Await. Failures after ctx has ended are not counted.
func (m *member) Try(ctx context.Context, n int, attempt func() error) error {
	m.mu.Lock()
	if e := m.refusal(m); e != nil {
		m.mu.Unlock()
		return e
	}
	if m.outage.cause != nil && m.outage.prober == nil {
		m.outage.prober = m
	}
	m.outage.probing = m.outage.probing || m.outage.prober == m
	m.mu.Unlock()

	err := attempt()
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(err, ErrDown) { // another one found out first
		m.abandonProbe(m)
		return err
	}
	if err != nil && ctx.Err() != nil {
		m.abandonProbe(m)
		return err
	}
	e := aboutTarget(err, n)
	if e == nil {
		m.endOutage()
		return err
	}
	m.recordFailure(m, e)
	if m.outage.cause == nil || m.services == 1 {
		return err
	}
	// The maker of the error may keep it, so a copy gets the wait.
	told := *e
	told.await = func(ctx context.Context) bool {
		return (told.RetryAfter == 0 || wait.Sleep(ctx, told.RetryAfter)) && m.waitUp(ctx)
	}
	told.due, told.report = m.nextProbe, m.report
	if be, ok := errors.AsType[*BatchError](err); ok {
		failed := make(map[int]error, len(be.Failed))
		for i, err := range be.Failed {
			one := *Classify(err)
			one.await, one.due, one.report = told.await, told.due, told.report
			failed[i] = &one
		}
		return &BatchError{Failed: failed}
	}
	return &told
}

// aboutTarget returns the failure of an attempt with n changes if it concerns the target as a
// whole. It is nil if a change succeeded or was refused individually.
func aboutTarget(err error, n int) (found *Error) {
	be, ok := errors.AsType[*BatchError](err)
	if !ok {
		if e, ok := errors.AsType[*Error](err); ok && e.Outage != NoOutage {
			return e
		}
		return nil
	}
	if len(be.Failed) < n {
		return nil
	}
	for _, err := range be.Failed {
		e := Classify(err)
		switch {
		case errors.Is(err, ErrDown): // not attempted
		case e.Outage == NoOutage:
			return nil
		case found == nil || e.Outage > found.Outage || e.RetryAfter > found.RetryAfter:
			found = e
		}
	}
	return found
}

// refusal returns why m must not try the target now, or nil when it may.
func (t *target) refusal(m *member) *Error {
	o := &t.outage
	if o.cause == nil || t.services == 1 || o.prober == m || o.prober == nil && !time.Now().Before(o.due) {
		return nil
	}
	return &Error{
		Class: Retry, Op: "wait", RetryAfter: max(firstProbe, time.Until(o.due)), Err: fmt.Errorf("%w: %w", ErrDown, o.cause),
		await: m.waitUp, due: t.nextProbe, report: t.report,
	}
}

// nextProbe returns when a target that is down is probed next, or zero when it is up.
func (t *target) nextProbe() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outage.cause == nil {
		return time.Time{}
	}
	return t.outage.due
}

// report returns the failures since the last report of the outage, and whether to report
// them: at its begin, and after each reportInterval.
func (t *target) report(now time.Time) (failures int, first, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.outage
	if o.cause == nil || !o.reported.IsZero() && now.Sub(o.reported) < reportInterval {
		return 0, false, false
	}
	failures, first = o.failures, o.reported.IsZero()
	o.failures, o.reported = 0, now
	return failures, first, true
}

// endOutage ends an outage.
func (t *target) endOutage() {
	o := &t.outage
	if o.timer != nil {
		o.timer.Stop()
	}
	for _, w := range o.waiting {
		close(w.woken)
	}
	t.outage = outage{}
}

// recordFailure records a failure of m, which may begin an outage.
func (t *target) recordFailure(m *member, e *Error) {
	o := &t.outage
	if o.troubled == nil {
		o.troubled = map[*member]bool{}
	}
	o.troubled[m] = true
	o.failures++
	switch {
	case o.cause == nil:
		if e.Outage != Unreachable && len(o.troubled) < 2 {
			return
		}
		o.cause, o.interval = e.Err, firstProbe
	case o.prober == m:
		o.interval = min(2*o.interval, lastProbe)
	default:
		return // it began before the outage was known
	}
	o.prober, o.probing = nil, false
	wait := time.Duration(float64(o.interval) * (0.8 + 0.4*rand.Float64())) // #nosec G404 -- spreads the probes of several processes
	t.probeIn(max(wait, e.RetryAfter))
	t.connections.refuse(func(waiting *member) *Error { return t.refusal(waiting) })
}

// abandonProbe lets another service probe if m was chosen to.
func (t *target) abandonProbe(m *member) {
	if t.outage.cause != nil && t.outage.prober == m {
		t.outage.prober, t.outage.probing = nil, false
		t.probeIn(0)
	}
}

// probeIn schedules the next probe.
func (t *target) probeIn(d time.Duration) {
	o := &t.outage
	o.due = time.Now().Add(d)
	if o.timer == nil {
		o.timer = time.AfterFunc(d, t.elect)
		return
	}
	o.timer.Reset(d)
}

// elect chooses the service that has waited longest to probe. If none waits, the next one
// that comes does.
func (t *target) elect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.outage
	if o.cause == nil || o.probing || time.Now().Before(o.due) {
		return
	}
	o.prober = nil // the chosen member did not probe
	if len(o.waiting) == 0 {
		return
	}
	next := o.waiting[0]
	o.waiting = o.waiting[1:]
	close(next.woken)
	t.probeIn(probeGrace)
	o.prober = next.member
}

// waitUp returns true when the target is up or m is to probe it, false when ctx ends.
func (m *member) waitUp(ctx context.Context) bool {
	m.mu.Lock()
	o := &m.outage
	if o.cause == nil {
		m.mu.Unlock()
		return ctx.Err() == nil
	}
	w := &waiter{m, make(chan struct{})}
	o.waiting = append(o.waiting, w)
	if o.prober == nil && !time.Now().Before(o.due) {
		m.probeIn(0)
	}
	m.mu.Unlock()
	select {
	case <-w.woken:
		if ctx.Err() == nil {
			return true
		}
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.outage.waiting, w); i >= 0 {
		m.outage.waiting = slices.Delete(m.outage.waiting, i, i+1)
	} else if !m.outage.probing {
		m.abandonProbe(m)
	}
	return false
}

// removeMember removes a service.
func (t *target) removeMember(m *member) {
	delete(t.outage.troubled, m)
	t.abandonProbe(m)
	if t.services == 0 && t.outage.timer != nil {
		t.outage.timer.Stop()
	}
}

// Due returns when a target that is down is probed next, or zero where the failed service itself
// retries, see Await.
func (e *Error) Due() time.Time {
	if e.due == nil {
		return time.Time{}
	}
	return e.due()
}

// Reports say when to report a failure that lasts: the first one, and one each minute. The
// zero value is of a service with no failure.
type Reports struct {
	failures int
	last     time.Time
	began    bool // the begin of the failure was reported here
}

// Due returns how many failures to report with e now, and whether to: a target that is down
// is reported once for all of its services.
func (r *Reports) Due(e *Error, now time.Time) (failures int, due bool) {
	r.failures++
	first := r.last.IsZero()
	if e.report != nil {
		failures, first, due = e.report(now)
	} else if due = first || now.Sub(r.last) >= reportInterval; due {
		failures = r.failures
	}
	if due {
		r.failures, r.last, r.began = 0, now, r.began || first
	}
	return failures, due
}

// Began reports whether the begin of the failure was reported here, and so its end is.
func (r *Reports) Began() bool { return r.began }

// Await waits until it is time to retry and returns true, or false as soon as ctx ends:
// while the target is down, until it is up or this service is to probe it; else for
// RetryAfter, and backoff at least.
func (e *Error) Await(ctx context.Context, backoff time.Duration) bool {
	if e.await != nil {
		return e.await(ctx)
	}
	return wait.Sleep(ctx, max(e.RetryAfter, backoff))
}
