package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// process is the open state of a process, which the components of a Pipeline share.
type process struct {
	opt    Options
	cfg    *config.Config // as the process was started with
	log    *slog.Logger
	reg    *prometheus.Registry
	active activation

	logs    assemble.Logs // inbox and changes
	store   assemble.Store
	gate    gate.Gate
	targets sinks.Targets // the clients that sinks share
	// storeID is the topic id of the store's first inbox, which no other store has and which
	// outlives its generations; not set before the inbox is open.
	storeID atomic.Pointer[string]

	keys    *auth.Keyring // of the API; nil without
	control *control.Server

	metrics stageMetrics
	gauges  *gauges
	tracer  *tracing.Tracer // nil unless the configuration wants traces
	health  health

	end     *shutdown
	closers []func() error // in the order of opening
}

func newProcess(opt Options) *process {
	p := &process{
		opt: opt, cfg: opt.Config, log: opt.Logger, reg: opt.Registry,
		active: activation{log: opt.Logger},
		end:    newShutdown(opt.Config.Shutdown.Timeout.D()),
	}
	p.active.now.Store(newSettings(opt.Config, nil, opt.Config.Identity()))
	return p
}

// ownID returns what tells the store apart from all others, "" before the inbox is open.
func (p *process) ownID() string {
	if id := p.storeID.Load(); id != nil {
		return *id
	}
	return ""
}

// connect registers the metrics, and opens the cluster and the store, which the
// closers close.
func (p *process) connect(ctx context.Context) (err error) {
	p.metrics = newStageMetrics(p.reg)
	p.gauges = newGauges(p.reg)
	if p.store, err = assemble.OpenStore(ctx, p.cfg, p.log); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	p.closers = append(p.closers, p.store.Close)
	p.active.store = p.store
	if err := p.openLogs(); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	return nil
}

// activate compiles the configuration and makes it the active one.
func (p *process) activate(ctx context.Context) error {
	compiled, err := p.compile(ctx)
	if err != nil {
		return err
	}
	revision, err := p.active.activate(ctx, compiled.identity, p.opt.Activate)
	if errors.Is(err, store.ErrSuperseded) {
		return fmt.Errorf("this configuration was replaced by a later one; start with --activate to go back to it: %w", err)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	compiled.plan.Revision = revision.Number
	p.active.now.Store(compiled)
	return nil
}

// compile compiles the configuration, under a revision that its caller replaces by
// that of the store.
func (p *process) compile(ctx context.Context) (*settings, error) {
	numbers, err := p.store.Services(ctx, p.cfg.ServiceNames())
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	plan, err := assemble.PlanAfter(ctx, p.store, p.log, p.cfg, numbers, 1)
	if err != nil {
		return nil, err
	}
	return newSettings(p.cfg, plan, p.cfg.Identity()), nil
}

// close closes the open state, the latest first.
func (p *process) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	return errors.Join(errs...)
}
