package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// Roles are the stages that a process runs.
type Roles struct{ Ingest, Work bool }

// Names returns the names of these stages, in the order of the flow.
func (r Roles) Names() (names []string) {
	for i, is := range []bool{r.Ingest, r.Work} {
		if is {
			names = append(names, []string{"ingest", "work"}[i])
		}
	}
	return names
}

// AllRoles are the default roles of a process.
var AllRoles = Roles{true, true}

// Options of a Pipeline.
type Options struct {
	Config *config.Config
	Roles  Roles
	// UntilIdle ends Run when the sources are drained and everything decided is delivered; File
	// sources are then read to their end instead of followed.
	UntilIdle bool
	// Activate lets an older configuration replace the active one: a roll-back.
	Activate bool
	Logger   *slog.Logger
	// Load, if given, reads the configuration again and checks it, for Reload.
	Load func() (*config.Config, error)
	// Link returns a link that signs an actor in to the page. Needed for ServeAdmin.
	Link func(actor string) string
	// Page, if given, makes the operators' page, when ServeAdmin begins.
	Page func(*Pipeline) http.Handler
	// Registry gets the metrics. Each process uses one of its own.
	Registry *prometheus.Registry
}

// Pipeline is one process of Weir. Made by Open, run once, closed by Run.
type Pipeline struct {
	connections
	opt      Options
	active   *activation
	starting *awaiting
	targets  sinks.Targets // the clients that sinks share

	// Components, made by assemble.
	control   *control.Server
	inbox     *inboxManager
	ingest    *ingestStage
	work      *workStage
	noise     *noiseWriter
	monitor   *monitor
	idle      *idle
	retention *retainer
	operators *operators
	reloads   *reloader
}

// connections are the open servers and files of a process.
type connections struct {
	cfg     *config.Config // as the process was started with
	log     *slog.Logger
	end     *shutdown
	closers []func() error // in the order of opening

	store  assemble.Store
	logs   assemble.Logs // inbox
	keys   *auth.Keyring // of the API; nil without
	gate   gate.Gate
	tracer *tracing.Tracer // nil unless the configuration wants traces
}

// newPipeline returns a process without connections and components.
func newPipeline(opt Options) *Pipeline {
	p := &Pipeline{
		opt: opt, connections: connections{cfg: opt.Config, log: opt.Logger, end: newShutdown(opt.Config.Shutdown.Timeout.D())},
		active: &activation{log: opt.Logger}, starting: &awaiting{outages: outages{log: opt.Logger}},
	}
	p.active.now.Store(newSettings(opt.Config, nil, opt.Config.Identity()))
	return p
}

// openTimeout bounds one attempt to open a server.
const openTimeout = time.Minute

// Open connects everything that the configuration names. It waits for a store or brokers that
// do not answer, until ctx ends. Its errors name faults of the set-up; on an error nothing
// stays open.
func Open(ctx context.Context, opt Options) (_ *Pipeline, err error) {
	p := newPipeline(opt)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	p.logMemory()
	gauges := newGauges(opt.Registry, servicelabel.New(servicelabel.Most))
	serve := (&listening{cfg: p.cfg, log: p.log, end: p.end, gauges: gauges}).serve
	p.starting.listen = (&operators{cfg: p.cfg, log: p.log, reg: opt.Registry, health: p.starting.health, status: p.starting.health, serve: serve}).listen
	if err := p.starting.do(ctx, func(ctx context.Context) error { return p.connect(ctx, opt, gauges) }); err != nil {
		return nil, err
	}
	p.assemble(gauges)
	if err := p.starting.do(ctx, func(ctx context.Context) error {
		if err := p.inbox.openTopics(ctx, nil); err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	p.closers = append(p.closers, func() error { p.inbox.note(); return nil })
	if err := p.starting.do(ctx, p.activate); err != nil {
		return nil, err
	}
	p.starting.listen = nil                        // from here on ServeAdmin is the listener
	p.closers = append(p.closers, p.control.Close) // first to end: it works with all else
	return p, nil
}

// logMemory logs how much memory the process may use, and warns where the configuration
// needs more.
func (p *Pipeline) logMemory() {
	flow, fixed := p.cfg.FlowMemory(), assemble.FixedMemory(p.cfg)
	p.log.Info("memory budget", "event", "memory.budget", "limits_memory", humanize.IBytes(uint64(p.cfg.Limits.Memory)), "flow", humanize.IBytes(uint64(flow)), "available", humanize.IBytes(uint64(assemble.AvailableMemory())),
		"cache", humanize.IBytes(uint64(p.cfg.CacheMemory())), "cached_entities", assemble.CachedEntities(p.cfg))
	if fixed > flow {
		p.log.Warn("the services and the largest event need more memory than limits.memory allows: raise it", "event", "memory.too_small",
			"flow", humanize.IBytes(uint64(flow)), "needs", humanize.IBytes(uint64(fixed)), "services", len(p.cfg.Services()))
	}
}

// connect opens the servers and files of the configuration, which the closers close. On an
// error nothing stays open.
func (c *connections) connect(ctx context.Context, opt Options, g *gauges) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.store, err = assemble.OpenStore(ctx, c.cfg, c.log); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	c.closers = append(c.closers, c.store.Close)
	if c.logs, err = assemble.OpenLogs(c.cfg, c.store, c.log); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	c.closers = append(c.closers, c.closeLogs) // its callers have ended
	if c.cfg.Kafka.Embedded() {
		// The file is this process's now: the address of an earlier one is stale.
		if err := control.RemoveStale(c.cfg); err != nil {
			return fmt.Errorf("logs: %w", err)
		}
	}
	if opt.Roles.Ingest && c.cfg.NeedsAPI() {
		if c.keys, err = openKeys(c.cfg, g.rereadLogger(c.log, "tokens", c.cfg.API.Tokens)); err != nil {
			return err
		}
	}
	if err := c.store.Migrate(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if c.gate, err = assemble.Gate(c.cfg); err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	c.closers = append(c.closers, c.gate.Close)
	if c.cfg.Tracing == nil {
		return nil
	}
	if c.tracer, err = openTracing(c.cfg.Tracing, opt.Registry, c.log); err == nil {
		c.closers = append(c.closers, c.flushTraces)
	}
	return err
}

// closeLogs closes the logs within the limits of the shutdown.
func (c *connections) closeLogs() error {
	ctx, cancel := context.WithTimeout(c.end.closing(), closeTimeout(c.cfg))
	defer cancel()
	if err := c.logs.Close(ctx); err != nil {
		// Records that Kafka did not acknowledge were not acknowledged to their origin
		// either, and are redelivered.
		c.log.Warn("Kafka did not answer during the shutdown: some records are redelivered", "event", "shutdown.logs", "error", err)
	}
	return nil
}

// assemble makes the components over the opened connections. Nothing runs yet.
func (p *Pipeline) assemble(g *gauges) {
	reg, roles, m := p.opt.Registry, p.opt.Roles, newStageMetrics(p.opt.Registry, g.labels)
	p.inbox = &inboxManager{cfg: p.cfg, log: p.log, store: p.store, logs: p.logs, active: p.active, sinks: p.sinks, lost: g.resets}
	if topic := p.cfg.Kafka.Journal(); topic != "" {
		p.inbox.journal = &journal{logs: p.logs, topic: topic}
	}
	p.active.store, p.active.inbox = p.store, p.inbox
	stage := func(l limit) stageOptions {
		return stageOptions{cfg: p.cfg, log: p.log, store: p.store, logs: p.logs, active: p.active, tracer: p.tracer, lost: g.resets, timed: g.timed, limit: l.ctx}
	}
	p.ingest = &ingestStage{stageOptions: stage(p.end.ingest), gate: p.gate, metrics: m.ingest, inboxID: p.inbox.identity, storeID: p.inbox.ownID, stored: p.inbox.entitiesOf, decided: p.inbox.allDecided, barrier: p.inbox.barrier, untilIdle: p.opt.UntilIdle}
	p.work = &workStage{stageOptions: stage(p.end.work), inbox: p.inbox, decides: m.decide, delivers: m.deliver, sinks: p.sinks, rereads: g.rereads}
	if roles.Work {
		p.work.noise = fieldcount.NewCollector()
	}
	p.noise = &noiseWriter{store: p.store, log: p.log, active: p.active, noise: p.work.noise, limit: p.end.work.ctx}
	p.monitor = &monitor{
		cfg: p.cfg, roles: roles, log: p.log, store: p.store, logs: p.logs, gate: p.gate, keys: p.keys, active: p.active,
		inbox: p.inbox, ingest: p.ingest, work: p.work, metrics: m, gauges: g, outages: outages{log: p.log},
	}
	p.idle = &idle{
		roles: roles, store: p.store, active: p.active, inbox: p.inbox,
		ingest: p.ingest, work: p.work, blocked: p.monitor.blocked,
	}
	p.retention = &retainer{store: p.store, cfg: p.cfg, log: p.log, dropped: g.ledgerDropped, active: p.active, append: p.logs}
	serve := (&listening{cfg: p.cfg, log: p.log, end: p.end, gauges: g}).serve
	front := &frontDoor{
		cfg: p.cfg, log: p.log, reg: reg, store: p.store, active: p.active, keys: p.keys, tracer: p.tracer, metrics: m, sources: p.ingest.sources, takes: p.monitor.takes, serve: serve, ending: p.end.ingest.ctx,
	}
	p.ingest.serveAPI = front.listen
	p.control = control.New(control.Options{Config: p.cfg, Probe: p.Probe, Link: p.opt.Link, Reload: p.Reload})
	p.operators = &operators{cfg: p.cfg, log: p.log, reg: reg, control: p.control, health: p.monitor.healthNow, status: p.monitor.status, serve: serve}
	if p.opt.Page != nil {
		p.operators.page = func() http.Handler { return p.opt.Page(p) }
	}
	p.reloads = &reloader{
		cfg: p.cfg, roles: roles, log: p.log, store: p.store, logs: p.logs, active: p.active, control: p.control, load: p.opt.Load,
		servesAPI: p.keys != nil, started: &p.monitor.started, noted: g.noteReload, reloaded: p.monitor.showZeros,
	}
}

// sinks makes sinks of this process, for a configuration that it works under.
func (p *Pipeline) sinks(c *config.Config) *assemble.Sinks {
	return &assemble.Sinks{Config: c, Logger: p.log, Targets: &p.targets, StoreID: p.inbox.ownID()}
}

// activate compiles the configuration and makes it the active one.
func (p *Pipeline) activate(ctx context.Context) error {
	if !p.opt.Activate {
		if err := checkRenames(ctx, p.store, p.cfg); err != nil {
			return err
		}
	}
	numbers, err := p.store.Services(ctx, p.cfg.ServiceNames())
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := operate.NoteNames(ctx, p.store, p.cfg); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	plan, err := assemble.PlanAfter(ctx, p.store, p.log, p.cfg, numbers, 1)
	if err != nil {
		return err
	}
	now := newSettings(p.cfg, plan, p.cfg.Identity())
	var revision store.Revision
	err = p.active.settled(ctx, func(patient bool) error {
		// Only a process that decides ends the doubt, and a file has no other one.
		revision, err = p.active.activate(ctx, now.identity, p.opt.Activate, patient && p.cfg.Store.File == "")
		return err
	})
	if errors.Is(err, store.ErrSuperseded) {
		return fmt.Errorf("this configuration was replaced by a later one; start with --activate to go back to it: %w", err)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	plan.Revision = revision.Number
	p.active.now.Store(now)
	return nil
}

// checkRenames refuses a configuration that is not active yet, with first names that the
// store does not know: its services would be sent everything.
func checkRenames(ctx context.Context, s assemble.Store, c *config.Config) error {
	if len(c.Renamed()) == 0 {
		return nil
	}
	active, err := s.Active(ctx)
	if err == nil && bytes.Equal(active.Fingerprint, c.Identity()) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	known, knownErr := s.KnownServices(ctx)
	if err := errors.Join(err, knownErr); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return c.CheckRenames(known)
}

// Close closes a pipeline that was not run, the part opened last first. Run closes its pipeline.
func (c *connections) Close() error {
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	c.closers = nil
	return errors.Join(errs...)
}
