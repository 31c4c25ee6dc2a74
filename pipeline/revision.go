package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store"
)

// activation is the configuration that the process works under, and how it
// follows the store's. It may be used concurrently.
type activation struct {
	store revisions
	inbox *inboxManager
	log   *slog.Logger
	now   atomic.Pointer[settings] // replaced by a reload; without a plan until it is compiled
	// mu is held while the active configuration and now change together.
	mu sync.RWMutex
	// superseded is set while another configuration is active.
	superseded atomic.Bool
}

func (a *activation) plan() *decide.Plan { return a.now.Load().plan }

// config returns the configuration that the process works under.
func (a *activation) config() *config.Config { return a.now.Load().cfg }

// current returns the settings and the active revision, never one from before
// and one from after a reload.
func (a *activation) current(ctx context.Context) (*settings, store.Revision, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	active, err := a.store.Active(ctx)
	return a.now.Load(), active, err
}

// latest returns the settings, after a reload that is just switching.
func (a *activation) latest() *settings {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.now.Load()
}

// doubtPatience is how long an activation waits until lost decisions are made again.
const doubtPatience = 10 * time.Second

// activate makes a configuration the active one. The error is errDoubt only if patient.
func (a *activation) activate(ctx context.Context, identity []byte, rollBack, patient bool) (store.Revision, error) {
	return a.store.Activate(ctx, identity, rollBack, a.inbox.now(), a.inbox.journal.noteActivation(ctx, identity, patient))
}

// settled calls try until it returns another error than errDoubt.
func (a *activation) settled(ctx context.Context, try func(patient bool) error) error {
	for began := time.Now(); ; {
		err := try(time.Since(began) < doubtPatience)
		if !errors.Is(err, errDoubt) || !wait.Sleep(ctx, doubtPatience/50) {
			return err
		}
	}
}

// await returns the active revision when it is this process's
// configuration again, false when ctx ended. A store that failed over without
// its last commits may have lost the activation itself: no process would go on
// then, so it is made once more, as a restart would, and of several that were lost
// the latest. It gets a new number, by which every process sees that the store went back.
// The settings have the store's numbers for their services then.
func (a *activation) await(ctx context.Context) (store.Revision, bool) {
	for {
		now := a.now.Load()
		own := now.plan
		active, err := a.store.Active(ctx)
		// An older activation, lost too, may have been restored first under this number.
		if err == nil && active.Number <= own.Revision && !bytes.Equal(active.Fingerprint, now.identity) {
			// Not by force: a configuration that came since then stays.
			err = a.settled(ctx, func(patient bool) error {
				active, err = a.activate(ctx, now.identity, false, patient)
				return err
			})
			if err == nil {
				a.log.Warn("the store lost this configuration; activated it again", "event", "revision.reactivated", "revision", active.Number, "before", own.Revision)
			}
		}
		if err == nil && bytes.Equal(active.Fingerprint, now.identity) {
			if err = a.renumber(ctx, now); err == nil {
				a.superseded.Store(false)
				return active, true
			}
			a.log.Warn("the services' numbers cannot be read; trying again", "event", "revision.numbers", "error", err)
		} else if err == nil {
			a.superseded.Store(true)
		}
		if !wait.Sleep(ctx, activePeriod) {
			return store.Revision{}, false
		}
	}
}

// renumber takes the store's numbers for the services of settings. A restored store may
// have lost some of the numbers, and assigned them to other services: changes under the old
// numbers would belong to no service, or to another one.
func (a *activation) renumber(ctx context.Context, of *settings) error {
	if len(of.plan.Services) == 0 {
		return nil
	}
	numbers, err := a.store.Services(ctx, of.cfg.ServiceNames())
	if err != nil {
		return err
	}
	moved := func(s decide.Service) bool { return numbers[s.Name] != s.Number }
	if !slices.ContainsFunc(of.plan.Services, moved) {
		return nil
	}
	plan, err := assemble.Plan(of.cfg, numbers, of.plan.Revision)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now.Load() == of { // else a reload has just compiled with numbers of its own
		a.replace(newSettings(of.cfg, plan, of.identity))
		a.log.Warn("the store lost services of this configuration; they have new numbers", "event", "revision.renumbered")
	}
	return nil
}

// replace brings settings into force and tells the stages. The caller holds a.mu.
func (a *activation) replace(now *settings) { close(a.now.Swap(now).replaced) }

// activationPatience is how long the store is retried after an activation of unknown outcome.
const activationPatience = 15 * time.Second

// switchTo activates the new settings and tells the stages.
func (a *activation) switchTo(ctx context.Context, now *settings, rollBack bool) error {
	return a.settled(ctx, func(patient bool) error { return a.trySwitch(ctx, now, rollBack, patient) })
}

func (a *activation) trySwitch(ctx context.Context, now *settings, rollBack, patient bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	revision, err := a.activate(ctx, now.identity, rollBack, patient)
	// It may have taken effect without an answer: this process would then be fenced by its
	// own activation.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), activationPatience)
	defer cancel()
	for err != nil && !errors.Is(err, errDoubt) && (store.ClassOf(err) == store.Retry || store.ClassOf(err) == store.Unknown) && wait.Sleep(ctx, activationPatience/60) {
		revision, err = a.activate(ctx, now.identity, rollBack, patient)
	}
	if errors.Is(err, store.ErrSuperseded) {
		return &control.ReloadRefused{Err: fmt.Errorf("this configuration was replaced by a later one; weir reload --activate goes back to it: %w", err)}
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	now.plan.Revision = revision.Number
	a.replace(now)
	return nil
}
