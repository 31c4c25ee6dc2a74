package sinks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
)

// ErrDown is in the chain of the failure of an attempt that was not made because the
// target is down and its next attempt is not due.
var ErrDown = errors.New("the target is down")

// Attempts at a target that is down are this far apart: the first interval, which
// doubles up to the last.
const (
	firstProbe = 250 * time.Millisecond
	lastProbe  = 15 * time.Second
)

// reportInterval is between the reports of an outage.
const reportInterval = time.Minute

// breaker is the outage of a target, shared by its services: a time, and no holder. The service
// that comes first when an attempt is due moves the time on and tries, so that one which stops,
// pauses or dies in its attempt holds up no other. Guarded by target.mu.
type breaker struct {
	cause    error         // of the first failure; nil means that the target is up
	up       chan struct{} // closed when the outage ends
	interval time.Duration // between the last attempt and the next
	due      time.Time     // of the next attempt
	failures int           // since the last report
	reported time.Time     // zero: not yet
}

// Try makes an attempt with n changes, 0 for anything but a Write, unless the target is
// down and its next attempt is not due: then it returns at once, with an error of class
// Retry around ErrDown. Errors of a target that is down know when to retry, see
// Error.Await. Failures after ctx has ended are not counted. The only service of a target
// waits on its own.
func (m *member) Try(ctx context.Context, n int, attempt func() error) error {
	m.mu.Lock()
	if e := m.refusal(m); e != nil {
		m.mu.Unlock()
		return e
	}
	if b := &m.breaker; b.cause != nil {
		b.interval = min(2*b.interval, lastProbe)
		b.postpone()
		m.trying = true
	}
	m.mu.Unlock()

	err := attempt()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trying = false
	if errors.Is(err, ErrDown) || err != nil && ctx.Err() != nil {
		return err
	}
	e := aboutTarget(err, n)
	if e == nil {
		m.endOutage()
		return err
	}
	m.recordFailure(e)
	if m.services == 1 {
		return err
	}
	// The maker of the error may keep it, so a copy gets the wait.
	told := *e
	told.await, told.due, told.report = m.waitDue, m.nextAttempt, m.report
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

// aboutTarget returns the failure of an attempt with n changes for which the target took none.
// There is none if the target answered for a change.
func aboutTarget(err error, n int) (found *Error) {
	be, ok := errors.AsType[*BatchError](err)
	if !ok {
		if e, ok := errors.AsType[*Error](err); ok && e.Unreachable {
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
		case e.Unreachable && (found == nil || e.RetryAfter > found.RetryAfter):
			found = e
		case !e.Unreachable && e.Attempted():
			return nil
		}
	}
	return found
}

// refusal returns why m must not try the target now, or nil when it may.
func (t *target) refusal(m *member) *Error {
	b := &t.breaker
	if b.cause == nil || t.services == 1 || m.trying || !time.Now().Before(b.due) {
		return nil
	}
	return &Error{
		Class: Retry, Unreachable: true, Op: "wait", RetryAfter: time.Until(b.due), Err: fmt.Errorf("%w: %w", ErrDown, b.cause),
		await: t.waitDue, due: t.nextAttempt, report: t.report,
	}
}

// nextAttempt returns when a target that is down is tried next; zero when it is up.
func (t *target) nextAttempt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.breaker.due
}

// report returns the failures since the last report of the outage, and whether to report
// them: at its begin, and after each reportInterval.
func (t *target) report(now time.Time) (failures int, first, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := &t.breaker
	if b.cause == nil || !b.reported.IsZero() && now.Sub(b.reported) < reportInterval {
		return 0, false, false
	}
	failures, first = b.failures, b.reported.IsZero()
	b.failures, b.reported = 0, now
	return failures, first, true
}

// endOutage ends an outage.
func (t *target) endOutage() {
	if t.breaker.up != nil {
		close(t.breaker.up)
	}
	t.breaker = breaker{}
}

// recordFailure records that the target took no connection, which begins an outage or lasts.
func (t *target) recordFailure(e *Error) {
	b := &t.breaker
	b.failures++
	if b.cause == nil {
		b.cause, b.up, b.interval = e.Err, make(chan struct{}), firstProbe
		b.postpone()
	}
	if asked := time.Now().Add(e.RetryAfter); asked.After(b.due) {
		b.due = asked
	}
	t.connections.refuse(func(waiting *member) *Error { return t.refusal(waiting) })
}

// postpone sets the time of the next attempt: in an interval, spread over several processes.
func (b *breaker) postpone() {
	b.due = time.Now().Add(time.Duration(float64(b.interval) * (0.8 + 0.4*rand.Float64()))) // #nosec G404 -- spreads
}

// waitDue returns true when the target is up or its next attempt is due, false when ctx ends.
func (t *target) waitDue(ctx context.Context) bool {
	t.mu.Lock()
	up, due := t.breaker.up, t.breaker.due
	t.mu.Unlock()
	if up == nil {
		return ctx.Err() == nil
	}
	within, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	select {
	case <-up:
	case <-within.Done():
	}
	return ctx.Err() == nil
}

// Due returns when a target that is down is tried next; zero where the service that failed
// retries on its own, see Await.
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
// while the target is down, until it is up or its next attempt is due; else for
// RetryAfter, and backoff at least.
func (e *Error) Await(ctx context.Context, backoff time.Duration) bool {
	if e.await != nil {
		return e.await(ctx)
	}
	return wait.Sleep(ctx, max(e.RetryAfter, backoff))
}
