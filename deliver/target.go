package deliver

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
)

// target is the sink of a service, as its worker waits for it. Owned by the worker's run, but condition.
type target struct {
	sink         sinks.Sink
	retry        Retry
	grace        time.Duration // of a call at a shutdown
	log          *slog.Logger
	m            *serviceMetrics
	condition    condition
	changedState func()      // the condition has another state
	idle         func() bool // no partition is left

	opened bool
	// changed is of the condition, from before the last attempt; nil: nothing was requested since.
	changed context.Context //nolint:containedctx // it is a signal
	last    *sinks.Error    // that the sink returned last
	resumes int             // of the condition, that were seen
	// waited: it was paused since the last write, and what changes mean may have changed.
	waited bool
}

// open opens the sink; it retries until stop ends.
func (t *target) open(work, stop context.Context) error {
	if t.opened {
		return nil
	}
	if err := t.until(work, stop, t.sink.Open); err != nil {
		return err
	}
	t.opened = true
	t.recovered()
	return nil
}

// until retries a sink's preparations (Open, Resume) until they succeed, stop ends, or no
// partition is left (errRevoked). It waits as a write does: with the other services of a target
// that is down, and while paused.
func (t *target) until(work, stop context.Context, do func(context.Context) error) error {
	pause := t.backoff()
	for {
		ctx, cancel := wait.WithGrace(work, stop, t.grace)
		err := do(ctx)
		cancel()
		if err == nil {
			return nil
		}
		e := sinks.Classify(err)
		t.reportFailure(e, nil)
		if !t.await(stop, e, pause.NextBackOff()) {
			return errStopped
		}
		if _, err := t.awaitResumed(stop); err != nil {
			return err
		}
		if t.idle() {
			t.recovered()
			return errRevoked
		}
	}
}

// reportFailure counts a failure of the sink, and logs the first one and one a minute, for all
// services of a target that is down. about is the span of a change that failed, or nil.
func (t *target) reportFailure(e *sinks.Error, about *tracing.Span) {
	t.m.failures.WithLabelValues(e.Class.String()).Inc()
	changed, failures := t.condition.failed(e)
	if changed {
		t.changedState()
	}
	if failures == 0 {
		return
	}
	log := t.log.With("failures", failures)
	if about != nil {
		log = log.With("trace_id", about.ID())
	}
	if e.Class == sinks.Pause {
		log.Error("paused: the target refuses the whole service; probing", "event", "delivery.paused", "cause", PausedByRefusal, "error", e)
		return
	}
	log.Warn("delivery fails; retrying", "event", "delivery.failing", "error", e)
}

// recovered sets the service running again.
func (t *target) recovered() {
	changed, reported := t.condition.recovered()
	if reported {
		t.log.Info("delivery resumed", "event", "delivery.resumed")
	}
	if changed {
		t.changedState()
	}
}

func (t *target) backoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.Multiplier = 2
	b.InitialInterval, b.MaxInterval = t.retry.MinBackoff, t.retry.MaxBackoff
	return b
}

// awaitResumed waits while the service is paused, and reports whether it did;
// errStopped when stop ended first. A refused service is not: core probes its target.
func (t *target) awaitResumed(stop context.Context) (waited bool, err error) {
	for {
		is, changed := t.condition.isPaused()
		if !is {
			t.changed = changed
			if resumes, _ := t.condition.resumed(); resumes != t.resumes {
				t.waited, t.resumes = true, resumes
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
func (t *target) requested() context.Context {
	if t.changed == nil {
		_, t.changed = t.condition.isPaused()
	}
	return t.changed
}

// await waits until it is time for another attempt, or an operator requests one. It
// returns false when stop ended first.
func (t *target) await(stop context.Context, e *sinks.Error, backoff time.Duration) bool {
	t.condition.retryAt(time.Now().Add(max(e.RetryAfter, backoff)))
	ctx, cancel := context.WithCancel(stop)
	defer cancel()
	changed := t.requested()
	defer context.AfterFunc(changed, cancel)()
	due := e.Await(ctx, backoff)
	if changed.Err() != nil {
		t.changed = nil
	}
	return due || stop.Err() == nil
}
