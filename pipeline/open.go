package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/gate"
	"github.com/seed-86dfc502/weir/internal/sketch"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// Roles are the stages that a process runs.
type Roles struct{ Ingest, Decide, Deliver bool }

// AllRoles is what a process runs unless told otherwise.
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
	// Commands, if given, runs commands that other processes send to the
	// operators' listener.
	Commands control.Executor
	// Page, if given together with Commands, makes the operators' page, when
	// ServeAdmin begins.
	Page func(*Pipeline) http.Handler
	// Registry gets the metrics. Each process uses one of its own.
	Registry *prometheus.Registry
}

// Pipeline is one process of Weir. Made by Open, run once, closed by Run.
type Pipeline struct {
	opt       Options
	cfg       *config.Config
	log       *slog.Logger
	reg       *prometheus.Registry
	active    activation
	reloading sync.Mutex

	kafka transport.Config // of the cluster; none without brokers
	logs  logs             // inbox and changes
	store database
	gate  gate.Gate
	inbox atomic.Pointer[store.Inbox] // replaced when the topic is
	// decidedGeneration is the newest generation that has a watermark.
	decidedGeneration atomic.Uint32
	closers           []func() error // in the order of opening

	keys     *auth.Keyring   // of the API; nil without
	control  *control.Server // nil without Options.Commands
	attempts *auth.Attempts  // wrong tokens at the operators' listener; nil before ServeAdmin

	targets sinks.Targets // the clients that sinks share

	metrics stageMetrics
	gauges  *gauges
	noise   *sketch.Collector // nil unless the process runs decide
	tail    decide.Tail       // what was decided of late; fills while somebody looks
	tracer  *tracing.Tracer   // nil unless the configuration wants traces

	health health
	topics topicHealth
	left   atomic.Pointer[[]Wait] // of UntilIdle; see Waits
	parts  parts
	end    *ending
}

// openTimeout bounds connecting and creating topics and tables.
const openTimeout = time.Minute

func withinOpenTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, openTimeout, errors.New("opening took longer than "+openTimeout.String()))
}

// connect registers the metrics, and opens the cluster and the store, which the
// closers close.
func (p *Pipeline) connect(ctx context.Context) (err error) {
	p.metrics = newStageMetrics(p.reg)
	p.gauges = newGauges(p.reg)
	if p.store, err = assemble.Store(ctx, p.cfg, p.log); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	p.closers = append(p.closers, p.store.Close)
	p.active.store = p.store
	if err := p.openLogs(); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	return nil
}

// Open connects everything that the configuration names. What fails here is
// wrong set-up and is said plainly; on an error nothing stays open.
func Open(ctx context.Context, opt Options) (_ *Pipeline, err error) {
	p := &Pipeline{opt: opt, cfg: opt.Config, log: opt.Logger, reg: opt.Registry, end: newEnding(opt.Config.Shutdown.Timeout.D()),
		active: activation{log: opt.Logger, first: opt.Config},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	ctx, cancel := withinOpenTimeout(ctx)
	defer cancel()
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
	p.gate = gate.Under(p.gate, p.generation)
	p.closers = append(p.closers, p.gate.Close)
	if err := p.openTracing(); err != nil {
		return nil, err
	}
	if err := p.openTopics(ctx, nil); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	if err := p.activate(ctx); err != nil {
		return nil, err
	}
	if p.opt.Commands != nil {
		p.control = control.New(control.Options{Config: p.cfg, Execute: p.opt.Commands, Tools: p.Tools, Reload: p.Reload})
		// First to end: it works with everything else.
		p.closers = append(p.closers, p.control.Close)
	}
	return p, nil
}

// closeProducer returns the closer of a producer whose callers have ended.
func (p *Pipeline) closeProducer(producer *transport.Producer) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(p.end.closing(), p.closeTimeout())
		defer cancel()
		if err := producer.Close(ctx); err != nil {
			// Nothing is lost by it: whatever Kafka did not acknowledge was not
			// acknowledged to its origin either, and comes again.
			p.log.Warn("Kafka was away at the end: some records come again", "error", err)
		}
		return nil
	}
}

// newProducer makes a producer of the internal topics.
func (p *Pipeline) newProducer(codec transport.Compression) (*transport.Producer, error) {
	return assemble.Producer(p.cfg, p.kafka, codec)
}

// openTopics creates the inbox and the changes log and finds the inbox's
// generation; cut says what is known of how it became shorter, nil if nothing.
func (p *Pipeline) openTopics(ctx context.Context, cut *transport.TruncatedError) error {
	if err := p.logs.Ensure(ctx, assemble.Topics(p.Config())); err != nil {
		return err
	}
	if err := p.keepChanges(ctx); err != nil {
		return err
	}
	return p.openInbox(ctx, cut)
}

// activate makes the configuration the active one and compiles it.
func (p *Pipeline) activate(ctx context.Context) error {
	numbers, err := p.store.Services(ctx, assemble.ServiceNames(p.cfg))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	identity := p.cfg.Identity()
	revision, err := p.store.Activate(ctx, identity, p.opt.Activate)
	if errors.Is(err, store.ErrSuperseded) {
		return fmt.Errorf("this configuration was replaced by a later one; start with --activate to go back to it: %w", err)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	plan, err := assemble.Plan(p.cfg, numbers, revision.Number)
	if err != nil {
		return err
	}
	p.active.now.Store(newSettings(p.cfg, plan, identity))
	return nil
}

// Close closes a pipeline that is not run. Run closes by itself.
func (p *Pipeline) Close() error { return p.close() }

// close closes what is open, the latest first.
func (p *Pipeline) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	return errors.Join(errs...)
}
