package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// activePeriod is how often a stage asks whether its configuration is still
// the active one.
const activePeriod = 2 * time.Second

// revisions are the methods of a store for the active configuration.
type revisions interface {
	Activate(ctx context.Context, fingerprint []byte, force bool, inbox store.Inbox, note store.Note) (store.Revision, error)
	Active(ctx context.Context) (store.Revision, error)
	Services(ctx context.Context, names []string) (map[string]int32, error)
}

// startFunc starts a stage under the configuration of its activation.
type startFunc func(ctx context.Context, o startOptions) (component, error)

// startOptions say how a stage is started.
type startOptions struct {
	revision   int64  // of its decisions or deliveries
	superseded func() // called, often and without waiting, for a newer revision
	again      bool   // not for the first time
	because    error  // the failure after which it restarts, or nil
}

// restarts reports whether a stage that failed starts again from the store: the store went
// back, the inbox was replaced, or another configuration is active.
func restarts(err error) bool {
	var cut *transport.TruncatedError
	for _, known := range []error{deliver.ErrLost, decide.ErrReread, decide.ErrInboxReplaced, store.ErrSuperseded} {
		if errors.Is(err, known) {
			return true
		}
	}
	return errors.As(err, &cut)
}

// supervisor keeps a stage running while this process's configuration is the active one (I12).
// When another one takes over, the stage stops as at the end of the process, so that other
// processes take its partitions. It starts again when its own is active again, as after a
// roll-back, which is a revision of its own. A stage that renews starts again after each reload,
// or is reconfigured. The others do not depend on customers' files.
type supervisor struct {
	*activation
	log    *slog.Logger
	renews bool
	start  startFunc
	newer  chan struct{} // has something when the stage met a newer revision

	// Of the goroutine of Run alone.
	running  component
	under    *settings
	revision int64
}

// supervise starts a stage, and a supervisor that keeps it running.
func (a *activation) supervise(ctx context.Context, stage string, renews bool, start startFunc) (component, error) {
	s := &supervisor{activation: a, log: a.log.With("stage", stage), renews: renews, start: start, newer: make(chan struct{}, 1), under: a.now.Load()}
	s.revision = s.under.plan.Revision
	var err error
	if s.running, err = start(ctx, startOptions{revision: s.revision, superseded: s.superseded}); err != nil {
		return component{}, err
	}
	failed := make(chan error, 1)
	stop := loop(func(ctx context.Context) {
		if err := s.Run(ctx); err != nil {
			failed <- err
		}
	})
	return component{failed: failed, stop: func() error { stop(); return s.running.stop() }}, nil
}

// superseded tells the supervisor that the stage met a newer revision.
func (s *supervisor) superseded() { wait.Offer(s.newer, struct{}{}) }

// Run starts the stage again after a reload, when another configuration has become the active
// one and its own is active again, and after an error of restarts. It returns nil when ctx ends,
// and any other error of the stage at once. s.running still has to be stopped then.
func (s *supervisor) Run(ctx context.Context) error {
	tick := time.NewTicker(activePeriod)
	defer tick.Stop()
	for {
		var lost error
		select {
		case lost = <-s.running.failed:
			switch {
			case !restarts(lost):
				return lost
			case errors.Is(lost, store.ErrSuperseded):
				s.logSuperseded()
			default:
				s.log.Warn("starting again from the store", "event", "stage.restarted", "because", lost)
			}
		case <-ctx.Done():
			return nil
		case <-s.under.replaced:
		case <-s.newer:
		case <-tick.C:
		}
		if lost == nil && (!s.replaced(ctx) || s.reconfigured(ctx)) {
			continue
		}
		if err := s.running.stop(); err != nil {
			s.log.Warn("the stage did not stop in order", "event", "stage.stop_failed", "error", err)
		}
		s.running = component{stop: func() error { return nil }}
		if !s.startAgain(ctx, lost) {
			return nil
		}
		s.log.Info("this configuration is active", "event", "revision.active", "revision", s.revision)
	}
}

// replaced reports whether the stage has to stop because of another configuration.
func (s *supervisor) replaced(ctx context.Context) bool {
	next, active, err := s.current(ctx)
	reloaded := next != s.under
	s.under = next
	switch {
	case !s.renews && reloaded:
		return false // the stage still does the same; the next tick compares the revision
	case !reloaded && (err != nil || active.Number == s.revision):
		return false // without the store nothing is decided either
	case !s.renews && bytes.Equal(active.Fingerprint, s.under.identity):
		s.revision = active.Number
		return false
	case reloaded:
		s.log.Info("starting again under the new configuration", "event", "stage.reloaded")
	default:
		s.logSuperseded()
	}
	return true
}

func (s *supervisor) logSuperseded() {
	s.log.Warn("another configuration is active: this stage stops until its own is active again", "event", "revision.superseded")
}

// reconfigured reports whether the stage continues under the settings of a reload.
func (s *supervisor) reconfigured(ctx context.Context) bool {
	next, active, err := s.current(ctx)
	if s.running.reconfigure == nil || err != nil || next != s.under || active.Number != next.plan.Revision {
		return false
	}
	if err := s.running.reconfigure(ctx, next); err != nil {
		s.log.Warn("the stage starts again for the new configuration", "event", "stage.not_reconfigured", "error", err)
		return false
	}
	s.revision = active.Number
	return true
}

// startAgain starts the stage once its configuration is active. It returns false when ctx ends
// first.
func (s *supervisor) startAgain(ctx context.Context, because error) bool {
	for {
		active, ok := s.await(ctx)
		if !ok {
			return false
		}
		s.under = s.now.Load()
		running, err := s.start(ctx, startOptions{revision: active.Number, superseded: s.superseded, again: true, because: because})
		if err == nil {
			s.running, s.revision = running, active.Number
			return true
		}
		s.log.Warn("the stage cannot start; trying again", "event", "stage.start_failed", "error", err)
		if !wait.Sleep(ctx, activePeriod) {
			return false
		}
	}
}
