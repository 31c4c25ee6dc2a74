package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// shutdown ends a process within shutdown.timeout, also while servers are unreachable.
// The stages end in the order of the flow. Each has time for its work in progress, and a
// limit at which it abandons waits for store, sink or Kafka. A stage that needs less leaves
// its time to those behind it. Abandoned work is redelivered, as after a crash.
type shutdown struct {
	timeout time.Duration
	once    sync.Once

	ingest   limit
	work     limit // also for closing servers after the stages
	hardStop limit // the process ends, with all work in progress
}

// limit is a context that ends at a point of a stop.
type limit struct {
	ctx context.Context
	end context.CancelFunc
}

func newShutdown(timeout time.Duration) *shutdown {
	e := &shutdown{timeout: timeout}
	for _, l := range []*limit{&e.ingest, &e.work, &e.hardStop} {
		l.ctx, l.end = context.WithCancel(context.Background()) // #nosec G118 -- begin has timers call it
	}
	return e
}

// begin starts the clock. It may be called again, and concurrently.
func (e *shutdown) begin() {
	e.once.Do(func() {
		for l, percent := range map[*limit]time.Duration{&e.ingest: 25, &e.work: 70, &e.hardStop: 90} {
			time.AfterFunc(e.timeout*percent/100, l.end)
		}
	})
}

// run does work, stops the components that work left running, in their order, and closes. It
// returns when that is done, or at the deadline of the process, when the rest continues in the
// background.
func (e *shutdown) run(log *slog.Logger, work func() ([]component, error), closing func() error) error {
	o := outcome{ending: "starting"}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running, err := work()
		o.workDone(err)
		e.begin()
		for _, r := range running {
			o.stop(r.limit, r.name, r.stop)
		}
		o.stop(e.hardStop.ctx, "closing", closing)
	}()
	select {
	case <-ended:
	case <-e.hardStop.ctx.Done():
	}
	return o.report(log, e.timeout)
}

// closing returns the limit for closing servers after the stages.
func (e *shutdown) closing() context.Context {
	return e.work.ctx
}

// outcome is how a run ends. It may be used concurrently: run does not always
// wait for who writes it.
type outcome struct {
	mu      sync.Mutex
	errs    []error  // guarded by mu: why the run fails
	ending  string   // guarded by mu: the component that is ending
	cut     []string // guarded by mu: the components that met their limits
	because []error  // guarded by mu: their errors
}

// workDone records the end of the work with its error.
func (o *outcome) workDone(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending, o.errs = "", append(o.errs, err)
}

// stop ends a component. Its error at its limit is no failure.
func (o *outcome) stop(limit context.Context, name string, stop func() error) {
	o.mu.Lock()
	o.ending = name
	o.mu.Unlock()
	err := stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = ""
	if limit.Err() == nil {
		o.errs = append(o.errs, err)
		return
	}
	o.cut, o.because = append(o.cut, name), append(o.because, err)
}

// report logs abandoned components in one line, and returns the error of the run.
func (o *outcome) report(log *slog.Logger, within time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending != "" {
		o.cut = append(o.cut, o.ending)
	}
	if len(o.cut) > 0 {
		args := []any{"given up", o.cut, "within", within}
		if err := errors.Join(o.because...); err != nil {
			args = append(args, "error", err)
		}
		log.Warn("shutdown.timeout was too short: unfinished work is redelivered", append([]any{"event", "shutdown.abandoned"}, args...)...)
	}
	return errors.Join(o.errs...)
}
