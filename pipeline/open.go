package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// Roles are the stages that a process runs.
type Roles struct{ Ingest, Decide, Deliver bool }

// Names returns the names of these stages, in the order of the flow.
func (r Roles) Names() (names []string) {
	for i, is := range []bool{r.Ingest, r.Decide, r.Deliver} {
		if is {
			names = append(names, []string{"ingest", "decide", "deliver"}[i])
		}
	}
	return names
}

// AllRoles are the default roles of a process.
var AllRoles = Roles{true, true, true}

// Options of a Pipeline.
type Options struct {
	Config *config.Config
	Roles  Roles
	// UntilIdle ends Run when the sources are drained and everything decided is
	// delivered; file sources are then read to their end instead of followed.
	UntilIdle bool
	// Activate lets an older configuration replace the active one: a roll-back.
	Activate bool
	Logger   *slog.Logger
	// Load, if given, reads the configuration again and checks it, for Reload.
	Load func() (*config.Config, error)
	// Commands runs commands that other processes send to the operators' listener.
	// Needed for ServeAdmin.
	Commands control.Executor
	// Page, if given, makes the operators' page, when ServeAdmin begins.
	Page func(*Pipeline) http.Handler
	// Registry gets the metrics. Each process uses one of its own.
	Registry *prometheus.Registry
}

// Pipeline is one process of Weir. Made by Open, run once, closed by Run.
type Pipeline struct {
	*process
	inbox     *inboxManager
	stages    *stageSet
	monitor   *monitor
	front     *frontDoor
	operators *operators
	reloads   *reloader
}

// newPipeline returns the parts of a process; nothing is open yet.
func newPipeline(opt Options) *Pipeline {
	p := &Pipeline{process: newProcess(opt)}
	p.inbox = &inboxManager{process: p.process}
	p.stages = &stageSet{process: p.process, inbox: p.inbox}
	p.monitor = &monitor{process: p.process, inbox: p.inbox, stages: p.stages, outages: outages{log: p.log}}
	p.front = &frontDoor{process: p.process, stages: p.stages, takes: p.monitor.takes}
	p.stages.serveAPI, p.stages.takes = p.front.listen, p.monitor.takes
	p.operators = &operators{process: p.process, health: p.monitor.healthNow}
	p.reloads = &reloader{process: p.process, reloaded: p.monitor.showZeros}
	if opt.Page != nil {
		p.operators.page = func() http.Handler { return opt.Page(p) }
	}
	return p
}

// openTimeout bounds connecting and creating topics and tables.
const openTimeout = time.Minute

func withinOpenTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, openTimeout, errors.New("opening took longer than "+openTimeout.String()))
}

// Open connects everything that the configuration names. What fails here is
// wrong set-up and is said plainly; on an error nothing stays open.
func Open(ctx context.Context, opt Options) (_ *Pipeline, err error) {
	p := newPipeline(opt)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	ctx, cancel := withinOpenTimeout(ctx)
	defer cancel()
	p.logMemory()
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	if err := p.openKeys(); err != nil {
		return nil, err
	}
	if err := p.store.Migrate(ctx); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if p.gate, err = assemble.Gate(p.cfg); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	p.closers = append(p.closers, p.gate.Close)
	if err := p.openTracing(); err != nil {
		return nil, err
	}
	if err := p.inbox.openTopics(ctx, nil); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	p.closers = append(p.closers, func() error { p.inbox.note(); return nil })
	if err := p.activate(ctx); err != nil {
		return nil, err
	}
	p.control = control.New(control.Options{Config: p.cfg, Execute: p.opt.Commands, Reload: p.Reload})
	// First to end: it works with everything else.
	p.closers = append(p.closers, p.control.Close)
	return p, nil
}

// logMemory says how much memory the process may use, and warns where the configuration
// needs more.
func (p *Pipeline) logMemory() {
	flow, fixed := p.cfg.FlowMemory(), assemble.FixedMemory(p.cfg)
	p.log.Info("memory budget", "event", "memory.budget", "limits_memory", humanize.IBytes(uint64(p.cfg.Limits.Memory)), "flow", humanize.IBytes(uint64(flow)), "available", humanize.IBytes(uint64(assemble.AvailableMemory())))
	if fixed > flow {
		p.log.Warn("the services and the largest event need more memory than limits.memory allows: raise it", "event", "memory.too_small",
			"flow", humanize.IBytes(uint64(flow)), "needs", humanize.IBytes(uint64(fixed)), "services", len(p.cfg.Services()))
	}
}

// ServeAdmin starts the operators' listener: /healthz says that the process
// lives, /readyz that it does its work, /metrics is for Prometheus. Where a
// token is configured everything but the probes needs it; /metrics takes the
// token for metrics as well. /v1/commands runs commands of operators, never
// without a token: the configured one, or the one that this process leaves in its
// data folder for its own user; the same holds for /v1/reload. /debug/pprof is
// served where the configuration says so, with the configured token. Everything
// else is the operators' page. Web pages of others are kept from all of it.
func (p *Pipeline) ServeAdmin() (address string, stop func() error, err error) {
	return p.operators.listen()
}

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
	return p.reloads.run(ctx, rollBack)
}

// Tools returns the environment of operators' commands. session.ErrNotActive when another
// configuration took over.
func (p *Pipeline) Tools(ctx context.Context) (*operate.Env, error) {
	now := p.active.now.Load()
	s := session.Session{Config: now.cfg, Store: p.store, Logs: p.logs, Inbox: p.inbox.now(), Plan: now.plan, Sinks: p.sinks(now.cfg), Logger: p.log}
	return s.Env(ctx)
}

// ofSession returns a pipeline that decides the records that a command appends.
func ofSession(s *session.Session) *Pipeline {
	p := newPipeline(Options{Config: s.Config, Logger: s.Logger, Registry: prometheus.NewRegistry(), Roles: Roles{Decide: true}, UntilIdle: true})
	p.metrics, p.gauges = newStageMetrics(p.reg), newGauges(p.reg)
	p.store, p.logs, p.active.store = s.Store, s.Logs, s.Store
	p.inbox.inbox.Store(&s.Inbox)
	p.active.now.Store(newSettings(s.Config, s.Plan, s.Config.Identity()))
	return p
}

// Close closes a pipeline that is not run. Run closes by itself.
func (p *Pipeline) Close() error { return p.close() }
