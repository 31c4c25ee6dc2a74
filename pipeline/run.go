package pipeline

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed-86dfc502/weir/store/sqlite"
)

// Run runs the stages until ctx is cancelled, or, with UntilIdle, until everything is delivered.
// It then stops them in the order of the flow, closes everything and returns nil, within
// shutdown.timeout, also while servers are unreachable. Unfinished work is redelivered and
// logged. A close that hangs continues in the background after that time. The process should then
// exit. An error means that a stage failed. Run may be called once.
func (p *Pipeline) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.end.begin)()
	// An operator's command, or a reload, must not keep a stage.
	defer context.AfterFunc(p.end.ingest.ctx, p.control.Cancel)()
	if p.opt.UntilIdle {
		p.idle.begin()
	}
	return p.end.run(p.log, func() ([]component, error) { return p.runStages(ctx) }, func() error {
		if p.opt.UntilIdle {
			p.idle.lookAgain(p.end.closing())
		}
		return p.Close()
	})
}

// runStages starts the stages and returns the stages that run when it is time to stop them. An error means
// that one did not start, or failed.
func (p *Pipeline) runStages(ctx context.Context) (running []component, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if file, ok := p.store.(*sqlite.Store); ok {
		defer loop(func(working context.Context) {
			select {
			case <-file.Failed():
				cancel()
			case <-working.Done():
			}
		})()
		defer func() {
			if e := file.Err(); e != nil {
				err = fmt.Errorf("the state cannot be trusted any more: %w", e)
			}
		}()
	}
	if running, err = p.startStages(ctx); err == nil {
		return running, p.keepRunning(ctx, running)
	}
	if ctx.Err() != nil {
		err = nil // a stop was asked for meanwhile
	}
	return running, err
}

// startStages starts the stages of the process's roles in the order of the flow. It
// returns those that it started, on an error, too.
func (p *Pipeline) startStages(ctx context.Context) (running []component, err error) {
	add := func(name string, limit context.Context, r component) {
		r.name, r.limit = name, limit
		running = append(running, r)
	}
	while := func(name string, limit context.Context, renews bool, start startFunc) error {
		var started component
		err := p.starting.do(ctx, func(context.Context) (err error) {
			started, err = p.active.supervise(ctx, name, renews, start)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		add(name, limit, started)
		return nil
	}
	if p.opt.Roles.Ingest {
		if err := while("ingest", p.end.ingest.ctx, false, p.ingest.start); err != nil {
			return running, err
		}
	}
	if p.opt.Roles.Work {
		if err := while("work", p.end.work.ctx, true, p.work.start); err != nil {
			return running, err
		}
		add("statistics", p.end.work.ctx, p.noise.start())
	}
	return running, nil
}

// keepRunning monitors the stages and runs retention until ctx ends, a run UntilIdle is done, or
// a stage fails. It returns the error of that stage.
func (p *Pipeline) keepRunning(ctx context.Context, running []component) error {
	watch, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	defer p.end.begin()
	p.monitor.showZeros()
	watchers.Go(func() { p.monitor.run(watch) })
	if p.opt.Roles.Work {
		watchers.Go(func() { p.retention.run(watch) })
		watchers.Go(func() { p.inbox.trim(watch) })
	}
	idle := make(chan struct{})
	if p.opt.UntilIdle {
		watchers.Go(func() {
			if p.idle.until(watch) {
				close(idle)
			}
		})
	}
	p.monitor.started.Store(true)
	plan := p.active.plan()
	p.log.Info("running", "event", "process.running", "services", len(plan.Services), "revision", plan.Revision, "generation", p.inbox.now().Generation)
	select {
	case <-ctx.Done():
		p.log.Info("stopping: finishing work in progress", "event", "process.stopping", "within", p.cfg.Shutdown.Timeout)
		return nil
	case <-idle:
		return nil
	case err := <-merged(watch, running):
		return err
	}
}

// merged returns the first failure of any component until ctx ends.
func merged(ctx context.Context, running []component) <-chan error {
	first := make(chan error, len(running))
	for _, r := range running {
		go func() {
			select {
			case err, ok := <-r.failed:
				if ok {
					first <- err
				}
			case <-ctx.Done():
			}
		}()
	}
	return first
}
