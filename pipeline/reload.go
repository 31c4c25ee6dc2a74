package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store"
)

// settings are replaced by a reload: the customers' files, and their compiled plan.
// Everything else is Pipeline.cfg for the life of the process.
type settings struct {
	cfg      *config.Config
	plan     *decide.Plan
	identity []byte        // of cfg
	replaced chan struct{} // closed when a reload has replaced these settings

	mu  sync.Mutex
	cut []string // guarded by mu: stages that did not end in time to go over to these

	// A stage of this process that works under them calls the one, which closes the other.
	decides, delivers    func()
	deciding, delivering chan struct{}
}

// decidesWithin waits until the decider of this process may decide under the settings.
func (s *settings) decidesWithin(ctx context.Context) bool {
	select {
	case <-s.deciding:
		return true
	case <-ctx.Done():
		return false
	}
}

func newSettings(c *config.Config, plan *decide.Plan, identity []byte) *settings {
	s := &settings{cfg: c, plan: plan, identity: identity, replaced: make(chan struct{}), deciding: make(chan struct{}), delivering: make(chan struct{})}
	s.decides = sync.OnceFunc(func() { close(s.deciding) })
	s.delivers = sync.OnceFunc(func() { close(s.delivering) })
	return s
}

// reloadTimeout bounds a reload.
const reloadTimeout = time.Minute

// reloader brings another configuration into force while the process runs.
type reloader struct {
	cfg       *config.Config
	roles     Roles
	log       *slog.Logger
	store     assemble.Store
	logs      assemble.Logs
	active    *activation
	control   *control.Server
	load      func() (*config.Config, error) // nil: no configuration can be loaded
	servesAPI bool
	started   *atomic.Bool
	noted     func(error) // called with the outcome of each reload
	reloaded  func()      // called when another configuration is in force

	turn sync.Mutex
}

// run is Pipeline.Reload.
func (rl *reloader) run(ctx context.Context, rollBack bool) (control.Reloaded, error) {
	rl.turn.Lock()
	defer rl.turn.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, reloadTimeout, errors.New("the reload took longer than "+reloadTimeout.String()))
	defer cancel()
	var r control.Reloaded
	err := rl.control.Do(ctx, func(ctx context.Context) (err error) { // it ends before the parts that a reload needs
		r, err = rl.reload(ctx, rollBack)
		return err
	})
	if errors.Is(err, control.ErrEnding) {
		return control.Reloaded{}, err
	}
	rl.noted(err)
	if err != nil {
		rl.log.Error("the configuration was not reloaded; the previous one stays in force", "event", "reload.refused", "error", err)
		return control.Reloaded{}, err
	}
	rl.log.Info("the configuration was reloaded", "event", "reload.done", "changed", r.Changed, "revision", r.Revision, "services", r.Services, "added", r.Added, "removed", r.Removed)
	return r, nil
}

func (rl *reloader) reload(ctx context.Context, rollBack bool) (control.Reloaded, error) {
	if rl.load == nil || !rl.started.Load() {
		return control.Reloaded{}, errors.New("this process takes no configuration now: it is starting")
	}
	next, err := rl.load()
	if err != nil {
		return control.Reloaded{}, &control.ReloadRefused{Err: err}
	}
	if fixed := config.MainChanges(rl.cfg, next); len(fixed) > 0 {
		return control.Reloaded{}, &control.ReloadRefused{Err: fmt.Errorf("only customers' files can be changed while a process runs; a restart is needed for what %s has under: %s", next.File, strings.Join(fixed, ", "))}
	}
	if rl.roles.Ingest && !rl.servesAPI && next.NeedsAPI() {
		return control.Reloaded{}, &control.ReloadRefused{Err: fmt.Errorf("a restart is needed for the first check service (%s): this process has no listener for the API", strings.Join(checkNames(next), ", "))}
	}
	old := rl.active.now.Load()
	after := next.ServiceNames()
	r := control.Reloaded{Services: len(after), Checks: len(next.Checks), Revision: old.plan.Revision}
	served, serves := append(old.cfg.ServiceNames(), checkNames(old.cfg)...), append(after, checkNames(next)...)
	r.Added, r.Removed = without(serves, served), without(served, serves)
	_, active, err := rl.active.current(ctx)
	if err != nil {
		return control.Reloaded{}, fmt.Errorf("store: %w", err)
	}
	identity := next.Identity()
	if config.SameSettings(old.cfg, next) && slices.Equal(active.Fingerprint, identity) {
		r.Revision = active.Number
		return r, nil
	}
	if err := checkRenames(ctx, rl.store, next); err != nil {
		return control.Reloaded{}, &control.ReloadRefused{Err: err}
	}
	// A fault of their secrets and certificates would stop all deliveries later.
	candidates := assemble.Sinks{Config: next, Logger: rl.log}
	if err := candidates.Check(changedDeliveries(old.cfg)); err != nil {
		return control.Reloaded{}, &control.ReloadRefused{Err: err}
	}
	numbers, err := rl.store.Services(ctx, after)
	if err != nil {
		return control.Reloaded{}, fmt.Errorf("store: %w", err)
	}
	if err := operate.NoteNames(ctx, rl.store, next); err != nil {
		return control.Reloaded{}, fmt.Errorf("store: %w", err)
	}
	plan, err := assemble.PlanAfter(ctx, rl.store, rl.log, next, numbers, active.Number+1)
	if err != nil {
		return control.Reloaded{}, &control.ReloadRefused{Err: err}
	}
	// Unused topics do no harm when the activation fails.
	if err := rl.logs.Ensure(ctx, assemble.Topics(next)); err != nil {
		return control.Reloaded{}, fmt.Errorf("kafka: %w", err)
	}
	now := newSettings(next, plan, identity)
	if err := rl.active.switchTo(ctx, now, rollBack); err != nil {
		return control.Reloaded{}, err
	}
	r.Changed, r.Revision = true, plan.Revision
	rl.reloaded()
	if err := rl.auditReload(ctx, r); err != nil {
		// It is in force by now. A missing audit row is no reason to roll back.
		rl.log.Warn("the audit has no row for this reload", "event", "reload.not_audited", "error", err)
	}
	r.Pending = !rl.awaitAdopted(ctx, now)
	r.GivenUp = now.abandoned()
	return r, nil
}

// changedDeliveries returns whether a reload reopens the sink of a service.
func changedDeliveries(before *config.Config) func(config.Service) bool {
	kept := map[string]config.Service{}
	for _, s := range before.Services() {
		kept[s.Name] = s
	}
	return func(s config.Service) bool {
		was, found := kept[s.Name]
		return !found || !sameDelivery(was, s)
	}
}

// auditReload notes a reload. Who asked is not known beyond the process's user:
// a signal has no name.
func (rl *reloader) auditReload(ctx context.Context, r control.Reloaded) error {
	detail, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return rl.store.AddAudits(ctx, []store.Audit{{Actor: operate.Actor(), Action: "reload", Detail: detail}})
}

// awaitAdopted waits until the stages of this process work under the settings,
// and reports whether they do.
func (rl *reloader) awaitAdopted(ctx context.Context, now *settings) bool {
	if !rl.roles.Work {
		now.decides()
		now.delivers()
	}
	for _, adopted := range []chan struct{}{now.deciding, now.delivering} {
		select {
		case <-adopted:
		case <-ctx.Done():
			rl.log.Warn("the new configuration is active; the stages have not adopted it yet", "event", "reload.pending")
			return false
		}
	}
	return true
}

func checkNames(c *config.Config) []string {
	names := make([]string, len(c.Checks))
	for i := range c.Checks {
		names[i] = c.Checks[i].Service()
	}
	return names
}

func without(all, some []string) []string {
	rest := []string{}
	for _, s := range all {
		if !slices.Contains(some, s) {
			rest = append(rest, s)
		}
	}
	return rest
}
