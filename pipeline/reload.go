package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store"
)

// Config returns the configuration that the process works under. It may be
// called concurrently.
func (p *Pipeline) Config() *config.Config { return p.active.config() }

// settings are what a reload replaces: the customers' files, and what is
// compiled from them. Everything else is Pipeline.cfg for the life of the process.
type settings struct {
	cfg      *config.Config
	plan     *decide.Plan
	identity []byte        // of cfg
	replaced chan struct{} // closed when a reload has replaced these settings

	mu  sync.Mutex
	cut []string // guarded by mu: stages that did not end in time to go over to these

	// adopted is done when the stages of this process work under them.
	adopted           sync.WaitGroup
	decides, delivers sync.Once
}

func newSettings(c *config.Config, plan *decide.Plan, identity []byte) *settings {
	s := &settings{cfg: c, plan: plan, identity: identity, replaced: make(chan struct{})}
	s.adopted.Add(2)
	return s
}

// reloadTimeout bounds a reload.
const reloadTimeout = time.Minute

// Reload reads the configuration again, makes it the active one and lets the
// stages of this process go over to it between two batches; ingest goes on
// meanwhile. Only the customers' files may have changed. rollBack lets an
// earlier configuration replace the active one. It returns when the stages work
// under the new one, or after a minute, or when ctx ends: then they do it later. Other processes
// are fenced from then on, until they are given the same configuration.
//
// Nothing is changed when the error is a *control.ReloadRefused. Any other error is one
// of store or log, and the reload can be tried again. It may be called
// concurrently while Run runs; one reload follows the other.
func (p *Pipeline) Reload(ctx context.Context, rollBack bool) (control.Reloaded, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, reloadTimeout, errors.New("the reload took longer than "+reloadTimeout.String()))
	defer cancel()
	var r control.Reloaded
	reload := func(ctx context.Context) (err error) {
		r, err = p.reload(ctx, rollBack)
		return err
	}
	var err error
	if p.control != nil { // its end comes before that of what a reload needs
		err = p.control.Do(ctx, reload)
	} else {
		err = reload(ctx)
	}
	if errors.Is(err, control.ErrEnding) {
		return control.Reloaded{}, err
	}
	if err != nil {
		p.gauges.refused.Set(1)
		p.log.Error("the configuration was not reloaded; going on with what was in force", "error", err)
		return control.Reloaded{}, err
	}
	p.gauges.refused.Set(0)
	p.log.Info("the configuration was reloaded", "changed", r.Changed, "revision", r.Revision, "services", r.Services, "added", r.Added, "removed", r.Removed)
	return r, nil
}

func (p *Pipeline) reload(ctx context.Context, rollBack bool) (control.Reloaded, error) {
	if p.opt.Load == nil || !p.health.started.Load() {
		return control.Reloaded{}, errors.New("this process takes no configuration now: it is starting")
	}
	next, err := p.opt.Load()
	if err != nil {
		return control.Reloaded{}, &control.ReloadRefused{Err: err}
	}
	if fixed := mainChanges(p.cfg, next); len(fixed) > 0 {
		return control.Reloaded{}, &control.ReloadRefused{Err: fmt.Errorf("only customers' files can be changed while a process runs; a restart is needed for what %s has under: %s", next.File, strings.Join(fixed, ", "))}
	}
	if p.opt.Roles.Ingest && p.keys == nil && next.NeedsAPI() {
		return control.Reloaded{}, &control.ReloadRefused{Err: fmt.Errorf("a restart is needed for the first check service (%s): this process has no listener for the API", strings.Join(checkNames(next), ", "))}
	}
	old := p.active.now.Load()
	after := assemble.ServiceNames(next)
	r := control.Reloaded{Services: len(after), Checks: len(next.Checks), Revision: old.plan.Revision}
	served, serves := append(assemble.ServiceNames(old.cfg), checkNames(old.cfg)...), append(after, checkNames(next)...)
	r.Added, r.Removed = without(serves, served), without(served, serves)
	_, active, err := p.active.current(ctx)
	if err != nil {
		return control.Reloaded{}, fmt.Errorf("store: %w", err)
	}
	identity := next.Identity()
	if reflect.DeepEqual(settled(old.cfg), settled(next)) && slices.Equal(active.Fingerprint, identity) {
		r.Revision = active.Number
		return r, nil
	}
	// What fails with their secrets and certificates now would stop all deliveries later.
	candidates := assemble.Sinks{Config: next, Logger: p.log, Cluster: p.kafka}
	if err := candidates.Check(); err != nil {
		return control.Reloaded{}, &control.ReloadRefused{Err: err}
	}
	numbers, err := p.store.Services(ctx, after)
	if err != nil {
		return control.Reloaded{}, fmt.Errorf("store: %w", err)
	}
	plan, err := assemble.Plan(next, numbers, active.Number+1)
	if err != nil {
		return control.Reloaded{}, &control.ReloadRefused{Err: err}
	}
	// Topics that nobody uses do no harm when the activation fails.
	if err := p.logs.Ensure(ctx, assemble.Topics(next)); err != nil {
		return control.Reloaded{}, fmt.Errorf("kafka: %w", err)
	}
	now := newSettings(next, plan, identity)
	if err := p.active.switchTo(ctx, old, now, rollBack); err != nil {
		return control.Reloaded{}, err
	}
	r.Changed, r.Revision = true, plan.Revision
	p.showZeros()
	if err := p.auditReload(ctx, r); err != nil {
		// It is in force by now; that nobody noted it is no reason to go back.
		p.log.Warn("the audit has no row for this reload", "error", err)
	}
	r.Pending = !p.awaitAdopted(ctx, now)
	r.GivenUp = now.givenUp()
	return r, nil
}

// auditReload notes a reload. Who asked is not known beyond the process's user:
// a signal has no name.
func (p *Pipeline) auditReload(ctx context.Context, r control.Reloaded) error {
	detail, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return p.store.AddAudits(ctx, []store.Audit{{Actor: operate.Actor(), Action: "reload", Detail: detail}})
}

// awaitAdopted waits until the stages of this process work under the settings,
// and reports whether they do.
func (p *Pipeline) awaitAdopted(ctx context.Context, now *settings) bool {
	if !p.opt.Roles.Decide {
		now.decides.Do(now.adopted.Done)
	}
	if !p.opt.Roles.Deliver {
		now.delivers.Do(now.adopted.Done)
	}
	done := make(chan struct{})
	go func() {
		now.adopted.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		// The goroutine must not outlive a process that ends before its stages
		// came that far.
		now.decides.Do(now.adopted.Done)
		now.delivers.Do(now.adopted.Done)
		<-done
		p.log.Warn("the new configuration is active; the stages are still going over to it")
		return false
	}
}

// mainChanges names the keys of the main file that differ, other than where
// customers' files are.
func mainChanges(a, b *config.Config) (keys []string) {
	x, y := reflect.ValueOf(*settled(a)), reflect.ValueOf(*settled(b))
	for i := range x.NumField() {
		key, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("yaml"), ",")
		if key == "-" || key == "customers" {
			continue
		}
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			keys = append(keys, key)
		}
	}
	return keys
}

// settled is a copy in which nothing depends on where a source stands in the
// main file.
func settled(c *config.Config) *config.Config {
	copied := *c
	copied.Sources = slices.Clone(c.Sources)
	for i := range copied.Sources {
		copied.Sources[i].Pos = config.Position{}
	}
	return &copied
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
