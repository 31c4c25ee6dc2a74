package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport/embedded"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrNothingRan says that there is no state yet to work on.
var ErrNothingRan = errors.New("nothing has run with this configuration yet")

// ErrNotActive says that another configuration than this one is active.
var ErrNotActive = errors.New("this is not the active configuration: use the one that runs, start this one, or let the process reload its customers (weir reload)")

// ErrInUse says that another process has the logs of the SQLite file open.
var ErrInUse = embedded.ErrInUse

// OpenTools connects what operators' commands need: store, cluster, inbox and
// the compiled configuration, which must be the active one. It creates nothing
// and activates nothing. ErrInUse when another process has the logs of the SQLite
// file open, ErrNothingRan, ErrNotActive. Close ends it; Run must not
// be called.
func OpenTools(ctx context.Context, opt Options) (_ *Pipeline, err error) {
	opt.Registry, opt.Roles, opt.UntilIdle = prometheus.NewRegistry(), Roles{Decide: true}, true
	p := newPipeline(opt)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if file := p.cfg.Store.SQLite; file != nil {
		if _, err := os.Stat(file.Path); errors.Is(err, os.ErrNotExist) {
			return nil, ErrNothingRan
		}
	}
	ctx, cancel := withinOpenTimeout(ctx)
	defer cancel()
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	if err := p.store.CheckSchema(ctx); err != nil {
		return nil, fmt.Errorf("store: %w (run weir migrate -c %s)", err, p.cfg.File)
	}
	return p, p.findState(ctx)
}

// findState finds the inbox and compiles the configuration, which must be active.
func (p *Pipeline) findState(ctx context.Context) error {
	topic := p.cfg.Kafka.Inbox.Topic
	id, err := p.logs.TopicID(ctx, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return ErrNothingRan
	} else if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	found, err := p.store.KnownInbox(ctx, topic, id)
	if errors.Is(err, store.ErrNotFound) {
		return ErrNothingRan
	} else if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	p.inbox.inbox.Store(&found)
	active, err := p.store.Active(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return ErrNothingRan
	} else if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !p.cfg.DecidesLike(active.Fingerprint) {
		return fmt.Errorf("%s: %w", p.cfg.File, ErrNotActive)
	}
	compiled, err := p.compile(ctx)
	if err != nil {
		return err
	}
	compiled.plan.Revision = active.Number
	p.active.now.Store(compiled)
	return nil
}

// Tools returns the environment of operators' commands, for a pipeline that runs
// or one of OpenTools. ErrNotActive when another configuration took over.
func (p *Pipeline) Tools(ctx context.Context) (*operate.Env, error) {
	active, err := p.store.Active(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if !bytes.HasPrefix(active.Fingerprint, p.active.plan().Fingerprint) {
		return nil, fmt.Errorf("%s: %w", p.cfg.File, ErrNotActive)
	}
	kinds := assemble.SinkKinds(p.Config())
	checked, err := p.checkServices(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	plan := *p.active.plan()
	plan.Revision = active.Number
	return &operate.Env{
		Store: p.store, Plan: &plan, Checks: checked, Inbox: p.inbox.now(), Append: p.logs, Log: p.logs,
		Shape: func(source string) (ingest.Extractor, error) {
			c := p.cfg.Sources.Find(source)
			if c == nil {
				return ingest.Extractor{}, &operate.InvalidRequestError{Reason: fmt.Sprintf("there is no source %s in the active configuration", source)}
			}
			return assemble.ExtractorOf(p.cfg, c)
		},
		IsLog:  func(service string) bool { return kinds[service] == sinks.Log },
		Target: p.openTarget,
	}, nil
}

// openTarget opens the target of a service to be read.
func (p *process) openTarget(ctx context.Context, service string) (*operate.Target, error) {
	services := p.Config().Services()
	i := slices.IndexFunc(services, func(s config.Service) bool { return s.Name == service })
	if i < 0 {
		return nil, &operate.InvalidRequestError{Reason: fmt.Sprintf("there is no service %s in the active configuration", service)}
	}
	target, forgets, err := p.sinks(p.Config()).Target(ctx, services[i])
	if errors.Is(err, assemble.ErrUnreadable) {
		return nil, &operate.InvalidRequestError{Reason: fmt.Sprintf("the target of %s %s", service, err)}
	}
	if err != nil {
		return nil, err
	}
	return &operate.Target{Scannable: target, Forgets: forgets}, nil
}

// DecideUntilIdle decides what the inbox holds and returns when nothing is left
// of it and every change is published. For a pipeline of OpenTools whose data
// folder no other process has open.
func (p *Pipeline) DecideUntilIdle(ctx context.Context) error {
	running := p.stages.startDecide()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := make(chan bool, 1)
	go func() { idle <- p.monitor.untilIdle(ctx) }()
	var err error
	select {
	case is := <-idle:
		if !is {
			err = context.Cause(ctx)
		}
	case err = <-running.failed:
		cancel()
		<-idle
	}
	return errors.Join(err, running.stop())
}
