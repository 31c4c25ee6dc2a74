package pipeline

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// activePeriod is how often a stage asks whether its configuration is still
// the active one.
const activePeriod = 2 * time.Second

// starter starts a stage under a revision of the configuration. The stage may
// call superseded, often and without waiting, when it meets a newer one.
type starter func(ctx context.Context, revision int64, superseded func()) (part, error)

// whileActive runs a stage while this process's configuration is the active
// one (I12): sources are taken apart and sinks written in its way only. When
// another one takes over, the stage stops as at the end of the process, so that
// others take its partitions, and starts again when its own is active again, as
// after a roll-back, which is a revision of its own. A stage that renews starts
// again after each reload; the other does not depend on what a reload changes. One
// that fails with deliver.ErrLost starts again, too.
func (p *Pipeline) whileActive(ctx context.Context, stage string, renews bool, start starter) (part, error) {
	log := p.log.With("stage", stage)
	now := p.now.Load()
	revision := now.plan.Revision
	newer := make(chan struct{}, 1)
	superseded := func() {
		select {
		case newer <- struct{}{}:
		default:
		}
	}
	running, err := start(ctx, revision, superseded)
	if err != nil {
		return part{}, err
	}
	failed := make(chan error, 1)
	var ended error // of the last stop
	stop := loop(func(ctx context.Context) {
		tick := time.NewTicker(activePeriod)
		defer tick.Stop()
		for {
			lost := false
			select {
			case err := <-running.failed:
				if lost = errors.Is(err, deliver.ErrLost); !lost {
					failed <- err
					<-ctx.Done()
					ended = running.stop()
					return
				}
				log.Warn("starting again from what the store says", "because", err)
			case <-ctx.Done():
				ended = running.stop()
				return
			case <-now.replaced:
			case <-newer:
			case <-tick.C:
			}
			next, active, err := p.activeNow(ctx)
			reloaded := next != now
			now = next
			switch {
			case lost:
			case !renews && reloaded:
				continue // what it does is the same; the revision is looked at next time
			case !reloaded && (err != nil || active.Number == revision):
				continue // without the store nothing is known, and nothing is decided either
			case !renews && bytes.Equal(active.Fingerprint, now.identity):
				revision = active.Number
				continue
			}
			switch {
			case lost:
			case reloaded:
				log.Info("starting again under the new configuration")
			default:
				log.Warn("another configuration is active: this stage stops until its own is active again")
			}
			if err := running.stop(); err != nil {
				log.Warn("it did not stop in order", "error", err)
			}
			for {
				active, ok := p.awaitRevision(ctx)
				if !ok {
					return
				}
				now = p.now.Load()
				again, err := start(ctx, active.Number, superseded)
				if err == nil {
					running, revision = again, active.Number
					break
				}
				log.Warn("it cannot start again; trying again", "error", err)
				if !wait.Sleep(ctx, activePeriod) {
					return
				}
			}
			log.Info("this configuration is active", "revision", revision)
		}
	})
	return part{failed: failed, stop: func() error { stop(); return ended }}, nil
}
